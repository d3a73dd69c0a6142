"""Compressed files: recognised by their ending, decompressed while they are read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Final

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.filesystems.filesystem import InputFile

_OPENERS: Final[dict[str, Callable[[Any], Any]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
_REFUSED: Final = (".zst", ".zip", ".lz4", ".snappy", ".br", ".7z")

#: What a damaged or cut-off compressed file raises.
DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


def is_compressed(path: str) -> bool:
    """Whether a file is decompressed while it is read.

    Raises:
        ConfigurationError: It is compressed in a way that can't be read here.

    Example:
        >>> is_compressed("/in/a.jsonl.gz"), is_compressed("/in/a.jsonl")
        (True, False)
    """
    lowered = path.lower()
    if lowered.endswith(_REFUSED):
        msg = (
            f"{path}: this compression can't be read; use one of {', '.join(_OPENERS)} or decompress the file"
        )
        raise ConfigurationError(msg)
    return lowered.endswith(tuple(_OPENERS))


class DecompressedFile:
    """The decompressed bytes of a file; going backwards starts over, so readers only go forwards.

    Args:
        path: The file's name, whose ending tells how it is compressed.
        raw: The compressed bytes; closed with this one.
    """

    def __init__(self, path: str, raw: InputFile) -> None:
        self._raw = raw
        self._file = next(make for end, make in _OPENERS.items() if path.lower().endswith(end))(raw)

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` decompressed bytes."""
        return bytes(self._file.read(size))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a decompressed byte."""
        return int(self._file.seek(offset, whence))

    def close(self) -> None:
        """Close the file and what is under it."""
        try:
            self._file.close()
        finally:
            self._raw.close()
