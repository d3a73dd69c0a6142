"""Checks of decoded fields: a file whose checksum is right may still hold anything, if somebody changed it.

Each function returns its argument, or raises a `TypeError` or `ValueError` that says what is there instead.
Decoders turn these into the error that names the file.
"""

from __future__ import annotations

import math
from reprlib import Repr
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Shows a value of any size and depth in a few characters.
_SHORT: Final = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 4, 70, 70

#: Numbers of checkpoints, subtasks and bytes stay below.
_MOST: Final = 1 << 62


def whole(value: object, least: int = 0) -> int:
    """A whole number from `least` up to 2^62.

    Example:
        >>> whole(3)
        3
        >>> whole(True)
        Traceback (most recent call last):
        TypeError: True where a whole number from 0 should be
    """
    if type(value) is not int:
        msg = f"{_shown(value)} where a whole number from {least} should be"
        raise TypeError(msg)
    if not least <= value < _MOST:
        msg = f"{_shown(value)} where a whole number from {least} should be"
        raise ValueError(msg)
    return value


def seconds(value: object) -> float:
    """A finite number of seconds."""
    if type(value) not in (int, float):
        msg = f"{_shown(value)} where a time in seconds should be"
        raise TypeError(msg)
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        msg = f"{value} where a time in seconds should be"
        raise ValueError(msg)
    return number


def text(value: object) -> str:
    """A text."""
    return _of(str, value, "a text")


def binary(value: object) -> bytes:
    """Bytes."""
    return _of(bytes, value, "bytes")


def items(value: object, length: int | None = None) -> list[Any]:
    """A list.

    Args:
        length: How many items it must have; `None` for any number.
    """
    found = _of(list, value, "a list")
    if length is not None and len(found) != length:
        msg = f"a list of {len(found)} items where {length} should be"
        raise ValueError(msg)
    return found


def mapping(value: object) -> dict[Any, Any]:
    """A map."""
    return _of(dict, value, "a map")


def _of(kind: type[T], value: object, name: str) -> T:
    if not isinstance(value, kind):
        msg = f"{_shown(value)} where {name} should be"
        raise TypeError(msg)
    return value


def _shown(value: object) -> str:
    return _SHORT.repr(value)[:80]
