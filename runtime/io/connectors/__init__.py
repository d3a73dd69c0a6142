"""The built-in sources and sinks; `penstock.runtime.operators.protocols` says how to write your own."""

from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.io.connectors.collect_sink import (
    CollectedRows,
    CollectKey,
    Collector,
    CollectSink,
    InMemoryCollector,
)
from penstock.runtime.io.connectors.discard_sink import DiscardSink
from penstock.runtime.io.connectors.errors import BadRecordError, ConnectorError
from penstock.runtime.io.connectors.file_sink import FileSink
from penstock.runtime.io.connectors.file_sink_writer import PendingFile
from penstock.runtime.io.connectors.file_source import FileSource
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.io.connectors.index_range import IndexRange
from penstock.runtime.io.connectors.splitting import FileSplit, RowGroupSplit

__all__ = [
    "BadRecordError",
    "CollectKey",
    "CollectSink",
    "CollectedRows",
    "CollectionSource",
    "Collector",
    "ConnectorError",
    "DiscardSink",
    "FileInfo",
    "FileSink",
    "FileSource",
    "FileSplit",
    "FileSystem",
    "GeneratorSource",
    "InMemoryCollector",
    "IndexRange",
    "PendingFile",
    "RowGroupSplit",
]
