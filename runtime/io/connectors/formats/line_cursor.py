"""Hands out the decoded lines of a split and knows, in bytes, how far it has handed them out.

The position is computed only on request, from the number of lines returned from the current block. So reading
pays nothing for it.
"""

from __future__ import annotations

import codecs
from dataclasses import replace

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.filesystems.filesystem import InputFile
from penstock.runtime.io.connectors.formats.line_blocks import BLOCK_BYTES, LineBlocks, offset_of_line
from penstock.runtime.io.connectors.formats.recoding import is_recoded
from penstock.runtime.io.connectors.formats.splitting import FileSplit


def checked_encoding(encoding: str) -> tuple[str, str | None]:
    """The encoding in which lines are found, and the one of the files if they are recoded for that.

    Raises:
        ConfigurationError: There is no such encoding, or files in it have no lines that can be found.

    Example:
        >>> checked_encoding("UTF8"), checked_encoding("latin-1"), checked_encoding("UTF-16LE")
        (('utf-8', None), ('iso8859-1', None), ('utf-8', 'utf-16-le'))
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


class LineCursor:
    r"""The lines of one split, in order, without their line ends (`\\n` or `\\r\\n`).

    A line that can't be decoded is handed out as its bytes.

    Args:
        handle: The open file; closed by `close`.
        split: The range and the position in it.
        encoding: From `checked_encoding`.
        block_bytes: Bytes asked for by one read.
    """

    def __init__(
        self, handle: InputFile, split: FileSplit, encoding: str, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._handle = handle
        self._split = split
        self._encoding = encoding
        self._blocks = LineBlocks(handle, split, strip_bom=encoding == "utf-8", block_bytes=block_bytes)
        self._block = b""
        self._block_start: int | None = None
        self._lines: list[str | bytes] = []
        self._next = 0
        self._taken_from = 0
        #: Whether the current block holds lines that can't be decoded.
        self.undecodable = False

    def find_start(self) -> bool:
        """Go towards the first line; see `LineBlocks.find_start`."""
        return self._blocks.find_start()

    def take(self, max_lines: int) -> list[str | bytes] | None:
        """Up to twice `max_lines` lines of the current block; `None` at the end."""
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

    def origin(self, index: int) -> str:
        """Where a line of the last `take` is, as `file:offset`."""
        offset = offset_of_line(self._block, self._taken_from + index) + (self._block_start or 0)
        return f"{self._split.path}:{offset}"

    def position(self) -> FileSplit:
        """The split, positioned after the last line that was taken."""
        if self._block_start is None:
            return replace(self._split, position=self._blocks.offset)
        return replace(self._split, position=self._block_start + offset_of_line(self._block, self._next))

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def _load(self, start: int, block: bytes) -> None:
        self._block_start, self._block, self._next = start, block, 0
        try:
            text = block.decode(self._encoding)
        except UnicodeDecodeError:
            self.undecodable = True
            self._lines = [self._decode_line(line) for line in block.split(b"\n")]
        else:
            self.undecodable = False
            self._lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")  # type: ignore[assignment]
        if block.endswith(b"\n"):
            self._lines.pop()

    def _decode_line(self, line: bytes) -> str | bytes:
        try:
            return line.removesuffix(b"\r").decode(self._encoding)
        except UnicodeDecodeError:
            return line
