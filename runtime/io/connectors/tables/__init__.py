"""Common parts of the sinks of tables: Parquet files, fixed columns and their types.

No format of tables is known here: `delta/` and `iceberg/` build on it.
"""
