"""The built-in sources and sinks; `penstock.runtime.operators.protocols` says how to write your own.

Every name is loaded when it is first asked for: the process of a sink needs no sources, nor sinks of another
kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.collect_sink import CollectedRows as CollectedRows
    from penstock.runtime.io.connectors.collect_sink import CollectKey as CollectKey
    from penstock.runtime.io.connectors.collect_sink import Collector as Collector
    from penstock.runtime.io.connectors.collect_sink import CollectSink as CollectSink
    from penstock.runtime.io.connectors.discard_sink import DiscardSink as DiscardSink
    from penstock.runtime.io.connectors.errors import BadRecordError as BadRecordError
    from penstock.runtime.io.connectors.errors import ConnectorError as ConnectorError
    from penstock.runtime.io.connectors.file_sink import FileSink as FileSink
    from penstock.runtime.io.connectors.file_sink_writer import PendingFile as PendingFile
    from penstock.runtime.io.connectors.file_source import FileSource as FileSource
    from penstock.runtime.io.connectors.filesystem import FileInfo as FileInfo
    from penstock.runtime.io.connectors.filesystem import FileSystem as FileSystem
    from penstock.runtime.io.connectors.generator_source import GeneratorSource as GeneratorSource
    from penstock.runtime.io.connectors.index_range import IndexRange as IndexRange
    from penstock.runtime.io.connectors.splitting import FileSplit as FileSplit
    from penstock.runtime.io.connectors.splitting import RowGroupSplit as RowGroupSplit

#: Where each public name is; the imports above say the same to type checkers.
_HOME: Final = {
    "BadRecordError": "errors",
    "CollectKey": "collect_sink",
    "CollectSink": "collect_sink",
    "CollectedRows": "collect_sink",
    "Collector": "collect_sink",
    "ConnectorError": "errors",
    "DiscardSink": "discard_sink",
    "FileInfo": "filesystem",
    "FileSink": "file_sink",
    "FileSource": "file_source",
    "FileSplit": "splitting",
    "FileSystem": "filesystem",
    "GeneratorSource": "generator_source",
    "IndexRange": "index_range",
    "PendingFile": "file_sink_writer",
    "RowGroupSplit": "splitting",
}

__all__ = [
    "BadRecordError",
    "CollectKey",
    "CollectSink",
    "CollectedRows",
    "Collector",
    "ConnectorError",
    "DiscardSink",
    "FileInfo",
    "FileSink",
    "FileSource",
    "FileSplit",
    "FileSystem",
    "GeneratorSource",
    "IndexRange",
    "PendingFile",
    "RowGroupSplit",
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
