"""DataFrames as bounded sources: `from_spark`.

`from_spark` builds the source and serves the transfer. `spark_source` is the source with its readers.
`transfer_status` shows the progress of a transfer.

Touches Ray and Spark. May import `transfer` and what lies below it.
"""
