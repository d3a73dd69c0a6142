"""`Learned`: the columns of a watched folder. Its first files determine them for all later files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.runtime.io.connectors.file_formats.csv_reader import CsvFormat
from penstock.runtime.io.connectors.file_formats.json_column_reader import ColumnarJsonFormat
from penstock.runtime.io.connectors.file_formats.splitting import SchemaSplit
from penstock.runtime.io.connectors.files.file_reader import FileFormat, PartitionedSplit
from penstock.runtime.trust.data import read_schema

_NO_COLUMNS = bytes(pa.schema([]).serialize().to_pybytes())


@dataclass(frozen=True, slots=True)
class Learned:
    """The columns that files have shown so far: serialized Arrow schemas, empty before the first files.

    Attributes:
        schema: Columns of the files, for formats that infer them.
        folders: Columns of folders `name=value`; later files may add columns.
    """

    schema: bytes = b""
    folders: bytes = b""

    @property
    def folder_columns(self) -> pa.Schema | None:
        """`None` before the first files."""
        return read_schema(self.folders) if self.folders else None

    def applied_to(self, form: FileFormat) -> FileFormat:
        """Return a format for splitting files that does not infer known columns again."""
        if not self.schema:
            return form
        if isinstance(form, CsvFormat):
            columns = read_schema(self.schema)
            return replace(form, infers=False, types=dict(zip(columns.names, columns.types, strict=True)))
        return (
            replace(form, schema=read_schema(self.schema)) if isinstance(form, ColumnarJsonFormat) else form
        )

    def extended(self, splits: Iterable[Any], folders: pa.Schema) -> Learned:
        """Learn the columns of splits if there were none before, and new folder columns."""
        shown = (data for data in map(_schema_of, splits) if data not in (b"", _NO_COLUMNS))
        return Learned(self.schema or next(shown, b""), bytes(folders.serialize().to_pybytes()))

    def given_to(self, splits: Sequence[Any]) -> Sequence[Any]:
        """Return the splits with the columns that were learned."""
        return [_with_schema(split, self.schema) for split in splits] if self.schema else splits


def _schema_of(split: Any) -> bytes:
    inner = split.split if isinstance(split, PartitionedSplit) else split
    return inner.schema if isinstance(inner, SchemaSplit) else b""


def _with_schema(split: Any, schema: bytes) -> Any:
    if isinstance(split, PartitionedSplit):
        return replace(split, split=_with_schema(split.split, schema))
    return replace(split, schema=schema) if isinstance(split, SchemaSplit) else split
