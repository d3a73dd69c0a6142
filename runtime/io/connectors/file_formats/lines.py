"""Files with one record per line.

The lines of a block are decoded together, which is fast. `LineReader` computes its position in bytes only on
request, from the number of lines returned from the current block. So the position costs nothing while lines
are read.

**Files that are one JSON array** are recognised. An array over several lines is refused. An array on one line
is valid JSON lines, with a single record that is a list. If that list holds objects, a source of rows warns
how the file is read, and a source of columns refuses the file. At most `SAMPLED_FILES` files are inspected.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import BadRecords, OnError
from penstock.runtime.io.connectors.file_formats.line_blocks import (
    BLOCK_BYTES,
    LineBlocks,
    head_of,
    offset_of_line,
    some_of,
)
from penstock.runtime.io.connectors.file_formats.splitting import (
    FileSplit,
    cut_into_ranges,
    is_compressed,
    is_recoded,
    open_for_lines,
    whole_file,
)
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import RowBatch


def checked_encoding(encoding: str) -> tuple[str, str | None]:
    """Return the encoding used to find lines, and the files' encoding if they are recoded.

    Raises:
        ConfigurationError: The encoding is unknown or not supported.
    """
    try:
        name = codecs.lookup(encoding).name
        newline = "\n".encode(name)
    except (LookupError, UnicodeError) as error:
        msg = f"encoding={encoding!r} is not an encoding that Python knows, such as 'utf-8' or 'latin-1'"
        raise ConfigurationError(msg) from error
    if name == "utf-8-sig":
        return "utf-8", None
    if is_recoded(name):
        return "utf-8", name
    if newline != b"\n":
        msg = (
            f"encoding={encoding!r} does not write a newline as the byte 10; convert the files to UTF-8 first"
        )
        raise ConfigurationError(msg)
    return name, None


class LineReader:
    r"""Reads the lines of one split.

    Lines come in order, without their line ends (`\n` or `\r\n`). `close` closes the file.
    """

    def __init__(self, handle: InputFile, split: FileSplit, form: LineFormat) -> None:
        self._handle = handle
        self._split = split
        self._form = form
        strip_bom = form.encoding == "utf-8"
        self._blocks = LineBlocks(handle, split, strip_bom=strip_bom, block_bytes=form.block_bytes)
        self._block = b""
        self._block_start: int | None = None
        #: Lines of the current block; a line that can't be decoded stays bytes.
        self._lines: list[str | bytes] = []
        self._next = 0
        self._taken_from = 0
        self._undecodable = False

    def read(self, max_rows: int) -> Polled[Any]:
        if not self._blocks.find_start():
            return Polled()
        lines = self._take(max_rows)
        if lines is None:
            return Polled(finished=True)
        return self._one_by_one(lines) if self._undecodable else Polled(RowBatch(lines))

    def position(self) -> FileSplit:
        if self._block_start is None:
            return replace(self._split, position=self._blocks.offset)
        return replace(self._split, position=self._block_start + offset_of_line(self._block, self._next))

    def close(self) -> None:
        self._handle.close()

    def _one_by_one(self, lines: Sequence[str | bytes]) -> Polled[Any]:
        bad = BadRecords(self._form.on_error)
        records: list[Any] = []
        for index, line in enumerate(lines):
            if isinstance(line, bytes):
                what = "the line is not text in the encoding that the source was given"
                bad.report(line, what, self._origin(index), partial(self._line, index))
            else:
                records.append(line)
        return bad.polled(RowBatch(records))

    def _take(self, max_lines: int) -> list[str | bytes] | None:
        """Return up to twice `max_lines` lines of the current block; `None` at the end."""
        if self._next >= len(self._lines):
            following = self._blocks.next()
            if following is None:
                self._block_start, self._lines, self._next = None, [], 0
                return None
            self._load(*following)
        first, count = self._next, len(self._lines)
        self._taken_from = first
        self._next = count if count - first <= 2 * max_lines else first + max_lines
        return self._lines if self._next - first == count else self._lines[first : self._next]

    def _origin(self, index: int) -> str:
        """Return the position of a line of the last `_take`, as `file:offset`."""
        return f"{self._split.path}:{self._offset(index)}"

    def _line(self, index: int) -> int | None:
        return self._blocks.line_of(self._offset(index))

    def _offset(self, index: int) -> int:
        return offset_of_line(self._block, self._taken_from + index) + (self._block_start or 0)

    def _load(self, start: int, block: bytes) -> None:
        self._block_start, self._block, self._next = start, block, 0
        try:
            text = block.decode(self._form.encoding)
        except UnicodeDecodeError:
            self._undecodable = True
            self._lines = [self._decoded(line) for line in block.replace(b"\r\n", b"\n").split(b"\n")]
        else:
            self._undecodable = False
            self._lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")  # type: ignore[assignment]
        if block.endswith(b"\n"):
            self._lines.pop()

    def _decoded(self, line: bytes) -> str | bytes:
        try:
            return line.decode(self._form.encoding)
        except UnicodeDecodeError:
            return line


def line_splits(
    files: Sequence[FileInfo], split_size: int, parallelism: int, stored_as: str | None
) -> list[FileSplit]:
    """Return byte ranges of plain files, and one split for each compressed or recoded file."""
    splits: list[FileSplit] = []
    share = -(-sum(info.size for info in files) // parallelism)
    for info in files:
        if is_compressed(info.path) or stored_as is not None:
            splits.append(whole_file(info, stored_as))
        else:
            splits.extend(cut_into_ranges(info, split_size, share))
    return splits


@dataclass(frozen=True, slots=True)
class LineFormat:
    """A file format with one record per line.

    Attributes:
        split_size: Maximum size of a range, in bytes.
        block_bytes: Bytes requested by one read.
        stored_as: Encoding of the files, if they are recoded to UTF-8.
    """

    encoding: str
    split_size: int
    on_error: OnError
    block_bytes: int = BLOCK_BYTES
    stored_as: str | None = None

    #: Reads one split.
    reader: ClassVar[type[LineReader]] = LineReader

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        return line_splits(files, self.split_size, parallelism, self.stored_as)

    def open(self, split: FileSplit, filesystem: FileSystem) -> LineReader:
        handle = open_for_lines(filesystem, split.path, split.size, self.stored_as)
        return self.reader(handle, split, self)


class TextFormat(LineFormat):
    """Each line is a record; a line that can't be decoded is bad."""

    __slots__ = ()


