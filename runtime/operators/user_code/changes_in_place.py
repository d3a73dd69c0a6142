"""Finds out whether a value that a user's function was given is changed afterwards.

A value is taken apart, by identity, before the function runs and after it. That is no proof. It goes two
levels deep and stops after some parts. It sees nothing of arrays and of attributes that begin with `_`: most
of these are caches, and filling a cache is no mistake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import chain, islice
from operator import is_not
from typing import Any, Final, TypeAlias

#: How many calls of a function in each attempt are watched for changes in place.
WATCHED_CALLS: Final = 100

#: How many records of each call are watched, where a function is given many.
WATCHED_RECORDS: Final = 1_000

_MOST_PARTS: Final = 1_000

#: How many parts each mutable thing has, and the parts themselves.
Parts: TypeAlias = tuple[list[int], list[Any]]


def parts_of(value: Any) -> Parts:
    """What a mutable value consists of, and what its parts consist of; nothing for what can't be looked into.

    Example:
        >>> parts_of({"items": [1, 2]})
        ([1, 2], ['items', [1, 2], 1, 2])
        >>> parts_of(1)
        ([], [])
    """
    sizes: list[int] = []
    parts: list[Any] = []
    _take_apart(value, sizes, parts)
    for part in list(parts):
        _take_apart(part, sizes, parts)
    return sizes, parts


def is_changed(value: Any, before: Parts) -> bool:
    """Whether a value has other parts than before.

    Example:
        >>> value = {"items": [1]}
        >>> before = parts_of(value)
        >>> value["items"].append(2)
        >>> is_changed(value, before)
        True
    """
    sizes, parts = parts_of(value)
    # Equal sizes make equally many parts.
    return sizes != before[0] or any(map(is_not, parts, before[1]))


def _take_apart(value: Any, sizes: list[int], parts: list[Any]) -> None:
    held = _held(value)
    if held is not None:
        size, within = held
        sizes.append(size)
        parts.extend(islice(within, _MOST_PARTS - min(_MOST_PARTS, len(parts))))


def _held(value: Any) -> tuple[int, Iterable[Any]] | None:
    """How many things a value holds, and which."""
    if isinstance(value, dict):
        return len(value), chain.from_iterable(value.items())
    if isinstance(value, list | tuple | set | deque | bytearray):
        return len(value), value
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        attributes = [getattr(value, field.name, None) for field in fields(value)]
        return len(attributes), attributes
    try:
        named = object.__getattribute__(value, "__dict__")  # a `__getattr__` of the user's is not asked
    except AttributeError:
        return None
    attributes = [part for name, part in named.items() if _is_data(value, name)]
    return len(attributes), attributes


def _is_data(value: Any, name: str) -> bool:
    return not name.startswith("_") and not isinstance(getattr(type(value), name, None), cached_property)
