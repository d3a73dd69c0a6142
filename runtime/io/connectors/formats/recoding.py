"""Files in UTF-16, UTF-32, ISO-2022-KR and HZ, whose bytes become UTF-8 while they are read.

In these encodings the byte 10 may be part of a letter, or what a byte means depends on those far before it.
So a file can't be entered in the middle. It is one split, as a compressed file is. Positions count the bytes
of its text in UTF-8. What is no text stays none: it becomes bytes that are no UTF-8, so that the line that
holds it is a bad record.
"""

from __future__ import annotations

import codecs
from typing import Final

from penstock.runtime.io.connectors.errors import ConnectorError, UnreadableInputError
from penstock.runtime.io.connectors.filesystems.filesystem import InputFile

#: Those of UTF-32 come first: one of them begins as one of UTF-16 does.
_MARKS: Final = (
    ("utf-32-le", codecs.BOM_UTF32_LE),
    ("utf-32-be", codecs.BOM_UTF32_BE),
    ("utf-16-le", codecs.BOM_UTF16_LE),
    ("utf-16-be", codecs.BOM_UTF16_BE),
)
_WITH_MARKS: Final = ("utf-16", "utf-32")
_LONGEST_MARK: Final = 4
_READ_BYTES: Final = 256 * 1024


def is_recoded(encoding: str) -> bool:
    """Whether files in an encoding, by its canonical name, are recoded.

    Example:
        >>> is_recoded("utf-16"), is_recoded("utf-8")
        (True, False)
    """
    return encoding.startswith(_WITH_MARKS) or encoding in ("iso2022_kr", "hz")


def mark_of(head: bytes) -> str | None:
    r"""The encoding whose byte order mark begins a file, as users name it.

    Example:
        >>> mark_of("a".encode("utf-16")), mark_of(b"a"), mark_of(b"\xff\xfe\0\0a\0\0\0")
        ('utf-16', None, 'utf-32')
    """
    return next((name[:6] for name, mark in _MARKS if head.startswith(mark)), None)


def _no_text(error: UnicodeError) -> tuple[str | bytes, int]:
    """Keep a lone half of a surrogate pair; half a one stands for any other bytes that are no text."""
    try:
        return codecs.lookup_error("surrogatepass")(error)
    except UnicodeDecodeError as other:
        return "\udcff", other.end


_ERRORS: Final = "penstock.no_text"
codecs.register_error(_ERRORS, _no_text)


class RecodedFile:
    """The UTF-8 bytes of a file's text; going backwards starts over, so readers only go forwards.

    Args:
        path: The file's name.
        raw: Its bytes; closed with this one.
        encoding: From `is_recoded`.
        size: How many bytes it had when it was listed; `None` if `raw` looks after that.
    """

    def __init__(self, path: str, raw: InputFile, encoding: str, size: int | None) -> None:
        self._path = path
        self._raw = raw
        self._encoding = encoding
        self._size = size
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ready = b""
        self._taken = 0
        self._is_read = False

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes; empty at the end.

        Raises:
            UnreadableInputError: The file's byte order mark is missing, or is of another encoding.
        """
        while not self._is_read and (size < 0 or len(self._ready) < size):
            self._ready += self._more()
        end = len(self._ready) if size < 0 else size
        found, self._ready = self._ready[:end], self._ready[end:]
        return found

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a byte, counted from the beginning."""
        assert whence == 0, "readers count from the beginning"
        self._raw.seek(0)
        self._decoder, self._ready, self._taken, self._is_read = None, b"", 0, False
        return len(self.read(offset))

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _more(self) -> bytes:
        raw = self._raw.read(_READ_BYTES)
        self._taken += len(raw)
        self._is_read = not raw
        if self._decoder is None:
            while raw and len(raw) < _LONGEST_MARK and (rest := self._raw.read(_READ_BYTES)):
                raw, self._taken = raw + rest, self._taken + len(rest)
            if not raw:
                return b""
            self._decoder, raw = self._decoder_of(raw)
        if self._is_read and self._size is not None and self._taken < self._size:
            msg = f"{self._path} was cut while it was read: {self._size} bytes before, {self._taken} now"
            raise ConnectorError(msg)
        return self._decoder.decode(raw, final=self._is_read).encode("utf-8", "surrogatepass")

    def _decoder_of(self, head: bytes) -> tuple[codecs.IncrementalDecoder, bytes]:
        """The decoder for the order of bytes, and the first bytes without the mark."""
        family = self._encoding[:6]
        # A text in UTF-16 may begin with a zero, so its mark is looked for among those of its family only.
        for name, mark in _MARKS:
            if name.startswith(family) and head.startswith(mark):
                if self._encoding not in (name, family):
                    msg = (
                        f"{self._path} begins with the byte order mark of {name}, and is read as "
                        f"{self._encoding}. Say encoding={family!r}"
                    )
                    raise UnreadableInputError(msg)
                return codecs.getincrementaldecoder(name)(_ERRORS), head[len(mark) :]
        if self._encoding in _WITH_MARKS:
            msg = (
                f"{self._path} has no byte order mark, so the order of its bytes is not known. Say encoding="
                f"'{family}-le' (as Windows writes it) or '{family}-be'"
            )
            raise UnreadableInputError(msg)
        return codecs.getincrementaldecoder(self._encoding)(_ERRORS), head
