"""Samples of files: which ones are looked at when a job starts, and their first lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.connectors.formats.line_blocks import LineBlocks
from penstock.runtime.io.connectors.formats.opening import open_for_lines
from penstock.runtime.io.connectors.formats.splitting import whole_file

#: Files of which a sample is taken, and bytes of each.
SAMPLED_FILES: Final = 4
SAMPLED_BYTES: Final = 256 * 1024


def some_of(files: Sequence[FileInfo], count: int = SAMPLED_FILES) -> Sequence[FileInfo]:
    """At most `count` files that are not empty, spread over all of them, the first one included.

    Example:
        >>> [info.path for info in some_of([FileInfo(str(i), 1) for i in range(10)])]
        ['0', '3', '6', '9']
    """
    present = [info for info in files if info.size]
    return present[:: max(1, -(-len(present) // count))]


def head_of(
    info: FileInfo,
    filesystem: FileSystem,
    encoding: str,
    line_end: Callable[[InputFile], bytes] = lambda handle: b"\n",
    stored_as: str | None = None,
) -> tuple[bytes, bool]:
    """The first lines of a file, decompressed and without a byte order mark; whether they are all it has.

    Args:
        line_end: Finds the byte that ends its lines.
        stored_as: Its encoding, if it is recoded to UTF-8.
    """
    handle = open_for_lines(filesystem, info.path, info.size, stored_as)
    try:
        end = line_end(handle)
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
        # A last line without its end is a block of its own.
        is_last = end not in rest[1] and blocks.next() is None
        return (block[1] + rest[1], True) if is_last else (block[1], False)
    finally:
        handle.close()
