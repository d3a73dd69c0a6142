"""Arrow between Spark and jobs: which types travel, and how batches are fitted and cut.

`arrow_types` and `dataframe_schemas` map a DataFrame's types to Arrow and back, `readable_types` and
`readable_batches` fit Arrow batches to what Spark reads right, `batch_pieces` cuts them, `session_zone` names
time zones, `record_format` says in which form a source gives rows.

Touches no process and no network. PySpark is imported inside of functions only. Imports nothing of the
bridge.
"""
