"""Spark DataFrames in and out of job graphs: the only part that knows Spark.

    from penstock import bridge

    with bridge.spark_session("my-app", executors=2) as spark:
        stream = bridge.from_spark(env, spark.read.parquet("orders"))
        counts = bridge.to_spark(stream.map(...), spark)

`__init__.pyi` lists the public names. PySpark is imported when it is needed, so this module can be imported
without it. Each name is loaded when it is first asked for: depots and Spark's Python workers need none of
them.
"""

from __future__ import annotations

from penstock.runtime.misspelt_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
