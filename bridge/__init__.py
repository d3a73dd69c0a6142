"""Sources and sinks for Spark DataFrames and Ray Data; the only part that depends on Spark.

    from penstock.spark import from_spark, spark_session, to_spark

    with spark_session("my-app", executors=2) as spark:
        stream = from_spark(env, spark.read.parquet("orders"))
        counts = to_spark(stream.map(...), spark)

Words that all files use:

* transfer: sending a DataFrame's rows, or a streaming query's micro-batches, to the readers of a job.
* receive buffer: an actor that holds the rows of one reader until a checkpoint covers them.
* frame: some Arrow batches of one Spark partition, the unit of a transfer.
* epoch: the unit of a commit in Spark: one micro-batch, or a whole DataFrame.
* rendezvous: the actor at which a job's receive buffers register, so that the program with the Spark session
  can serve them.
* partition assignment: the receive buffer of each partition, chosen when its Spark task begins.
* block: an Arrow IPC stream of a job's results in Ray's object store.

PySpark is imported when it is needed, so this package can be imported without it. `penstock.spark` and
`penstock.ray_data` have the public names.
"""
