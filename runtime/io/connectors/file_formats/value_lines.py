r"""Files with one value per line: a format of `runtime/io/formats/` decodes the lines.

Lines end with `\n` or `\r\n`. The lines of a poll are decoded together, and the format finds the bad ones.
Blank lines are skipped, except for text and bytes. Files in an encoding other than UTF-8 are recoded first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from penstock.runtime.io.connectors.arrow_batches import arrow_rows
from penstock.runtime.io.connectors.errors import BadRecords
from penstock.runtime.io.connectors.file_formats.lines import (
    LineFormat,
    LineReader,
    line_splits,
    warnings_of_arrays,
)
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit
from penstock.runtime.io.connectors.filesystem import FileInfo, InputFile
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.io.formats.plain import Raw, Text
from penstock.runtime.operators.source import Polled, SplitsWithWarnings
from penstock.runtime.record.elements import BatchFormat


class ValueLineReader(LineReader):
    """Decodes the lines of one split with a format."""

    _form: ValueLines

    def __init__(self, handle: InputFile, split: FileSplit, form: ValueLines) -> None:
        super().__init__(handle, split, form)
        self._decoder = form.format.decoder(form.batch_format)
        self._keeps_blank = isinstance(form.format, (Text, Raw))
        #: Lines of the current block that are not text in the files' encoding.
        self._no_text: frozenset[int] = frozenset()

    def read(self, max_rows: int) -> Polled[Any]:
        if not self._blocks.find_start():
            return Polled()
        lines: Any = self._take(arrow_rows(max_rows) if self._form.batch_format == "arrow" else max_rows)
        if lines is None:
            return Polled(finished=True)
        places: Sequence[int] = range(len(lines))
        if self._no_text or (not self._keeps_blank and b"" in lines):
            places = [
                at
                for at in places
                if (lines[at] or self._keeps_blank) and self._taken_from + at not in self._no_text
            ]
        decoded = self._decoder.decode(lines if len(places) == len(lines) else [lines[at] for at in places])
        wrong = {places[at]: why for at, why in decoded.bad}
        for line in self._no_text:
            wrong[line - self._taken_from] = "the line is not text in the encoding that the source was given"
        bad = BadRecords(self._form.on_error)
        for at in sorted(wrong):
            if 0 <= at < len(lines) and (self._keeps_blank or lines[at].strip()):
                bad.report(_text_of(lines[at]), wrong[at], self._origin(at), partial(self._line, at))
        return bad.polled(decoded.batch)

    def close(self) -> None:
        self._decoder.close()
        super().close()

    def _load(self, start: int, block: bytes) -> None:
        self._block_start, self._block, self._next = start, block, 0
        self._no_text = frozenset()
        if self._form.encoding != "utf-8":
            block = self._recoded(block)
        lines = (block.replace(b"\r\n", b"\n") if b"\r" in block else block).split(b"\n")
        if block.endswith(b"\n"):
            lines.pop()
        self._lines = lines  # type: ignore[assignment]

    def _recoded(self, block: bytes) -> bytes:
        """The block in UTF-8; a line that can't be decoded stays as it is."""
        try:
            return block.decode(self._form.encoding).encode()
        except UnicodeError:
            lines = block.split(b"\n")
        for at, line in enumerate(lines):
            try:
                lines[at] = line.decode(self._form.encoding).encode()
            except UnicodeError:
                self._no_text |= {at}
        return b"\n".join(lines)


def _text_of(line: bytes) -> str | bytes:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line


@dataclass(frozen=True, slots=True)
class ValueLines(LineFormat):
    """A file format with one value of `format` per line."""

    format: Format = field(default_factory=Json)
    batch_format: BatchFormat = "rows"

    reader: ClassVar[type[LineReader]] = ValueLineReader


@dataclass(frozen=True, slots=True)
class JsonLines(ValueLines):
    """JSON lines; `splits` samples files, and refuses one that is a JSON array over several lines."""

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        warnings = warnings_of_arrays(files, filesystem, self.encoding, self.stored_as, refuse=False)
        splits = line_splits(files, self.split_size, parallelism, self.stored_as)
        return SplitsWithWarnings(splits, warnings)
