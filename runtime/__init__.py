"""Penstock's public names: `from penstock.runtime import StreamEnvironment`.

Every name is loaded when it is first asked for. That keeps two promises at once: a user finds the graph,
the settings and the connectors in one place, and importing any part of the runtime imports only that part.
Without it the pure parts would pull in `penstock.runtime.io` (files, object stores) through this very file,
and every subtask would pay for modules that it never uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.runtime.config.checkpointing import Checkpointing as Checkpointing
    from penstock.runtime.config.checkpointing import KeepAfter as KeepAfter
    from penstock.runtime.config.checkpointing_mode import CheckpointingMode as CheckpointingMode
    from penstock.runtime.config.job_config import JobConfig as JobConfig
    from penstock.runtime.config.restart import ExponentialBackoff as ExponentialBackoff
    from penstock.runtime.config.restart import FailureRate as FailureRate
    from penstock.runtime.config.restart import FixedDelay as FixedDelay
    from penstock.runtime.config.restart import NoRestart as NoRestart
    from penstock.runtime.errors import ConfigurationError as ConfigurationError
    from penstock.runtime.errors import DeploymentError as DeploymentError
    from penstock.runtime.errors import GraphError as GraphError
    from penstock.runtime.errors import JobCancelledError as JobCancelledError
    from penstock.runtime.errors import JobFailedError as JobFailedError
    from penstock.runtime.errors import JobTimeoutError as JobTimeoutError
    from penstock.runtime.errors import LostInputError as LostInputError
    from penstock.runtime.errors import LostOutputError as LostOutputError
    from penstock.runtime.errors import OperatorError as OperatorError
    from penstock.runtime.errors import PenstockError as PenstockError
    from penstock.runtime.errors import RescaleError as RescaleError
    from penstock.runtime.errors import RestoreError as RestoreError
    from penstock.runtime.errors import SavepointError as SavepointError
    from penstock.runtime.errors import SavepointStillNeededWarning as SavepointStillNeededWarning
    from penstock.runtime.errors import StorageError as StorageError
    from penstock.runtime.errors import SuppressRestartsError as SuppressRestartsError
    from penstock.runtime.graph.collection_source import CollectionSource as CollectionSource
    from penstock.runtime.graph.executor import Executor as Executor
    from penstock.runtime.graph.job_graph import JobGraph as JobGraph
    from penstock.runtime.graph.job_handle import JobHandle as JobHandle
    from penstock.runtime.graph.job_handle import JobResult as JobResult
    from penstock.runtime.graph.job_handle import JobStatistics as JobStatistics
    from penstock.runtime.graph.job_handle import JobStatus as JobStatus
    from penstock.runtime.graph.streams.data_stream import DataStream as DataStream
    from penstock.runtime.graph.streams.keyed_stream import KeyedStream as KeyedStream
    from penstock.runtime.graph.streams.operator_options import OperatorOptions as OperatorOptions
    from penstock.runtime.graph.streams.stream_environment import StreamEnvironment as StreamEnvironment
    from penstock.runtime.graph.streams.windowed_stream import WindowedStream as WindowedStream
    from penstock.runtime.io.connectors.collect_sink import CollectedRows as CollectedRows
    from penstock.runtime.io.connectors.collect_sink import CollectSink as CollectSink
    from penstock.runtime.io.connectors.discard_sink import DiscardSink as DiscardSink
    from penstock.runtime.io.connectors.errors import BadRecordError as BadRecordError
    from penstock.runtime.io.connectors.errors import ConnectorError as ConnectorError
    from penstock.runtime.io.connectors.file_sink import FileSink as FileSink
    from penstock.runtime.io.connectors.file_source import FileSource as FileSource
    from penstock.runtime.io.connectors.generator_source import GeneratorSource as GeneratorSource
    from penstock.runtime.io.state_frames import read_state as read_state
    from penstock.runtime.io.state_frames import write_state as write_state
    from penstock.runtime.operators.on_request import OnRequest as OnRequest
    from penstock.runtime.operators.process_function import KeyedProcessFunction as KeyedProcessFunction
    from penstock.runtime.operators.process_function import RuntimeContext as RuntimeContext
    from penstock.runtime.operators.protocols import ConnectorContext as ConnectorContext
    from penstock.runtime.operators.protocols import DeadLetter as DeadLetter
    from penstock.runtime.operators.protocols import FollowsCheckpoints as FollowsCheckpoints
    from penstock.runtime.operators.protocols import OperatorStatistics as OperatorStatistics
    from penstock.runtime.operators.protocols import Polled as Polled
    from penstock.runtime.operators.protocols import RemovesLeftovers as RemovesLeftovers
    from penstock.runtime.operators.protocols import Sink as Sink
    from penstock.runtime.operators.protocols import SinkWriter as SinkWriter
    from penstock.runtime.operators.protocols import Source as Source
    from penstock.runtime.operators.protocols import SourceReader as SourceReader
    from penstock.runtime.operators.split_enumerator import EnumeratesSplits as EnumeratesSplits
    from penstock.runtime.operators.split_enumerator import SplitEnumerator as SplitEnumerator
    from penstock.runtime.operators.split_enumerator import SplitEnumeratorContext as SplitEnumeratorContext
    from penstock.runtime.operators.window_contents import AggregateFunction as AggregateFunction
    from penstock.runtime.record.elements import ArrowBatch as ArrowBatch
    from penstock.runtime.record.elements import Batch as Batch
    from penstock.runtime.record.elements import RowBatch as RowBatch
    from penstock.runtime.snapshot.permit import CommitPermit as CommitPermit
    from penstock.runtime.state.state_table import ValueState as ValueState
    from penstock.runtime.time.watermark_strategy import WatermarkStrategy as WatermarkStrategy
    from penstock.runtime.time.windows import SlidingEventTimeWindows as SlidingEventTimeWindows
    from penstock.runtime.time.windows import TimeWindow as TimeWindow
    from penstock.runtime.time.windows import TumblingEventTimeWindows as TumblingEventTimeWindows
    from penstock.runtime.time.windows import WindowAssigner as WindowAssigner

#: Where each public name is; the imports above say the same to type checkers.
_HOME: Final = {
    "AggregateFunction": "operators.window_contents",
    "ArrowBatch": "record.elements",
    "BadRecordError": "io.connectors.errors",
    "Batch": "record.elements",
    "Checkpointing": "config.checkpointing",
    "CheckpointingMode": "config.checkpointing_mode",
    "CollectSink": "io.connectors.collect_sink",
    "CollectedRows": "io.connectors.collect_sink",
    "CollectionSource": "graph.collection_source",
    "CommitPermit": "snapshot.permit",
    "ConfigurationError": "errors",
    "ConnectorContext": "operators.protocols",
    "ConnectorError": "io.connectors.errors",
    "DataStream": "graph.streams.data_stream",
    "DeadLetter": "operators.protocols",
    "DeploymentError": "errors",
    "DiscardSink": "io.connectors.discard_sink",
    "EnumeratesSplits": "operators.split_enumerator",
    "Executor": "graph.executor",
    "ExponentialBackoff": "config.restart",
    "FailureRate": "config.restart",
    "FileSink": "io.connectors.file_sink",
    "FileSource": "io.connectors.file_source",
    "FixedDelay": "config.restart",
    "FollowsCheckpoints": "operators.protocols",
    "GeneratorSource": "io.connectors.generator_source",
    "GraphError": "errors",
    "JobCancelledError": "errors",
    "JobConfig": "config.job_config",
    "JobFailedError": "errors",
    "JobGraph": "graph.job_graph",
    "JobHandle": "graph.job_handle",
    "JobResult": "graph.job_handle",
    "JobStatistics": "graph.job_handle",
    "JobStatus": "graph.job_handle",
    "JobTimeoutError": "errors",
    "KeepAfter": "config.checkpointing",
    "KeyedProcessFunction": "operators.process_function",
    "KeyedStream": "graph.streams.keyed_stream",
    "LostInputError": "errors",
    "LostOutputError": "errors",
    "NoRestart": "config.restart",
    "OnRequest": "operators.on_request",
    "OperatorError": "errors",
    "OperatorOptions": "graph.streams.operator_options",
    "OperatorStatistics": "operators.protocols",
    "PenstockError": "errors",
    "Polled": "operators.protocols",
    "RemovesLeftovers": "operators.protocols",
    "RescaleError": "errors",
    "RestoreError": "errors",
    "RowBatch": "record.elements",
    "RuntimeContext": "operators.process_function",
    "SavepointError": "errors",
    "SavepointStillNeededWarning": "errors",
    "Sink": "operators.protocols",
    "SinkWriter": "operators.protocols",
    "SlidingEventTimeWindows": "time.windows",
    "Source": "operators.protocols",
    "SourceReader": "operators.protocols",
    "SplitEnumerator": "operators.split_enumerator",
    "SplitEnumeratorContext": "operators.split_enumerator",
    "StorageError": "errors",
    "StreamEnvironment": "graph.streams.stream_environment",
    "SuppressRestartsError": "errors",
    "TimeWindow": "time.windows",
    "TumblingEventTimeWindows": "time.windows",
    "ValueState": "state.state_table",
    "WatermarkStrategy": "time.watermark_strategy",
    "WindowAssigner": "time.windows",
    "WindowedStream": "graph.streams.windowed_stream",
    "read_state": "io.state_frames",
    "write_state": "io.state_frames",
}

__all__ = [
    "AggregateFunction",
    "ArrowBatch",
    "BadRecordError",
    "Batch",
    "Checkpointing",
    "CheckpointingMode",
    "CollectSink",
    "CollectedRows",
    "CollectionSource",
    "CommitPermit",
    "ConfigurationError",
    "ConnectorContext",
    "ConnectorError",
    "DataStream",
    "DeadLetter",
    "DeploymentError",
    "DiscardSink",
    "EnumeratesSplits",
    "Executor",
    "ExponentialBackoff",
    "FailureRate",
    "FileSink",
    "FileSource",
    "FixedDelay",
    "FollowsCheckpoints",
    "GeneratorSource",
    "GraphError",
    "JobCancelledError",
    "JobConfig",
    "JobFailedError",
    "JobGraph",
    "JobHandle",
    "JobResult",
    "JobStatistics",
    "JobStatus",
    "JobTimeoutError",
    "KeepAfter",
    "KeyedProcessFunction",
    "KeyedStream",
    "LostInputError",
    "LostOutputError",
    "NoRestart",
    "OnRequest",
    "OperatorError",
    "OperatorOptions",
    "OperatorStatistics",
    "PenstockError",
    "Polled",
    "RemovesLeftovers",
    "RescaleError",
    "RestoreError",
    "RowBatch",
    "RuntimeContext",
    "SavepointError",
    "SavepointStillNeededWarning",
    "Sink",
    "SinkWriter",
    "SlidingEventTimeWindows",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "SplitEnumeratorContext",
    "StorageError",
    "StreamEnvironment",
    "SuppressRestartsError",
    "TimeWindow",
    "TumblingEventTimeWindows",
    "ValueState",
    "WatermarkStrategy",
    "WindowAssigner",
    "WindowedStream",
    "read_state",
    "write_state",
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
