"""JSON lines: one JSON value per line.

A slice of lines is parsed by one call. The lines are joined into one JSON array with `-Infinity` between
them, which parses to a marker object. If the markers stand exactly at every second place, each line held one
complete value. A line like `1, 2` or `[1` would shift or swallow a marker. Everything else, also text that
holds `-Infinity` itself, is parsed line by line. This is twice as fast as a call per line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from penstock.runtime.io.connectors.bad_records import BadRecords
from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo
from penstock.runtime.io.connectors.formats.json_array import warnings_of_arrays
from penstock.runtime.io.connectors.formats.lines import LineFormat, LineReader, line_splits
from penstock.runtime.io.connectors.formats.splitting import FileSplit
from penstock.runtime.operators.protocols import SplitsWithWarnings

_MARKER: Final = object()
_CONSTANTS: Final = {"-Infinity": _MARKER, "NaN": math.nan, "Infinity": math.inf}
_parse_marked: Final = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__).decode
_parse_one: Final = json.JSONDecoder().decode


class JsonReader(LineReader[Any]):
    """Reads the values of one split; blank lines are no records."""

    def _all_of(self, lines: Sequence[str]) -> list[Any] | None:
        return parse_together(lines)

    def _read_line(self, line: str, index: int, records: list[Any], bad: BadRecords) -> None:
        if line and not line.isspace():
            try:
                records.append(_parse_one(line))
            except (ValueError, RecursionError) as error:
                bad.report(line, f"the line is not a JSON value: {error}", self._cursor.origin(index))


class JsonFormat(LineFormat):
    """How JSON lines are read; see `LineFormat`. A line that is no JSON value is bad."""

    __slots__ = ()

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """Cut the files.

        Raises:
            ConnectorError: A file is one JSON array over several lines.
        """
        warnings = warnings_of_arrays(files, filesystem, self.encoding, self.stored_as, refuse=False)
        splits = line_splits(files, self.split_size, parallelism, self.stored_as)
        return SplitsWithWarnings(splits, warnings)

    reader: ClassVar[type[JsonReader]] = JsonReader


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
