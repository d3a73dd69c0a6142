"""Arrow between Spark and jobs: which types travel, and how batches are fitted and cut.

`arrow_types` and `dataframe_schemas` map a DataFrame's types to Arrow and back. `readable_types` and
`readable_batches` convert Arrow batches to types that Spark reads correctly. `batch_pieces` splits batches,
`session_zone` names time zones, `batch_format` defines the form of a source's rows.

Touches no process and no network. PySpark is imported inside of functions only. Imports nothing of the
bridge.
"""
