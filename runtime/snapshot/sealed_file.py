"""Files with a checksum, and checks of their decoded fields.

Layout: 8 bytes of magic, 2 bytes of version (big endian), 16 bytes of checksum, then the rest. The checksum
is the xxh3-128 of version and rest. In a *sized* file the rest begins with 4 bytes of length and 4 bytes of
its complement. So a file that a power cut has truncated is distinguishable from a damaged one: a flipped bit
can't make a complete file look truncated. The body is plain msgpack, without extension types or pickle. The
header holds the version, so an older Penstock can report a file that is too new for it.

A file with a valid checksum may still hold any value, if it was changed on purpose. So `whole`, `seconds`,
`text`, `binary`, `items` and `mapping` return the checked value, or raise a `TypeError` or `ValueError`.
Decoders turn these into an error that names the file.
"""

from __future__ import annotations

import math
import struct
from reprlib import Repr
from typing import Any, Final, TypeVar

import msgpack
import xxhash

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError, StorageError

_HEADER: Final = struct.Struct(">8sH16s")

_LENGTH: Final = struct.Struct(">II")

_ALL_ONES: Final = 0xFFFFFFFF
#: Maximum nesting of lists and maps; recursive code needs stack for each level.
_MOST_LEVELS: Final = 100


class IncompleteFileError(CorruptSnapshotError):
    """A sized file is shorter than its length field says; its write was never confirmed."""


def seal(magic: bytes, version: int, body: Any, *, is_sized: bool = False) -> bytes:
    """Wrap `body`, of plain msgpack values, for storage; the `version` of its layout counts from 1.

    Example:
        >>> unseal(b"EXAMPLE.", 1, seal(b"EXAMPLE.", 1, [1, "a"]), "an example", "x")
        [1, 'a']
    """
    packed: bytes = msgpack.packb(body, unicode_errors="surrogatepass")
    if is_sized:
        packed = _LENGTH.pack(len(packed), len(packed) ^ _ALL_ONES) + packed
    return _HEADER.pack(magic, version, _digest(version, packed)) + packed


def unseal(magic: bytes, newest: int, data: bytes, what: str, path: str, *, is_sized: bool = False) -> Any:
    """The body of a sealed file up to version `newest`; `what` names the file in messages.

    Raises:
        IncompleteFileError: The file is sized, and truncated or empty.
        CorruptSnapshotError: The file is damaged, or of another kind.
        StorageError: A newer version wrote the file.
    """
    if is_sized and _is_cut_off(magic, data):
        msg = f"{path} should be {what} but is cut off after {len(data)} bytes"
        raise IncompleteFileError(msg)
    if len(data) < _HEADER.size:
        raise damaged(what, path, f"it has {len(data)} bytes, which is too short")
    found, version, digest = _HEADER.unpack_from(data)
    if found != magic:
        raise damaged(what, path, f"it begins with {found!r} instead of {magic!r}")
    body = data[_HEADER.size :]
    if _digest(version, body) != digest:
        raise damaged(what, path, "its content does not match its checksum")
    if version > newest:
        msg = (
            f"{path} is {what} of format {version}; this version of Penstock reads up to {newest}: "
            "use the version that wrote it, or a later one"
        )
        raise StorageError(msg)
    if is_sized:
        body = body[_LENGTH.size :]
    try:
        content = msgpack.unpackb(body, strict_map_key=False, unicode_errors="surrogatepass")
    except (ValueError, TypeError) as error:  # TypeError: a list as a key
        why = error_text(error) if str(error) else type(error).__name__
        raise damaged(what, path, f"its content can't be decoded ({why})") from error
    if _is_deeper(content, _MOST_LEVELS):
        raise damaged(what, path, f"its content is nested deeper than {_MOST_LEVELS} levels")
    return content


def damaged(what: str, path: str, why: str) -> CorruptSnapshotError:
    return CorruptSnapshotError(f"{path} should be {what} but is damaged: {why}")


def _is_cut_off(magic: bytes, data: bytes) -> bool:
    if not magic.startswith(data[: len(magic)]):
        return False
    whole = _HEADER.size + _LENGTH.size
    if len(data) < whole:
        return True
    length, complement = _LENGTH.unpack_from(data, _HEADER.size)
    return bool(length ^ _ALL_ONES == complement and len(data) < whole + length)


def _is_deeper(content: Any, levels: int) -> bool:
    """Return whether lists and maps are nested deeper than `levels`, without recursion."""
    level: list[Any] = [[content]]
    for _ in range(levels + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is list or type(inner) is dict
        ]
        if not level:
            return False
    return True


def _digest(version: int, body: bytes) -> bytes:
    return xxhash.xxh3_128_digest(struct.pack(">H", version) + body)


T = TypeVar("T")

#: Formats a value of any size and depth in a few characters.
_SHORT: Final = Repr()

_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 4, 70, 70

#: Upper bound of ids, and of counts of subtasks and bytes.
_MOST: Final = 1 << 62


def whole(value: object, least: int = 0) -> int:
    """Check a whole number that is at least `least` and below 2^62."""
    if type(value) is int and least <= value < _MOST:
        return value
    msg = f"{_shown(value)} where a whole number of at least {least} should be"
    raise ValueError(msg) if type(value) is int else TypeError(msg)


def seconds(value: object) -> float:
    if type(value) not in (int, float):
        msg = f"{_shown(value)} where a time in seconds should be"
        raise TypeError(msg)
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        msg = f"{value} where a time in seconds should be"
        raise ValueError(msg)
    return number


def text(value: object) -> str:
    return _of(str, value, "a string")


def binary(value: object) -> bytes:
    return _of(bytes, value, "bytes")


def items(value: object, length: int | None = None) -> list[Any]:
    found = _of(list, value, "a list")
    if length is not None and len(found) != length:
        msg = f"a list of {len(found)} items where {length} should be"
        raise ValueError(msg)
    return found


def mapping(value: object) -> dict[Any, Any]:
    return _of(dict, value, "a map")


def _of(kind: type[T], value: object, name: str) -> T:
    if not isinstance(value, kind):
        msg = f"{_shown(value)} where {name} should be"
        raise TypeError(msg)
    return value


def _shown(value: object) -> str:
    return _SHORT.repr(value)[:80]
