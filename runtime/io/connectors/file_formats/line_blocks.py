r"""Reads the lines of a byte range in blocks of whole lines.

Bytes are cut only after a newline, so a character of several bytes is never split. A block can be decoded and
split in two calls at C speed. This needs an encoding in which the byte `\n` is always a newline and nothing
else (UTF-8, Latin-1 and similar ones; UTF-16 is recoded first). A line that begins in the range is read to
its end, even far beyond the range.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Final

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import UnreadableInputError
from penstock.runtime.io.connectors.file_formats.splitting import (
    DAMAGED,
    UNKNOWN_END,
    FileSplit,
    changed,
    mark_of,
    open_for_lines,
    whole_file,
)
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile

#: Bytes per read.
BLOCK_BYTES: Final = 256 * 1024

#: Maximum bytes that one call of `find_start` skips in a compressed file.
SKIP_BYTES: Final = 4 * 1024 * 1024

UTF8_BOM: Final = b"\xef\xbb\xbf"

#: Maximum bytes that are read again to find the number of a line.
_MOST_COUNTED: Final = 256 * 1024 * 1024

#: Bytes of a file in which `line_end_of` looks for the first line end.
_HEAD_BYTES: Final = 1024 * 1024

_LINE_END: Final = re.compile(rb"\r\n?|\n")


class LineBlocks:
    """Blocks of whole lines of one split, starting at its position; the caller closes the file.

    Args:
        strip_bom: Leave out a UTF-8 byte order mark at the beginning of the file.
        block_bytes: Bytes per read; may be changed at any time.
        line_end: The byte that ends a line.
    """

    def __init__(
        self,
        handle: InputFile,
        split: FileSplit,
        *,
        strip_bom: bool,
        block_bytes: int = BLOCK_BYTES,
        line_end: bytes = b"\n",
    ) -> None:
        self._handle = handle
        self._line_end = line_end
        self._split = split
        self._strip_bom = strip_bom
        #: Bytes per read; may be changed at any time.
        self.block_bytes = block_bytes
        self._tail = b""
        self._offset = 0
        self._ready = False

    @property
    def offset(self) -> int | None:
        """Start of the next block; before `find_start` is done, the position of the split."""
        return self._offset if self._ready else self._split.position

    def find_start(self) -> bool:
        """Go to the first line; return `False` if another call must continue, as in a compressed file."""
        if self._ready:
            return True
        target = self._split.position
        if target is not None and self._split.end == UNKNOWN_END:
            return self._skip_towards(target)
        if target is None and self._split.start:
            target = self._first_line_in_range()
        self._offset = target or 0
        self._handle.seek(self._offset)
        self._ready = True
        return True

    def next(self) -> tuple[int, bytes] | None:
        """The next block and its offset; `None` at the end of the range."""
        end = self._split.end
        if self._offset >= end:
            return None
        parts, length = [self._tail], len(self._tail)
        while chunk := self._read():
            base = self._offset + length
            cut = -1
            if base + len(chunk) >= end:
                cut = chunk.find(self._line_end, max(0, end - 1 - base))
            if cut < 0:
                cut = chunk.rfind(self._line_end)
            if cut >= 0:
                parts.append(chunk[: cut + 1])
                self._tail = chunk[cut + 1 :]
                return self._hand_out(b"".join(parts))
            parts.append(chunk)
            length += len(chunk)
        self._tail = b""
        self._check_complete(self._offset + length)
        return self._hand_out(b"".join(parts))

    def line_of(self, offset: int) -> int | None:
        """Number of the line at an offset, from 1; `None` in a compressed file, or far from the beginning.

        Reads the file again from its beginning, so the reader can't continue. Call it only for an error.
        """
        if self._split.end == UNKNOWN_END or offset > _MOST_COUNTED:
            return None
        self._handle.seek(0)
        number, left = 1, offset
        while left and (chunk := self._handle.read(min(left, BLOCK_BYTES))):
            number += chunk.count(self._line_end)
            left -= len(chunk)
        return None if left else number

    def _hand_out(self, block: bytes) -> tuple[int, bytes] | None:
        start = self._offset
        self._offset += len(block)
        if start == 0 and self._strip_bom:
            if (other := mark_of(block)) is not None:
                msg = (
                    f"{self._split.path} begins with the byte order mark of {other}, but is read as UTF-8. "
                    f"Set encoding={other!r}"
                )
                raise UnreadableInputError(msg)
            if block.startswith(UTF8_BOM):
                start, block = len(UTF8_BOM), block[len(UTF8_BOM) :]
        return (start, block) if block else None

    def _first_line_in_range(self) -> int:
        """Start of the first line that begins in the range; without one, the end of the range."""
        at, end = self._split.start - 1, self._split.end
        self._handle.seek(at)
        while at < end - 1:
            chunk = self._read()
            if not chunk:
                self._check_complete(at)
                return end
            newline = chunk.find(self._line_end)
            if newline >= 0:
                return at + newline + 1
            at += len(chunk)
        return end

    def _skip_towards(self, target: int) -> bool:
        for _ in range(SKIP_BYTES // BLOCK_BYTES):
            chunk = self._read(min(BLOCK_BYTES, target - self._offset))
            self._offset += len(chunk)
            if self._offset == target:
                self._ready = True
                return True
            if not chunk:
                msg = (
                    f"{self._split.path} ends at byte {self._offset} of its content, but the job had read "
                    f"{target} bytes: the file has changed. Put the old file back, or start a new job"
                )
                raise ConnectorError(msg)
        return False

    def _read(self, size: int | None = None) -> bytes:
        size = self.block_bytes if size is None else size
        return read_bytes(self._handle, size, self._split.path, self._offset)

    def _check_complete(self, read: int) -> None:
        if self._split.end != UNKNOWN_END and read < self._split.size:
            raise ConnectorError(changed(self._split.path, self._split.size, read))


def read_bytes(handle: InputFile, size: int, path: str, offset: int) -> bytes:
    try:
        return handle.read(size)
    except DAMAGED as error:
        msg = (
            f"{path} is damaged: it can't be decompressed after byte {offset} of its content ({error}). "
            "Write the file again, or leave it out"
        )
        raise UnreadableInputError(msg) from error
    except OSError as error:
        msg = f"{path} can't be read after byte {offset}: {error}"
        raise ConnectorError(msg) from error


def offset_of_line(block: bytes, line: int, line_end: bytes = b"\n") -> int:
    """Start of the line with this index in a block; the block's length if it has fewer lines."""
    if line == 0:
        return 0
    parts = block.split(line_end, line)
    return len(block) - len(parts[-1]) if len(parts) > line else len(block)


