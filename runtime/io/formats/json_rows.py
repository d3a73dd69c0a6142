"""Parses JSON values: lines of text, and bytes.

**Bytes.** msgspec parses twice as fast as Python's parser. It refuses NaN, numbers that no float holds and
lone surrogates. It returns the same value as `parse_one` for each text that it accepts, except that it keeps
the last of fields with the same name. So a value is final if it has as many colons after a quote or a blank
as fields. `parse_one` decides about all others.

**Lines.** One call parses a slice of lines. The lines are joined into one JSON array with `-Infinity`
between them, which parses to a marker object. If the markers are at exactly every second position, each line
held one complete value. A line like `1, 2` or `[1` would shift or swallow a marker. One call is twice as fast
as a call per line. Other slices, and text that contains `-Infinity`, are parsed line by line.

Python's parser keeps the last of two fields with the same name, and turns `1e400` into infinity. Such lines
are bad. Hooks that detect this take three times as long, so they are used only on suspicious lines. If a
slice has as many colons after a quote or a blank as parsed fields, no field was lost.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

import numpy as np

_MARKER: Final = object()

_CONSTANTS: Final = {"-Infinity": _MARKER, "NaN": math.nan, "Infinity": math.inf}

_COLON: Final = ord(":")
#: The blanks of JSON have smaller codes.
_QUOTE: Final = ord('"')

_INFINITE: Final = frozenset((math.inf, -math.inf))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"it has the field {twice!r} twice"
        raise ValueError(msg)
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if number in _INFINITE:
        msg = f"no float can hold {digits}"
        raise ValueError(msg)
    return number


_parse_flat: Final = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__).decode

_parse_marked: Final = json.JSONDecoder(
    parse_constant=_CONSTANTS.__getitem__, parse_float=_finite, object_pairs_hook=_distinct
).decode
#: Parses one JSON value; raises `ValueError` where Python's parser would lose a field or a number.
parse_one: Final = json.JSONDecoder(parse_float=_finite, object_pairs_hook=_distinct).decode


def parse_together(lines: Sequence[str]) -> list[Any] | None:
    """Parse lines of one JSON value each in one call; `None` when a line may hold anything else.

    Example:
        >>> parse_together(['{"a": 1}', "[2]"]), parse_together(["[1", "2]"]), parse_together(["1, 2", "3"])
        ([{'a': 1}, [2]], None, None)
    """
    inner = ",-Infinity,".join(lines)
    if inner.count("-Infinity") != len(lines) - 1:
        return None
    text = f"[{inner}]"
    try:
        parsed: list[Any] = _parse_flat(text)
        if _may_differ(parsed[::2], _colons(text)):
            parsed = _parse_marked(text)
    except (ValueError, RecursionError):
        return None
    if len(parsed) != 2 * len(lines) - 1 or parsed[1::2].count(_MARKER) != len(lines) - 1:
        return None
    return parsed[::2]


def parse_values(values: Sequence[bytes]) -> list[Any] | None:
    """Parse byte strings of one JSON value each.

    Returns `None` if one of several may be bad, or if the only one is bad.

    Example:
        >>> parse_values([b'{"a": 1}', b"[2]"]), parse_values([b'{"a": 1, "a": 2}'])
        ([{'a': 1}, [2]], None)
    """
    fast = _fast_parser()
    if fast is None:
        return _parse_slowly(values)
    try:
        rows = list(map(fast, values))
    except (ValueError, RecursionError):  # `parse_one` decides: this parser refuses NaN and lone surrogates
        return _parse_slowly(values) if len(values) == 1 else None
    colons = _colons_of_bytes(b"\n".join(values))
    if (set(map(type, rows)) == {dict} and sum(map(len, rows)) == colons) or not _may_differ(rows, colons):
        return rows
    try:
        return [
            parse_one(value.decode()) if _may_differ([row], _colons_of_bytes(value)) else row
            for row, value in zip(rows, values, strict=True)
        ]
    except (ValueError, RecursionError):
        return None


def _parse_slowly(values: Sequence[bytes]) -> list[Any] | None:
    try:
        texts = [value.decode() for value in values]
        return [parse_one(texts[0])] if len(texts) == 1 else parse_together(texts)
    except (ValueError, RecursionError):
        return None


@cache
def _fast_parser() -> Callable[[bytes], Any] | None:
    """The parser of msgspec, which keeps the last of fields with the same name; `None` without msgspec."""
    if importlib.util.find_spec("msgspec") is None:
        return None
    import msgspec  # optional, and imported here because most jobs don't need it

    decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
    return decode


def _colons(text: str) -> int:
    """Number of colons after a quote or a blank, which is at least the number of fields."""
    return text.count('":') + text.count(" :") + text.count("\t:") + text.count("\r:") + text.count("\n:")


def _colons_of_bytes(text: bytes) -> int:
    """As `_colons`, but also counts colons after `!`; numpy needs half the time of `bytes.count`."""
    signs = np.frombuffer(text, np.uint8)
    return int(np.count_nonzero((signs[1:] == _COLON) & (signs[:-1] <= _QUOTE)))


def _may_differ(values: Sequence[Any], colons: int) -> bool:
    """Whether an object may have two fields with the same name, or a number may have become infinity."""
    fields = 0
    level = values
    if set(map(type, level)) != {dict}:
        level = [level]  # the records may be numbers
    while level:
        dicts = level if set(map(type, level)) == {dict} else [item for item in level if type(item) is dict]
        fields += sum(map(len, dicts))
        inner = [part for item in level if type(item) is list for part in item] if dicts is not level else []
        level = []
        try:
            is_finite = _INFINITE.isdisjoint(chain(inner, chain.from_iterable(map(dict.values, dicts))))
        except TypeError:  # there is a list or an object, which has no hash
            values = [*inner, *chain.from_iterable(map(dict.values, dicts))]
            level = [part for part in values if type(part) is dict or type(part) is list]
            is_finite = _INFINITE.isdisjoint([part for part in values if type(part) is float])
        if not is_finite:
            return True
    return colons != fields
