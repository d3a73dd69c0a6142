"""Spark DataFrames in and out of a job, and Structured Streaming. Needs the extra `spark`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.bridge.from_spark import from_spark as from_spark
    from penstock.bridge.from_spark import transfer_statistics as transfer_statistics
    from penstock.bridge.from_spark import wait_for_transfer as wait_for_transfer
    from penstock.bridge.from_structured_streaming import (
        from_structured_streaming as from_structured_streaming,
    )
    from penstock.bridge.receive_buffer_messages import ReceiveBufferStatistics as ReceiveBufferStatistics
    from penstock.bridge.results_out import SparkResults as SparkResults
    from penstock.bridge.results_out import to_spark as to_spark
    from penstock.bridge.session.session import spark_session as spark_session
    from penstock.bridge.spark_table import SparkTable as SparkTable
    from penstock.bridge.state import read_state as read_state
    from penstock.bridge.state import write_state as write_state
    from penstock.bridge.state_table import state_table as state_table
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
