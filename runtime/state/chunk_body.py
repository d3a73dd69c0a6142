"""`unpack_body`: the msgpack body of a chunk, whose encoded keys and values stay views of the file.

msgpack's own reader copies every part. Nearly all bytes of a chunk are a few parts of many megabytes, and
fresh memory for a copy costs more than the copy. So this reader returns them as views, and the value codec
decodes from the file's memory. It knows only what a chunk consists of: arrays, whole numbers, text, bytes and
nil. All else is damage.
"""

from __future__ import annotations

from typing import Any, Final

#: Bytes of the size or the number that follows a tag.
_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_TEXTS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_WHOLE: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED: Final = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_NIL: Final = 0xC0

#: Maximum depth of nested arrays. A chunk has three levels: the body, its list of blocks, and a block. One
#: more is decoded, so that the caller's error can show a part that is an array by mistake.
_MOST_NESTED: Final = 4


def unpack_body(body: memoryview) -> Any:
    """Decode a body; bytes become views of it.

    Raises:
        ValueError: The body is damaged.

    Example:
        >>> import msgpack
        >>> number, (block,) = unpack_body(memoryview(msgpack.packb([128, [["t", 1, b"keys", None]]])))
        >>> number, block[:2], bytes(block[2]), block[3]
        (128, ['t', 1], b'keys', None)
    """
    reader = _Reader(body)
    value = reader.value(_MOST_NESTED)
    if reader.at != len(body):
        msg = f"{len(body) - reader.at} bytes are left over"
        raise ValueError(msg)
    return value


class _Reader:
    def __init__(self, body: memoryview) -> None:
        self._body = body
        self.at = 0

    def value(self, depth: int) -> Any:
        tag = self._take(1)[0]
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag == _NIL:
            return None
        if tag in _BYTES:
            return self._take(self._number(_BYTES[tag]))
        if 0xA0 <= tag < 0xC0:
            return self._text(tag - 0xA0)
        if tag in _TEXTS:
            return self._text(self._number(_TEXTS[tag]))
        if tag in _WHOLE:
            return self._number(_WHOLE[tag])
        if tag in _SIGNED:
            return int.from_bytes(self._take(_SIGNED[tag]), signed=True)
        if 0x90 <= tag < 0xA0 or tag in _ARRAYS:
            return self._array(tag - 0x90 if tag < 0xA0 else self._number(_ARRAYS[tag]), depth)
        msg = f"a part at byte {self.at - 1} begins with {tag:#x}"
        raise ValueError(msg)

    def _array(self, size: int, depth: int) -> list[Any]:
        if not depth or size > len(self._body) - self.at:
            msg = f"an array of {size} parts at byte {self.at} is too large, or nested too deeply"
            raise ValueError(msg)
        return [self.value(depth - 1) for _ in range(size)]

    def _text(self, size: int) -> str:
        return str(self._take(size), "utf-8")

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size))

    def _take(self, size: int) -> memoryview:
        begin, self.at = self.at, self.at + size
        if self.at > len(self._body):
            msg = f"{size} bytes should follow byte {begin}, but only {len(self._body) - begin} do"
            raise ValueError(msg)
        return self._body[begin : self.at]
