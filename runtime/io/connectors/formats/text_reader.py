"""Text files: one record per line, a `str` without its line end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from penstock.runtime.io.connectors.bad_records import BadRecords
from penstock.runtime.io.connectors.formats.lines import LineFormat, LineReader


class TextReader(LineReader[str]):
    """Reads the lines of one split."""

    def _all_of(self, lines: Sequence[str]) -> Sequence[str]:
        return lines

    def _read_line(self, line: str, index: int, records: list[str], bad: BadRecords) -> None:
        records.append(line)


class TextFormat(LineFormat):
    """How text files are read; see `LineFormat`. A line that can't be decoded is bad."""

    __slots__ = ()
    reader: ClassVar[type[TextReader]] = TextReader
