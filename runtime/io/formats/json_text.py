"""Writes JSON values as text.

Python's C encoder is made once and called per value; `json.dumps` would make a new one for every value, which
halves the speed. NaN and infinities are refused, because JSON does not have them and most readers fail on
them.
"""

from __future__ import annotations

import importlib.util
import json
import json.encoder
import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from types import NoneType
from typing import Any, Final

#: Errors of values that can't be written.
ENCODE_ERRORS: Final = (TypeError, ValueError, RecursionError)
#: Types of values that can't hold dicts.
_LEAVES: Final = frozenset((str, int, float, bool, NoneType))
#: Types of values that every encoder writes alike.
_PLAIN: Final = _LEAVES | {dict, list}
#: Maximum depth of values; Python 3.11's encoder refuses deeper ones too.
_DEEPEST: Final = 1_000
#: Down to this depth, a shared value is checked once for each reference to it. Deeper rows are never plain.
_SHALLOW: Final = 8


def check_names(rows: Sequence[Any]) -> None:
    """Refuse dicts with two keys of the same JSON name, such as `1` and `"1"`.

    Raises:
        ValueError: A dict has two such keys.
        RecursionError: A value contains itself, or is nested too deeply.
    """
    level: Sequence[Any] = rows
    for depth in range(_DEEPEST):
        dicts = level if set(map(type, level)) == {dict} else [x for x in level if isinstance(x, dict)]
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            for value in dicts:
                _refuse_equal_names(value)
        values = list(chain.from_iterable(map(dict.values, dicts)))
        if dicts is not level:
            values += chain.from_iterable(x for x in level if isinstance(x, (list, tuple)))
        kinds = list(map(type, values))
        if set(kinds) <= _LEAVES:
            return
        level = [
            x
            for x, kind in zip(values, kinds, strict=True)
            if kind is dict or kind is list or (kind not in _LEAVES and isinstance(x, (dict, list, tuple)))
        ]
        if depth > _SHALLOW:
            # By identity, so that shared and recursive values are checked once.
            level = list({id(x): x for x in level}.values())
    msg = "its values are nested too deeply"
    raise RecursionError(msg)


def _refuse_equal_names(value: dict[Any, Any]) -> None:
    names: set[str] = set()
    for key in value:
        # The name that the encoder writes for this key.
        name = key if isinstance(key, str) else next(iter(json.loads(json.dumps({key: None}))))
        if name in names:
            msg = f"two of its keys have the JSON name {name!r}"
            raise ValueError(msg)
        names.add(name)


def value_encoder(default: Callable[[Any], Any] | None) -> Callable[[Any, int], Sequence[str]]:
    def checked(value: Any) -> Any:
        assert default is not None
        made = default(value)
        check_names([made])
        return made

    encoder = json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
        check_circular=False,
        default=None if default is None else checked,
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: (encoder.encode(value),)
    escape = json.encoder.encode_basestring
    return make(None, encoder.default, escape, None, ":", ",", False, False, False)  # type: ignore[no-any-return]


@cache
def fast_encoder() -> Callable[[Any], bytes] | None:
    """Msgspec's encoder, for values that are plain (`are_plain`); `None` where it is not installed."""
    if importlib.util.find_spec("msgspec") is None:
        return None
    import msgspec  # optional, and imported late: most jobs don't need it

    encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
    return encode


def are_plain(rows: Sequence[Any]) -> bool:
    """Whether all rows are dicts whose keys are strings, and whose values every encoder writes alike.

    Values are strings, integers, finite floats, booleans, `None`, and lists and dicts of them. Rows that are
    nested deeper than `_SHALLOW` levels do not count as plain.
    """
    if set(map(type, rows)) != {dict}:
        return False
    level: Sequence[Any] = rows
    for _ in range(_SHALLOW):
        dicts = level if level is rows else [value for value in level if type(value) is dict]
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            return False
        values = list(chain.from_iterable(map(dict.values, dicts)))
        if level is not rows:
            values += chain.from_iterable(value for value in level if type(value) is list)
        kinds = set(map(type, values))
        if float in kinds and not all(map(math.isfinite, [x for x in values if type(x) is float])):
            return False
        if kinds <= _LEAVES:
            return True
        if not kinds <= _PLAIN:
            return False
        level = [value for value in values if type(value) is dict or type(value) is list]
    return False
