"""Spark DataFrames in and out of job graphs: the only part that knows Spark.

    from penstock import bridge

    with bridge.spark_session("my-app", executors=2) as spark:
        stream = bridge.from_spark(env, spark.read.parquet("orders"))
        counts = bridge.to_spark(env, stream.map(...), spark)

PySpark is imported when it is needed, so this module can be imported without it.
"""

from penstock.bridge.depot_messages import DepotStatistics
from penstock.bridge.from_spark import from_spark
from penstock.bridge.from_structured_streaming import from_structured_streaming
from penstock.bridge.hand_over_status import hand_over_statistics, wait_for_hand_over
from penstock.bridge.ray_data import from_ray_dataset, to_ray_dataset
from penstock.bridge.session import spark_session
from penstock.bridge.spark_results import SparkResults
from penstock.bridge.spark_table import SparkTable
from penstock.bridge.state_frames import read_state, write_state
from penstock.bridge.to_spark import to_spark

__all__ = [
    "DepotStatistics",
    "SparkResults",
    "SparkTable",
    "from_ray_dataset",
    "from_spark",
    "from_structured_streaming",
    "hand_over_statistics",
    "read_state",
    "spark_session",
    "to_ray_dataset",
    "to_spark",
    "wait_for_hand_over",
    "write_state",
]