_decode_from = json.JSONDecoder().raw_decode

_ADVICE = "Write each element on a line of its own, as `jq -c '.[]'` does"


def warnings_of_arrays(
    files: Sequence[FileInfo],
    filesystem: FileSystem,
    encoding: str,
    stored_as: str | None,
    *,
    refuse: bool,
) -> list[str]:
    """Inspect the first lines of some files; return a warning for each array of objects on one line.

    Args:
        refuse: Whether an array of objects on one line is an error, too.

    Raises:
        ConnectorError: A file is one JSON array over several lines, or with `refuse` on one line.
    """
    warnings = []
    for info in some_of(files):
        head, is_all = head_of(info, filesystem, encoding, stored_as=stored_as)
        text = head.decode(encoding, "replace").lstrip()
        if not text.startswith("["):
            continue
        line, _, following = text.partition("\n")
        if _is_array_across_lines(text, len(line)):
            msg = f"{info.path} is one JSON array over several lines, not JSON lines. {_ADVICE}"
            raise ConnectorError(msg)
        if is_all and not following.strip() and _is_list_of_objects(line):
            what = f"{info.path} is one JSON array on one line"
            if refuse:
                msg = f"{what}, not JSON lines. {_ADVICE}"
                raise ConnectorError(msg)
            warnings.append(f"{what}: it is read as one record, which is a list. {_ADVICE}")
    return warnings


def _is_array_across_lines(text: str, line_end: int) -> bool:
    """Whether the array at the beginning of the text continues after the first line, as valid JSON."""
    at = 1
    while True:
        at = _behind_space(text, at)
        if at >= len(text) or text[at] == "]":
            return line_end < at < len(text)
        try:
            _, at = _decode_from(text, at)
        except (ValueError, RecursionError):
            # The sample ends within an element, or an object spans several lines.
            return at > line_end and text[at] in '{["'
        at = _behind_space(text, at)
        if at >= len(text) or text[at] not in ",]":
            return False
        if at > line_end:
            return True
        if text[at] == "]":
            return False
        at += 1
        if at >= line_end and _behind_space(text, at) > line_end:
            return (
                _behind_space(text, at) < len(text) and text[_behind_space(text, at)] in '{["-0123456789tfn'
            )


def _behind_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _is_list_of_objects(line: str) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
