"""JSON lines: one JSON value per line.

A slice of lines is parsed by one call. The lines are joined into one JSON array with `-Infinity` between
them, which parses to a marker object; only if the markers stand exactly at every second place did each line
hold one complete value (a line like `1, 2` or `[1` would shift or swallow a marker). Everything else, also
text that holds `-Infinity` itself, is parsed line by line. This is twice as fast as a call per line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.io.connectors.bad_records import BadRecords, OnError
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem
from penstock.runtime.io.connectors.line_blocks import BLOCK_BYTES
from penstock.runtime.io.connectors.line_cursor import LineCursor
from penstock.runtime.io.connectors.opening import open_for_lines
from penstock.runtime.io.connectors.splitting import FileSplit
from penstock.runtime.io.connectors.text import line_splits, report_undecodable
from penstock.runtime.operators.protocols import Polled
from penstock.runtime.record.elements import RowBatch

_MARKER: Final = object()
_CONSTANTS: Final = {"-Infinity": _MARKER, "NaN": math.nan, "Infinity": math.inf}
_parse_marked: Final = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__).decode
_parse_one: Final = json.JSONDecoder().decode


@dataclass(frozen=True, slots=True)
class JsonLinesFormat:
    """How JSON lines are read.

    Attributes:
        encoding: From `checked_encoding`.
        split_size: Largest range, in bytes.
        on_error: What is done with a line that is no JSON.
        block_bytes: Bytes asked for by one read.
    """

    encoding: str
    split_size: int
    on_error: OnError
    block_bytes: int = BLOCK_BYTES

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """Cut the files."""
        return line_splits(files, self.split_size, parallelism)

    def open(self, split: FileSplit, filesystem: FileSystem) -> JsonLinesReader:
        """Open one split."""
        handle = open_for_lines(filesystem, split.path, split.size)
        return JsonLinesReader(LineCursor(handle, split, self.encoding, self.block_bytes), self.on_error)


class JsonLinesReader:
    """Reads the values of one split; blank lines are no records."""

    def __init__(self, cursor: LineCursor, on_error: OnError) -> None:
        self._cursor = cursor
        self._on_error: OnError = on_error

    def read(self, max_rows: int) -> Polled[Any]:
        """The next values; `finished` at the end of the split."""
        if not self._cursor.find_start():
            return Polled()
        lines = self._cursor.take(max_rows)
        if lines is None:
            return Polled(finished=True)
        if not self._cursor.undecodable:
            values = parse_together(lines)  # type: ignore[arg-type]
            if values is not None:
                return Polled(RowBatch(values))
        return self._read_one_by_one(lines)

    def position(self) -> FileSplit:
        """The split with how far it was read."""
        return self._cursor.position()

    def close(self) -> None:
        """Close the file."""
        self._cursor.close()

    def _read_one_by_one(self, lines: Sequence[str | bytes]) -> Polled[Any]:
        bad = BadRecords(self._on_error)
        values = []
        for index, line in enumerate(lines):
            if isinstance(line, bytes):
                report_undecodable(bad, line, self._cursor.origin(index))
            elif line and not line.isspace():
                try:
                    values.append(_parse_one(line))
                except (ValueError, RecursionError) as error:
                    bad.report(line, f"the line is not a JSON value: {error}", self._cursor.origin(index))
        return bad.polled(values)


def parse_together(lines: Sequence[str]) -> list[Any] | None:
    """Parse lines that each hold one JSON value in one call.

    Returns:
        The values, or `None` when some line is not exactly one value (or can't be told to be).

    Example:
        >>> parse_together(['{"a": 1}', "[2]"]), parse_together(["[1", "2]"]), parse_together(["1, 2", "3"])
        ([{'a': 1}, [2]], None, None)
    """
    inner = ",-Infinity,".join(lines)
    if inner.count("-Infinity") != len(lines) - 1:
        return None
    try:
        parsed: list[Any] = _parse_marked(f"[{inner}]")
    except (ValueError, RecursionError):
        return None
    if len(parsed) != 2 * len(lines) - 1 or parsed[1::2].count(_MARKER) != len(lines) - 1:
        return None
    return parsed[::2]
