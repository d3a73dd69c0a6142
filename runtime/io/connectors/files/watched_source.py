"""`WatchedFileSource`: a `FileSource` with `watch`, whose enumerator finds new files while the job runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from penstock.runtime.io.connectors.file_formats.csv_reader import CsvFormat
from penstock.runtime.io.connectors.file_formats.json_column_reader import ColumnarJsonFormat
from penstock.runtime.io.connectors.file_formats.splitting import SchemaSplit
from penstock.runtime.io.connectors.files.file_cleaner import FileCleaner
from penstock.runtime.io.connectors.files.file_reader import FileFormat, PartitionedSplit
from penstock.runtime.io.connectors.files.file_source import FileSource
from penstock.runtime.io.connectors.files.folder_watch import FolderWatch
from penstock.runtime.io.connectors.files.watch import Watch
from penstock.runtime.io.connectors.files.watching_enumerator import (
    Learned,
    WatchingEnumerator,
    WatchState,
)
from penstock.runtime.io.connectors.filesystem import FileInfo
from penstock.runtime.operators.source import SplitEnumeratorContext
from penstock.runtime.redaction import without_secrets
from penstock.runtime.trust.data import read_schema

T_co = TypeVar("T_co", covariant=True)

_NO_COLUMNS = bytes(pa.schema([]).serialize().to_pybytes())


@without_secrets
@dataclass(frozen=True)
class WatchedFileSource(FileSource[T_co]):
    """Reads the files of the locations, and then new ones as they come."""

    watch: Watch = field(kw_only=True)

    def __post_init__(self) -> None:
        self.watch.check_archive(self.locations)

    def enumerator(self, context: SplitEnumeratorContext, state: WatchState | None) -> WatchingEnumerator:
        """Make the enumerator, which lists the files again and again."""
        filesystem = self._file_systems()
        return WatchingEnumerator(
            self.watch,
            FolderWatch(self.locations, self.watch, filesystem),
            self,
            FileCleaner(self.locations, self.watch, filesystem, trusts_paths=self.trust_paths),
            context,
            state,
        )

    def divide(
        self, files: Sequence[FileInfo], parallelism: int, learned: Learned
    ) -> tuple[Sequence[Any], Learned, Sequence[str]]:
        """Divide new files into splits, with the columns that the first files have shown."""
        warnings: list[str] = []
        folders = read_schema(learned.folders) if learned.folders else None
        form = self.form if not learned.schema else _with_columns(self.form, learned.schema)
        splits, found = self._divide(files, form, parallelism, warnings, folders)
        shown = next((data for data in map(_schema_of, splits) if data not in (b"", _NO_COLUMNS)), b"")
        schema = learned.schema or shown
        if schema:
            splits = [_with_schema(split, schema) for split in splits]
        now = Learned(schema, bytes(found.serialize().to_pybytes()))
        return splits, now, () if learned.folders else warnings


def _with_columns(form: FileFormat, schema: bytes) -> FileFormat:
    """A format that infers nothing, for dividing files."""
    if isinstance(form, CsvFormat):
        columns = read_schema(schema)
        return replace(form, infers=False, types=dict(zip(columns.names, columns.types, strict=True)))
    if isinstance(form, ColumnarJsonFormat):
        return replace(form, schema=read_schema(schema))
    return form


def _schema_of(split: Any) -> bytes:
    inner = split.split if isinstance(split, PartitionedSplit) else split
    return inner.schema if isinstance(inner, SchemaSplit) else b""


def _with_schema(split: Any, schema: bytes) -> Any:
    if isinstance(split, PartitionedSplit):
        return replace(split, split=_with_schema(split.split, schema))
    return replace(split, schema=schema) if isinstance(split, SchemaSplit) else split
