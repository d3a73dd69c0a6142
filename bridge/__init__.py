"""Spark DataFrames in and out of job graphs: the only part that knows Spark.

    from penstock import bridge

    with bridge.spark_session("my-app", executors=2) as spark:
        stream = bridge.from_spark(env, spark.read.parquet("orders"))
        counts = bridge.to_spark(stream.map(...), spark)

PySpark is imported when it is needed, so this module can be imported without it. Every name is loaded when it
is first asked for: depots and Spark's Python workers need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.bridge.depot_messages import DepotStatistics as DepotStatistics
    from penstock.bridge.hand_over_status import hand_over_statistics as hand_over_statistics
    from penstock.bridge.hand_over_status import wait_for_hand_over as wait_for_hand_over
    from penstock.bridge.ray_data import from_ray_dataset as from_ray_dataset
    from penstock.bridge.ray_data import to_ray_dataset as to_ray_dataset
    from penstock.bridge.session import spark_session as spark_session
    from penstock.bridge.spark_in import from_spark as from_spark
    from penstock.bridge.spark_out import to_spark as to_spark
    from penstock.bridge.spark_results import SparkResults as SparkResults
    from penstock.bridge.spark_stream_in import from_structured_streaming as from_structured_streaming
    from penstock.bridge.spark_table import SparkTable as SparkTable
    from penstock.bridge.state_frames import read_state as read_state
    from penstock.bridge.state_frames import write_state as write_state

#: Where each public name is; the imports above say the same to type checkers.
_HOME: Final = {
    "DepotStatistics": "depot_messages",
    "SparkResults": "spark_results",
    "SparkTable": "spark_table",
    "from_ray_dataset": "ray_data",
    "from_spark": "spark_in",
    "from_structured_streaming": "spark_stream_in",
    "hand_over_statistics": "hand_over_status",
    "read_state": "state_frames",
    "spark_session": "session",
    "to_ray_dataset": "ray_data",
    "to_spark": "spark_out",
    "wait_for_hand_over": "hand_over_status",
    "write_state": "state_frames",
}

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

__getattr__, __dir__ = lazy_names(__name__, _HOME)
