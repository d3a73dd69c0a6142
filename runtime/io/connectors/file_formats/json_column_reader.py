"""Reads JSON lines as Arrow batches; each line is one object.

Arrow parses blocks of whole lines with about the requested number of rows; the position is the byte after a
block. Arrow's parser ignores line ends. So the lines of a block must begin with `{` and end with `}`, and
there must be as many lines as objects. A block that fails these checks is halved repeatedly to find the bad
lines.

The user gives the columns, or they are inferred from a sample when the files are first listed. Every
split contains the columns, so a restored job continues with the inferred types. Strings that look like times
stay strings, as in rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.arrow_batches import arrow_rows
from penstock.runtime.io.connectors.errors import BadRecords, OnError
from penstock.runtime.io.connectors.file_formats.line_blocks import (
    LineBlocks,
    head_of,
    offset_of_line,
    some_of,
)
from penstock.runtime.io.connectors.file_formats.lines import line_splits, warnings_of_arrays
from penstock.runtime.io.connectors.file_formats.splitting import (
    FileSplit,
    SchemaSplit,
    open_for_lines,
    with_schema,
)
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.formats.json_columns import BLANK, JsonColumns, changed_field
from penstock.runtime.io.formats.json_learning import learned_schema
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.trust.data import read_schema

#: Minimum and maximum bytes of a block; a line may be longer.
_LEAST_BYTES: Final = 4 * 1024
_MOST_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ColumnarJsonFormat:
    """A format that reads JSON lines as columns.

    Attributes:
        split_size: Maximum size of a range, in bytes.
        schema: The wanted columns; `None` infers all from a sample.
        stored_as: Encoding of the files, if they are recoded to UTF-8.
    """

    encoding: str
    split_size: int
    on_error: OnError
    schema: pa.Schema | None = None
    stored_as: str | None = None

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """Cut the files into splits; each split holds the columns of all files."""
        warnings_of_arrays(files, filesystem, self.encoding, self.stored_as, refuse=True)
        schema = self._inferred(files, filesystem) if self.schema is None else self.schema
        data = schema.serialize().to_pybytes()
        splits = line_splits(files, self.split_size, parallelism, self.stored_as)
        return [with_schema(split, data) for split in splits]

    def open(self, split: FileSplit, filesystem: FileSystem) -> ColumnarJsonReader:
        if not isinstance(split, SchemaSplit):
            msg = (
                f"{split.path}: the snapshot was taken when this source read rows, so it names no columns. "
                'Start with batch_format="rows" as before, or without the snapshot'
            )
            raise ConnectorError(msg)
        handle = open_for_lines(filesystem, split.path, split.size, self.stored_as)
        return ColumnarJsonReader(handle, split, self)

    def _sampled(self, info: FileInfo, filesystem: FileSystem) -> Iterator[tuple[bytes, dict[str, Any]]]:
        head, _ = head_of(info, filesystem, self.encoding, stored_as=self.stored_as)
        return _objects(head, self.encoding)

    def _inferred(self, files: Sequence[FileInfo], filesystem: FileSystem) -> pa.Schema:
        sampled = some_of(files)
        objects = [(line, value) for info in sampled for line, value in self._sampled(info, filesystem)]
        where = sampled[0].path if sampled else "the files"
        if not objects:
            return pa.schema([])
        try:
            found = learned_schema([line for line, _ in objects], skips_bad=self.on_error != "fail")
        except pa.ArrowException as error:
            msg = (
                f"{where}: the columns can't be inferred from the first lines of the files: {error}. Give "
                "FileSource.json a schema="
            )
            raise ConnectorError(msg) from error
        for _, value in objects if self.on_error == "fail" else ():
            if (wide := changed_field(value, found)) is not None:
                name, number = wide
                msg = (
                    f"{where}: column {name!r} would have floats, which round integers such as {number}. "
                    "Give FileSource.json a schema="
                )
                raise ConnectorError(msg)
        return found


class ColumnarJsonReader:
    """Reads one split as Arrow batches; `close` closes the file."""

    def __init__(self, handle: InputFile, split: SchemaSplit, form: ColumnarJsonFormat) -> None:
        self._handle = handle
        self._split = split
        self._format = form
        # The schema of the program may be newer than that of the snapshot.
        self._columns = (
            JsonColumns(read_schema(split.schema), "error", form.encoding)
            if form.schema is None
            else JsonColumns(form.schema, "ignore", form.encoding)
        )
        self._blocks = LineBlocks(handle, split, strip_bom=form.encoding == "utf-8", block_bytes=_LEAST_BYTES)
        self._row_bytes = 128.0

    def read(self, max_rows: int) -> Polled[Any]:
        wanted = int(self._row_bytes * arrow_rows(max_rows))
        self._blocks.block_bytes = min(max(wanted, _LEAST_BYTES), _MOST_BYTES)
        if not self._blocks.find_start():
            return Polled()
        block = self._blocks.next()
        if block is None:
            return Polled(finished=True)
        start, raw = block
        batch = self._parsed(raw)
        if batch is not None:
            self._row_bytes = len(raw) / max(1, batch.num_rows)
            return Polled(ArrowBatch(batch)) if batch.num_rows else Polled()
        return self._read_in_parts(start, raw)

    def position(self) -> FileSplit:
        return replace(self._split, position=self._blocks.offset)

    def close(self) -> None:
        self._handle.close()

    def _parsed(self, raw: bytes) -> pa.RecordBatch | None:
        """Parse whole lines; return `None` unless each line is one object that fits the columns."""
        text = raw.strip(BLANK)
        if not text:
            return self._columns.empty
        lines = text.count(b"\n") + 1
        if text.count(b"}\n{") + text.count(b"}\r\n{") != lines - 1:
            return None
        return self._columns.parsed(text, lines, lambda: text.split(b"\n"))

    def _read_in_parts(self, start: int, raw: bytes) -> Polled[Any]:
        bad = BadRecords(self._format.on_error)
        lines = raw.split(b"\n")
        present = [index for index, line in enumerate(lines) if line.strip(BLANK)]
        batches: list[pa.RecordBatch] = []
        for first, last in self._halved(present, lines, batches):
            assert last == first + 1, "a bad part is one line"
            line = lines[present[first]].rstrip(b"\r")
            offset = start + offset_of_line(raw, present[first])
            record, why = self._columns.reason(line, "the line")
            bad.report(record, why, f"{self._split.path}:{offset}", partial(self._blocks.line_of, offset))
        whole = pa.Table.from_batches(batches, self._columns.schema).combine_chunks().to_batches()
        return bad.polled(ArrowBatch(whole[0]) if whole else None)

    def _halved(
        self, present: Sequence[int], lines: Sequence[bytes], batches: list[pa.RecordBatch]
    ) -> Iterator[tuple[int, int]]:
        """Collect the batches of good lines, in order; yield the ranges of bad lines."""
        parts = [(0, len(present))] if present else []
        while parts:
            first, last = parts.pop()
            batch = self._parsed(b"\n".join(lines[index] for index in present[first:last]))
            if batch is not None:
                batches.append(batch)
            elif last - first == 1:
                yield first, last
            else:
                middle = (first + last) // 2
                parts += [(middle, last), (first, middle)]


def _objects(head: bytes, encoding: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for line in head.split(b"\n"):
        try:
            text = line.decode(encoding)
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the reader reports this line
        if isinstance(value, dict):
            yield text.encode("utf-8"), value
