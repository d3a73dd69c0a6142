"""Checks that the values of a dataclass have the types that its fields declare, all the way down.

What was read from JSON may hold anything: `from_dict` builds a report whose time is a text, and whoever sorts
reports by their times fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from sys import float_info
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def check_types(value: object, kind: Any, where: str = "") -> None:
    """Raise a `TypeError` that names the first part of another type than declared.

    A whole number does for a `float`; a number that is not finite does for none.

    Args:
        value: A dataclass, or a part of one.
        kind: Its declared type.
        where: The way to it, for the message.

    Example:
        >>> from penstock.runtime.snapshot.subtask_id import SubtaskId
        >>> check_types(SubtaskId("map", "0"), SubtaskId)
        Traceback (most recent call last):
        TypeError: index is '0' and no int
    """
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, kind):
            raise _wrong(value, kind, where)
        for name, declared in _declared(kind):
            check_types(getattr(value, name), declared, f"{where}.{name}" if where else name)
        return
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        _check_union(value, arguments, kind, where)
    elif origin is tuple:
        if not isinstance(value, tuple):
            raise _wrong(value, kind, where)
        is_open = arguments[-1:] == (...,)
        if not is_open and len(value) != len(arguments):
            raise _wrong(value, kind, where)
        for place, each in enumerate(value):
            check_types(each, arguments[0 if is_open else place], f"{where}[{place}]")
    elif origin in (Mapping, dict):
        if not isinstance(value, Mapping):
            raise _wrong(value, kind, where)
        for key, each in value.items():
            check_types(key, arguments[0], f"a key of {where}")
            check_types(each, arguments[1], f"{where}[{key!r}]")
    elif origin in (Sequence, list):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise _wrong(value, kind, where)
        for place, each in enumerate(value):
            check_types(each, arguments[0], f"{where}[{place}]")
    elif kind is not Any and not _is_plain(value, kind):
        raise _wrong(value, kind, where)


@cache
def _declared(kind: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((each.name, hints[each.name]) for each in fields(kind))


def _check_union(value: object, kinds: Sequence[Any], kind: Any, where: str) -> None:
    if value is None and type(None) in kinds:
        return
    of_class = [
        each for each in kinds if isinstance(each, type) and is_dataclass(each) and isinstance(value, each)
    ]
    others = [each for each in kinds if each is not type(None)]
    if of_class or len(others) == 1:
        check_types(value, (of_class or others)[0], where)
    elif not any(_is_plain(value, each) for each in others):
        raise _wrong(value, kind, where)


def _is_plain(value: object, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return isinstance(value, kind)
    return isinstance(value, kind) if isinstance(kind, type) else True


def _wrong(value: object, kind: Any, where: str) -> TypeError:
    return TypeError(f"{where or 'it'} is {value!r:.60} and no {getattr(kind, '__name__', kind)}")
