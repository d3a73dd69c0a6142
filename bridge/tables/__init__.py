"""Tables of Parquet files that jobs write and Spark reads: `SparkTable`.

`spark_table` is the sink. `table_columns` keeps the table's schema, and finds a table in Spark's catalog.

Touches the table's storage, and Spark only to read. May import `session` and `arrow`.
"""