def line_end_of(handle: InputFile, path: str, quote: bytes) -> bytes:
    r"""The byte that ends the lines of a file: `\r` if the first line ends with it, as in old Mac files.

    Args:
        handle: The open file, at its beginning; its position is restored.
        quote: The byte around quoted fields; empty for none. Line ends in quotes don't count.
    """
    head, found = b"", None
    while chunk := read_bytes(handle, _HEAD_BYTES - len(head), path, len(head)):
        head += chunk
        found = next(
            (
                match
                for match in _LINE_END.finditer(head)
                if not (quote and head.count(quote, 0, match.start()) % 2)
            ),
            None,
        )
        # A carriage return at the end of the bytes read may be the first half of a line end.
        if (found is not None and found.end() < len(head)) or len(head) >= _HEAD_BYTES:
            break
    handle.seek(0)
    return b"\r" if found is not None and found[0] == b"\r" else b"\n"


def lines_of(text: str, line_end: bytes) -> list[str]:
    """The lines of a text with their line ends."""
    if line_end == b"\n":
        return io.StringIO(text, newline="\n").readlines()
    # StringIO would replace each newline with a carriage return.
    *lines, last = text.split("\r")
    return [f"{line}\r" for line in lines] + ([last] if last else [])


#: Number of sampled files, and bytes of each sample.
SAMPLED_FILES: Final = 4

SAMPLED_BYTES: Final = 256 * 1024


def some_of(files: Sequence[FileInfo]) -> Sequence[FileInfo]:
    """At most `SAMPLED_FILES` non-empty files, the first one included, spread evenly over all of them."""
    present = [info for info in files if info.size]
    return present[:: max(1, -(-len(present) // SAMPLED_FILES))]


def head_of(
    info: FileInfo,
    filesystem: FileSystem,
    encoding: str,
    line_end: Callable[[InputFile, str], bytes] = lambda handle, path: b"\n",
    stored_as: str | None = None,
) -> tuple[bytes, bool]:
    """Return the first lines of a file, without a byte order mark; and whether they are the whole file.

    Args:
        line_end: Finds the byte that ends the file's lines.
        stored_as: The file's encoding, if it is recoded to UTF-8.
    """
    handle = open_for_lines(filesystem, info.path, info.size, stored_as)
    try:
        end = line_end(handle, info.path)
        blocks = LineBlocks(
            handle,
            whole_file(info, stored_as),
            strip_bom=encoding == "utf-8",
            block_bytes=SAMPLED_BYTES,
            line_end=end,
        )
        while not blocks.find_start():
            pass
        block, rest = blocks.next(), blocks.next()
        if block is None:
            return b"", True
        if rest is None:
            return block[1], True
        # A last line without a line end is a separate block.
        is_last = end not in rest[1] and blocks.next() is None
        return (block[1] + rest[1], True) if is_last else (block[1], False)
    finally:
        handle.close()
