"""Results of jobs as DataFrames: `to_spark` and `SparkResults`.

`spark_results` is the sink, `to_spark` runs a job for its results, `block_dataframe` makes a DataFrame of
blocks.

Touches Ray and Spark. May import `blocks`, `session` and `arrow`.
"""
