"""Stateful stream processing for Python on Ray: the names that a program needs.

Programs begin with `from penstock import StreamEnvironment`. Other public names are in modules by subject:

- `penstock.windows`: window assigners, triggers, evictors;
- `penstock.patterns`: patterns over the records of a key;
- `penstock.aggregates`: aggregates of columns;
- `penstock.state`: operator state, and the state of a savepoint as tables;
- `penstock.connected`: functions of two connected streams;
- `penstock.operators`: for authors of operators;
- `penstock.kafka`: source and sink of Kafka topics;
- `penstock.delta`, `penstock.iceberg`: sources and sinks of Delta Lake and Iceberg tables;
- `penstock.sql`: source, sink and lookups for PostgreSQL and SQLite;
- `penstock.files`: settings of `FileSource`;
- `penstock.redis`, `penstock.nats`, `penstock.mqtt`: sources of Redis Streams, NATS JetStream and MQTT;
- `penstock.http`: a source of HTTP requests, and a sink that sends them;
- `penstock.formats`: formats that encode records as bytes, and decode them;
- `penstock.connectors`: for authors of sources and sinks;
- `penstock.testing`: harnesses, and the simulation of a whole job;
- `penstock.cluster`: a local cluster, and reports of jobs;
- `penstock.spark`, `penstock.ray_data`: DataFrames and datasets in and out.

Nothing else is public. `runtime`, `actors` and `bridge` are the implementation. A name is loaded when it is
first used, so a program pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock._version import __version__ as __version__
    from penstock.actors.client.jobs import job as job
    from penstock.actors.client.jobs import jobs as jobs
    from penstock.runtime.config.checkpointing import Alignment as Alignment
    from penstock.runtime.config.checkpointing import Checkpointing as Checkpointing
    from penstock.runtime.config.checkpointing import CheckpointingMode as CheckpointingMode
    from penstock.runtime.config.checkpointing import KeepAfter as KeepAfter
    from penstock.runtime.config.job_config import AdvancedConfig as AdvancedConfig
    from penstock.runtime.config.job_config import HeapState as HeapState
    from penstock.runtime.config.job_config import JobConfig as JobConfig
    from penstock.runtime.config.job_config import RocksDB as RocksDB
    from penstock.runtime.config.restart import ExponentialBackoff as ExponentialBackoff
    from penstock.runtime.config.restart import FailureRate as FailureRate
    from penstock.runtime.config.restart import FixedDelay as FixedDelay
    from penstock.runtime.config.restart import NoRestart as NoRestart
    from penstock.runtime.errors import BadInputError as BadInputError
    from penstock.runtime.errors import BadRecordError as BadRecordError
    from penstock.runtime.errors import CheckpointError as CheckpointError
    from penstock.runtime.errors import ConfigurationError as ConfigurationError
    from penstock.runtime.errors import ConnectorError as ConnectorError
    from penstock.runtime.errors import DeploymentError as DeploymentError
    from penstock.runtime.errors import GraphError as GraphError
    from penstock.runtime.errors import JobCancelledError as JobCancelledError
    from penstock.runtime.errors import JobFailedError as JobFailedError
    from penstock.runtime.errors import JobTimeoutError as JobTimeoutError
    from penstock.runtime.errors import LostInputError as LostInputError
    from penstock.runtime.errors import LostOutputError as LostOutputError
    from penstock.runtime.errors import OperatorError as OperatorError
    from penstock.runtime.errors import PenstockError as PenstockError
    from penstock.runtime.errors import RequestLostError as RequestLostError
    from penstock.runtime.errors import RescaleError as RescaleError
    from penstock.runtime.errors import RestoreError as RestoreError
    from penstock.runtime.errors import SavepointError as SavepointError
    from penstock.runtime.errors import SavepointStillNeededWarning as SavepointStillNeededWarning
    from penstock.runtime.errors import StorageError as StorageError
    from penstock.runtime.errors import SuppressRestartsError as SuppressRestartsError
    from penstock.runtime.graph.collection_source import CollectionSource as CollectionSource
    from penstock.runtime.graph.executor import CheckpointResult as CheckpointResult
    from penstock.runtime.graph.executor import JobHandle as JobHandle
    from penstock.runtime.graph.executor import JobResult as JobResult
    from penstock.runtime.graph.executor import JobStatus as JobStatus
    from penstock.runtime.graph.streams.data_stream import DataStream as DataStream
    from penstock.runtime.graph.streams.keyed_stream import KeyedStream as KeyedStream
    from penstock.runtime.graph.streams.stream_environment import StreamEnvironment as StreamEnvironment
    from penstock.runtime.graph.streams.windowed_stream import AllWindowedStream as AllWindowedStream
    from penstock.runtime.graph.streams.windowed_stream import WindowedStream as WindowedStream
    from penstock.runtime.io.connectors.collect_sink import CollectSink as CollectSink
    from penstock.runtime.io.connectors.collect_sink import DiscardSink as DiscardSink
    from penstock.runtime.io.connectors.files.file_sink import FileSink as FileSink
    from penstock.runtime.io.connectors.files.file_source import FileSource as FileSource
    from penstock.runtime.io.connectors.generator_source import GeneratorSource as GeneratorSource
    from penstock.runtime.operators.functions.async_call import Retry as Retry
    from penstock.runtime.operators.functions.async_call import async_call as async_call
    from penstock.runtime.operators.functions.keyed_folds import AggregateFunction as AggregateFunction
    from penstock.runtime.operators.functions.process_function import FunctionContext as FunctionContext
    from penstock.runtime.operators.functions.process_function import (
        KeyedProcessFunction as KeyedProcessFunction,
    )
    from penstock.runtime.operators.functions.process_function import ProcessFunction as ProcessFunction
    from penstock.runtime.operators.functions.process_function import RuntimeContext as RuntimeContext
    from penstock.runtime.operators.hybrid_source import HybridSource as HybridSource
    from penstock.runtime.operators.user_code.function_class import OutputTag as OutputTag
    from penstock.runtime.state.keyed_states import AggregatingState as AggregatingState
    from penstock.runtime.state.keyed_states import ListState as ListState
    from penstock.runtime.state.keyed_states import MapState as MapState
    from penstock.runtime.state.keyed_states import ReducingState as ReducingState
    from penstock.runtime.state.keyed_states import ValueState as ValueState
    from penstock.runtime.state.time_to_live import StateTtl as StateTtl
    from penstock.runtime.time.watermarks import WatermarkStrategy as WatermarkStrategy
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
