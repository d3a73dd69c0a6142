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
    from penstock.bridge.dataframes_in.from_spark import from_spark as from_spark
    from penstock.bridge.dataframes_in.transfer_status import hand_over_statistics as hand_over_statistics
    from penstock.bridge.dataframes_in.transfer_status import wait_for_hand_over as wait_for_hand_over
    from penstock.bridge.ray_data.datasets import from_ray_dataset as from_ray_dataset
    from penstock.bridge.ray_data.datasets import to_ray_dataset as to_ray_dataset
    from penstock.bridge.receive_buffer.messages import DepotStatistics as DepotStatistics
    from penstock.bridge.results_out.spark_results import SparkResults as SparkResults
    from penstock.bridge.results_out.to_spark import to_spark as to_spark
    from penstock.bridge.session.session import spark_session as spark_session
    from penstock.bridge.state.state_frames import read_state as read_state
    from penstock.bridge.state.state_frames import write_state as write_state
    from penstock.bridge.streaming.from_structured_streaming import (
        from_structured_streaming as from_structured_streaming,
    )
    from penstock.bridge.tables.spark_table import SparkTable as SparkTable

#: Where each public name is; the imports above say the same to type checkers.
_HOME: Final = {
    "DepotStatistics": "receive_buffer.messages",
    "SparkResults": "results_out.spark_results",
    "SparkTable": "tables.spark_table",
    "from_ray_dataset": "ray_data.datasets",
    "from_spark": "dataframes_in.from_spark",
    "from_structured_streaming": "streaming.from_structured_streaming",
    "hand_over_statistics": "dataframes_in.transfer_status",
    "read_state": "state.state_frames",
    "spark_session": "session.session",
    "to_ray_dataset": "ray_data.datasets",
    "to_spark": "results_out.to_spark",
    "wait_for_hand_over": "dataframes_in.transfer_status",
    "write_state": "state.state_frames",
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
