"""Dataclasses as plain values for JSON, and back with every type checked.

A dataclass becomes a dict of its fields, an enum its value, a tuple a list, and a `SubtaskId` a pair. Reading
ignores unknown names, and uses the defaults of missing fields. So a newer version may add fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from math import inf, nextafter
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from penstock.runtime.snapshot.ids import SubtaskId

#: Key in a dataclass field's metadata; holds the field's name in plain values, if that name differs.
PLAIN_NAME: Final = "plain_name"

#: The largest float; larger integers, infinity and NaN are not accepted as floats.
_LARGEST: Final = nextafter(inf, 0.0)

_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def to_plain(value: Any) -> Any:
    kind: Any = type(value)
    if kind in _ATOMS:
        return value
    if kind is SubtaskId:
        return [value.vertex, value.index]
    if names := _names(kind):
        return {plain: to_plain(getattr(value, name)) for name, plain in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


@cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """Return the name of each field, and its plain name; empty for a type that is not a dataclass."""
    if not is_dataclass(kind):
        return ()
    return tuple((known.name, _name_of(known)) for known in fields(kind))


def from_plain(kind: Any, value: Any, where: str = "") -> Any:
    """Build a value of a declared type; an `int` counts as a `float`; infinities and NaN are refused.

    Raises:
        TypeError: A value is missing or has another type; the message names it.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _from_union(arguments, value, where)
    if origin is tuple and isinstance(value, Sequence) and not isinstance(value, str):
        is_open = arguments[-1] is ...
        if is_open or len(value) == len(arguments):
            kinds = arguments[:1] * len(value) if is_open else arguments
            items = enumerate(zip(kinds, value, strict=True))
            return tuple(from_plain(declared, item, f"{where}[{at}]") for at, (declared, item) in items)
    elif origin is Mapping and isinstance(value, Mapping):
        return {
            from_plain(arguments[0], key, f"a key of {where}"): from_plain(
                arguments[1], item, f"{where}[{key!r}]"
            )
            for key, item in value.items()
        }
    elif kind is SubtaskId:
        return SubtaskId(*from_plain(tuple[str, int], value, where))
    elif is_dataclass(kind) and isinstance(value, Mapping):
        return kind(**_arguments(kind, value, where))  # type: ignore[operator]
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if value in [member.value for member in kind]:
            return kind(value)
    elif _is_of(kind, value):
        return value
    msg = f"{where or 'the value'} is {value!r:.60}, not a valid {getattr(kind, '__name__', kind)}"
    raise TypeError(msg)


def _from_union(kinds: Sequence[Any], value: Any, where: str) -> Any:
    """Build a value of the first type that is not `None`.

    For a dict, build the dataclass that shares most names with it.
    """
    if value is None and type(None) in kinds:
        return None
    choices = [choice for choice in kinds if choice is not type(None)]
    if isinstance(value, Mapping):
        choices.sort(key=lambda choice: -len(_declared(choice).keys() & value.keys()))
    return from_plain(choices[0], value, where)


def _arguments(kind: Any, value: Mapping[str, Any], where: str) -> dict[str, Any]:
    arguments = {}
    for name, (known, declared) in _declared(kind).items():
        place = f"{where}.{name}" if where else name
        if name in value:
            arguments[known.name] = from_plain(declared, value[name], place)
        elif known.default is MISSING and known.default_factory is MISSING:
            msg = f"{place} is missing"
            raise TypeError(msg)
    return arguments


@cache
def _declared(kind: Any) -> dict[str, tuple[Field[Any], Any]]:
    """Return field and type by plain name; empty for a type that is not a dataclass."""
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {_name_of(known): (known, hints[known.name]) for known in fields(kind)}


def _name_of(known: Field[Any]) -> str:
    return str(known.metadata.get(PLAIN_NAME, known.name))


def _is_of(kind: Any, value: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind)
