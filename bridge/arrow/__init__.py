"""Arrow between Spark and jobs: types that can be transferred, and conversion and cutting of batches.

`spark_types` maps a DataFrame's types and time zone to Arrow and back. `readable_batches` converts Arrow
batches to types that Spark reads correctly. `batch_pieces` splits batches.

Touches no process and no network. PySpark is imported inside of functions only. Imports nothing of the
bridge.
"""
