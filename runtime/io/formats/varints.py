"""Integers as Protobuf and Avro write them: seven bits in each byte, the low ones first.

Avro, and Protobuf's `sint64`, use zigzag numbers: 0, -1, 1, -2 are 0, 1, 2, 3.
"""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Encode a number of at least 0.

    Example:
        >>> varint(5).hex(), varint(300).hex()
        ('05', 'ac02')
    """
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def zigzag_varint(number: int) -> bytes:
    """Encode a number of at least 0 as a zigzag number."""
    return varint(2 * number)


def read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    """The number at an offset, and the offset after it; `None` if the data end within it.

    Raises:
        ValueError: The number has more than ten bytes.

    Example:
        >>> read_varint(varint(300), 0), read_varint(varint(300)[:1], 0)
        ((300, 2), None)
    """
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return None
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    msg = "a number has more than ten bytes"
    raise ValueError(msg)


def read_zigzag_varint(data: bytes, at: int) -> tuple[int, int] | None:
    """Read a zigzag number; otherwise like `read_varint`."""
    found = read_varint(data, at)
    return None if found is None else ((found[0] >> 1) ^ -(found[0] & 1), found[1])
