"""Spark DataFrames in and out of job graphs: the only part that knows Spark.

    from penstock import bridge

    with bridge.spark_session("my-app", executors=2) as spark:
        stream = bridge.from_spark(env, spark.read.parquet("orders"))

PySpark is imported when it is needed, so this module can be imported without it.
"""

from penstock.bridge.depot import DepotStatistics
from penstock.bridge.from_spark import from_spark
from penstock.bridge.hand_over_status import hand_over_statistics, wait_for_hand_over
from penstock.bridge.session import spark_session

__all__ = ["DepotStatistics", "from_spark", "hand_over_statistics", "spark_session", "wait_for_hand_over"]
