"""Names of Penstock's own classes in stored data: they stay the same when a class moves.

A record or an enum is written with the name of its class, so that a reader finds the class again. The name of
a user's class is its module and its qualified name. A class of Penstock has a short name, and `penstock`
replaces the module. So records and enums in snapshots name no module of Penstock, and a module can move
without breaking them. An entry of `HOMES` changes when its class moves or is renamed; the name never changes.

A record or an enum of Penstock without a name here can't be written. All public records and enums have a
name. The table is fixed. So the module of an entry is imported even where data must not choose which modules
are imported.
"""

from __future__ import annotations

from typing import Final

#: Written in data instead of the module of one of Penstock's classes.
OURS: Final = "penstock"

#: Current location of each class.
HOMES: Final[dict[str, str]] = {
    "AdvancedConfig": "penstock.runtime.config.job_config.AdvancedConfig",
    "AfterMatchSkipStrategy": "penstock.runtime.operators.patterns.pattern.AfterMatchSkipStrategy",
    "Alignment": "penstock.runtime.config.checkpointing.Alignment",
    "ApproxCountDistinct": "penstock.runtime.operators.aggregation.count_distinct.ApproxCountDistinct",
    "ArrowBatch": "penstock.runtime.record.elements.ArrowBatch",
    "AsyncCall": "penstock.runtime.operators.functions.async_call.AsyncCall",
    "Avro": "penstock.runtime.io.formats.avro.Avro",
    "BadInputError": "penstock.runtime.errors.BadInputError",
    "BadRecordError": "penstock.runtime.errors.BadRecordError",
    "BlockSplit": "penstock.bridge.ray_data.BlockSplit",
    "CdcChunk": "penstock.runtime.io.connectors.sql.cdc.split.SnapshotChunk",
    "CdcSplit": "penstock.runtime.io.connectors.sql.cdc.split.CdcSplit",
    "CdcTable": "penstock.runtime.io.connectors.sql.cdc.split.CdcTable",
    "CheckpointResult": "penstock.runtime.graph.executor.CheckpointResult",
    "Checkpointing": "penstock.runtime.config.checkpointing.Checkpointing",
    "CheckpointingMode": "penstock.runtime.config.checkpointing.CheckpointingMode",
    "CollectSink": "penstock.runtime.io.connectors.collect_sink.CollectSink",
    "CollectedRows": "penstock.runtime.io.connectors.collect_sink.CollectedRows",
    "CollectionSource": "penstock.runtime.graph.collection_source.CollectionSource",
    "CommitPermit": "penstock.runtime.snapshot.completed_checkpoint.CommitPermit",
    "ConfigurationError": "penstock.runtime.errors.ConfigurationError",
    "ConnectorContext": "penstock.runtime.operators.source.ConnectorContext",
    "ConnectorError": "penstock.runtime.errors.ConnectorError",
    "Count": "penstock.runtime.operators.aggregation.functions.Count",
    "CountDistinct": "penstock.runtime.operators.aggregation.count_distinct.CountDistinct",
    "CsvLines": "penstock.runtime.io.connectors.file_formats.csv_lines.CsvLines",
    "DeadLetter": "penstock.runtime.operators.source.DeadLetter",
    "Decoded": "penstock.runtime.io.formats.format.Decoded",
    "DeltaCommit": "penstock.runtime.io.connectors.delta.committer.DeltaCommit",
    "DeltaLoggedFile": "penstock.runtime.io.connectors.delta.log.LoggedFile",
    "DeltaSink": "penstock.runtime.io.connectors.delta.sink.DeltaSink",
    "DeltaSource": "penstock.runtime.io.connectors.delta.source.DeltaSource",
    "DeltaSplit": "penstock.runtime.io.connectors.delta.reader.DeltaSplit",
    "DeltaStagedFile": "penstock.runtime.io.connectors.delta.staging.StagedFile",
    "DeploymentError": "penstock.runtime.errors.DeploymentError",
    "DepotStatistics": "penstock.bridge.receive_buffer_messages.ReceiveBufferStatistics",
    "DiscardSink": "penstock.runtime.io.connectors.collect_sink.DiscardSink",
    "EdgeRecord": "penstock.actors.shared.edge_records.EdgeRecord",
    "EndOfHistory": "penstock.runtime.operators.hybrid_source.EndOfHistory",
    "ExponentialBackoff": "penstock.runtime.config.restart.ExponentialBackoff",
    "FailureRate": "penstock.runtime.config.restart.FailureRate",
    "FileInfo": "penstock.runtime.io.connectors.filesystem.FileInfo",
    "FileSink": "penstock.runtime.io.connectors.files.file_sink.FileSink",
    "FileSource": "penstock.runtime.io.connectors.files.file_source.FileSource",
    "FileSplit": "penstock.runtime.io.connectors.file_formats.splitting.FileSplit",
    "First": "penstock.runtime.operators.aggregation.functions.First",
    "FixedDelay": "penstock.runtime.config.restart.FixedDelay",
    "FolderWatch": "penstock.runtime.io.connectors.files.folder_watch.FolderWatch",
    "GaugeStatistics": "penstock.runtime.operators.metrics.GaugeStatistics",
    "GeneratorSource": "penstock.runtime.io.connectors.generator_source.GeneratorSource",
    "GraphError": "penstock.runtime.errors.GraphError",
    "GraphInfo": "penstock.runtime.graph.graph_info.GraphInfo",
    "HeapState": "penstock.runtime.config.job_config.HeapState",
    "HistogramStatistics": "penstock.runtime.operators.metrics.HistogramStatistics",
    "HttpSink": "penstock.runtime.io.connectors.http_sink.HttpSink",
    "IcebergCommit": "penstock.runtime.io.connectors.iceberg.committer.IcebergCommit",
    "IcebergPlannedFile": "penstock.runtime.io.connectors.iceberg.reader.PlannedFile",
    "IcebergSink": "penstock.runtime.io.connectors.iceberg.sink.IcebergSink",
    "IcebergSource": "penstock.runtime.io.connectors.iceberg.source.IcebergSource",
    "IcebergSplit": "penstock.runtime.io.connectors.iceberg.reader.IcebergSplit",
    "IcebergStagedFile": "penstock.runtime.io.connectors.iceberg.data_files.StagedDataFile",
    "IcebergStagedRows": "penstock.runtime.io.connectors.iceberg.staged_rows.StagedRows",
    "IndexRange": "penstock.runtime.io.connectors.generator_source.IndexRange",
    "JetStreamSource": "penstock.runtime.io.connectors.jetstream.JetStreamSource",
    "JetStreamSplit": "penstock.runtime.io.connectors.jetstream.JetStreamSplit",
    "JobCancelledError": "penstock.runtime.errors.JobCancelledError",
    "JobConfig": "penstock.runtime.config.job_config.JobConfig",
    "JobFailedError": "penstock.runtime.errors.JobFailedError",
    "JobGraph": "penstock.runtime.graph.job_graph.JobGraph",
    "JobMasterProcess": "penstock.actors.shared.job_report.JobMasterProcess",
    "JobReport": "penstock.actors.shared.job_report.JobReport",
    "JobResult": "penstock.runtime.graph.executor.JobResult",
    "JobStatistics": "penstock.runtime.graph.executor.JobStatistics",
    "JobStatus": "penstock.runtime.graph.executor.JobStatus",
    "JobTimeoutError": "penstock.runtime.errors.JobTimeoutError",
    "Json": "penstock.runtime.io.formats.json_format.Json",
    "JsonSchema": "penstock.runtime.io.formats.json_schema.JsonSchema",
    "KafkaCommittable": "penstock.runtime.io.connectors.kafka.transactions.KafkaCommittable",
    "KafkaPartitionSplit": "penstock.runtime.io.connectors.kafka.partitions.KafkaPartitionSplit",
    "KafkaRecord": "penstock.runtime.io.connectors.kafka.simulated.kafka_world.KafkaRecord",
    "KafkaSink": "penstock.runtime.io.connectors.kafka.sink.KafkaSink",
    "KafkaSource": "penstock.runtime.io.connectors.kafka.source.KafkaSource",
    "KeepAfter": "penstock.runtime.config.checkpointing.KeepAfter",
    "KnownJob": "penstock.actors.client.jobs.KnownJob",
    "Last": "penstock.runtime.operators.aggregation.functions.Last",
    "LastCommit": "penstock.runtime.operators.last_commit.LastCommit",
    "LogLine": "penstock.actors.client.logs.LogLine",
    "LostInputError": "penstock.runtime.errors.LostInputError",
    "LostOutputError": "penstock.runtime.errors.LostOutputError",
    "Max": "penstock.runtime.operators.aggregation.functions.Max",
    "Mean": "penstock.runtime.operators.aggregation.functions.Mean",
    "Min": "penstock.runtime.operators.aggregation.functions.Min",
    "MqttSource": "penstock.runtime.io.connectors.mqtt.MqttSource",
    "MqttSplit": "penstock.runtime.io.connectors.mqtt.MqttSplit",
    "NeededColumns": "penstock.runtime.operators.source.NeededColumns",
    "NoRestart": "penstock.runtime.config.restart.NoRestart",
    "OffsetsInitializer": "penstock.runtime.io.connectors.kafka.offsets.OffsetsInitializer",
    "OnRequest": "penstock.runtime.operators.source_coordinator.OnRequest",
    "OperatorContext": "penstock.runtime.operators.operator.OperatorContext",
    "OperatorError": "penstock.runtime.errors.OperatorError",
    "OperatorInfo": "penstock.runtime.graph.graph_info.OperatorInfo",
    "OperatorStatistics": "penstock.runtime.operators.metrics.OperatorStatistics",
    "PartitionedSplit": "penstock.runtime.io.connectors.files.file_reader.PartitionedSplit",
    "Pattern": "penstock.runtime.operators.patterns.pattern.Pattern",
    "PendingFile": "penstock.runtime.io.connectors.files.file_sink_writer.PendingFile",
    "PenstockError": "penstock.runtime.errors.PenstockError",
    "Polled": "penstock.runtime.operators.source.Polled",
    "PostgresCdcSource": "penstock.runtime.io.connectors.sql.cdc.source.PostgresCdcSource",
    "Protobuf": "penstock.runtime.io.formats.protobuf.Protobuf",
    "Raw": "penstock.runtime.io.formats.plain.Raw",
    "RawState": "penstock.runtime.operators.operator_state.RawState",
    "RedisStreamSource": "penstock.runtime.io.connectors.redis_streams.RedisStreamSource",
    "RedisStreamSplit": "penstock.runtime.io.connectors.redis_streams.RedisStreamSplit",
    "RefusedRecordError": "penstock.runtime.io.connectors.errors.RefusedRecordError",
    "RescaleError": "penstock.runtime.errors.RescaleError",
    "RestoreError": "penstock.runtime.errors.RestoreError",
    "Retry": "penstock.runtime.operators.functions.async_call.Retry",
    "RocksDB": "penstock.runtime.config.job_config.RocksDB",
    "RowBatch": "penstock.runtime.record.elements.RowBatch",
    "RowGroupSplit": "penstock.runtime.io.connectors.file_formats.splitting.RowGroupSplit",
    "SavepointError": "penstock.runtime.errors.SavepointError",
    "SavepointStillNeededWarning": "penstock.runtime.errors.SavepointStillNeededWarning",
    "SchemaRegistry": "penstock.runtime.io.formats.registry.SchemaRegistry",
    "SchemaSplit": "penstock.runtime.io.connectors.file_formats.splitting.SchemaSplit",
    "Share": "penstock.bridge.spark_source.BufferSplit",
    "SinkContext": "penstock.runtime.operators.sinks.SinkContext",
    "SlidingEventTimeWindows": "penstock.runtime.time.windows.SlidingEventTimeWindows",
    "SourceLag": "penstock.runtime.operators.lag.SourceLag",
    "SparkTable": "penstock.bridge.spark_table.SparkTable",
    "SplitLag": "penstock.runtime.operators.lag.SplitLag",
    "SplitProgress": "penstock.runtime.operators.source.SplitProgress",
    "SqlCommit": "penstock.runtime.io.connectors.sql.committer.SqlCommit",
    "SqlLookup": "penstock.runtime.io.connectors.sql.lookup.SqlLookup",
    "SqlSink": "penstock.runtime.io.connectors.sql.sink.SqlSink",
    "SqlSource": "penstock.runtime.io.connectors.sql.source.SqlSource",
    "SqlSplit": "penstock.runtime.io.connectors.sql.reader.SqlSplit",
    "SqlStage": "penstock.runtime.io.connectors.sql.database.Stage",
    "StateTtl": "penstock.runtime.state.time_to_live.StateTtl",
    "StdDev": "penstock.runtime.operators.aggregation.functions.StdDev",
    "StorageError": "penstock.runtime.errors.StorageError",
    "SubtaskProcess": "penstock.actors.shared.job_report.SubtaskProcess",
    "Sum": "penstock.runtime.operators.aggregation.sums.Sum",
    "SuppressRestartsError": "penstock.runtime.errors.SuppressRestartsError",
    "Text": "penstock.runtime.io.formats.plain.Text",
    "TimeWindow": "penstock.runtime.time.windows.TimeWindow",
    "TimestampedValue": "penstock.runtime.operators.windows.triggers.TimestampedValue",
    "TriggerResult": "penstock.runtime.operators.windows.trigger.TriggerResult",
    "TumblingEventTimeWindows": "penstock.runtime.time.windows.TumblingEventTimeWindows",
    "VersionLag": "penstock.runtime.operators.lag.VersionLag",
    "Watermark": "penstock.runtime.record.elements.Watermark",
    "WatermarkStrategy": "penstock.runtime.time.watermarks.WatermarkStrategy",
    "WebhookSource": "penstock.runtime.io.connectors.webhook.WebhookSource",
    "WebhookSplit": "penstock.runtime.io.connectors.webhook.WebhookSplit",
}

_NAMES: Final = {home: name for name, home in HOMES.items()}
#: The testing package; its classes have no short names and count as a user's.
_TESTING: Final = "penstock.runtime.testing."


def name_in_data(cls: type) -> str | None:
    """The name of a class of Penstock in data; `None` for every other class."""
    return _NAMES.get(f"{cls.__module__}.{cls.__qualname__}")


def home_of(module: str, qualname: str) -> tuple[str, str] | None:
    """Current module and name of a class of Penstock; `None` for any other class."""
    home = HOMES.get(qualname) if module == OURS else None
    if home is None:
        return None
    now, _, name = home.rpartition(".")
    return now, name


def is_ours(module: str) -> bool:
    """Return whether a module is one of Penstock's; the testing package counts as a user's."""
    return f"{module}.".startswith(f"{OURS}.") and not module.startswith(_TESTING)


def name_in_hash(cls: type) -> str:
    """The name of a class in the hash of a key; Penstock's names never change, because hashes are stored."""
    name = name_in_data(cls)
    return f"{cls.__module__}.{cls.__qualname__}" if name is None else f"{OURS}:{name}"
