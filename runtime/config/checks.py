"""Checks that settings share: of locations, numbers, choices, and mappings with unknown names.

A check of a value returns it in the form that the runtime uses. Its `ConfigurationError` names the setting,
the given value and the allowed values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Self, TypeAlias, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.names import NearestNames, nearest_argument, nearest_name

#: A location that users give: a path, or a URL.
Location: TypeAlias = str | os.PathLike[str]

C = TypeVar("C")
EnumT = TypeVar("EnumT", bound=Enum)
S = TypeVar("S", bound="Settings")


def location(name: str, value: object) -> str:
    """Return a path or URL as text."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip():
        msg = f"{name}={value!r}: give the path or URL, such as '/data/jobs' or 's3://bucket/jobs'"
        raise ConfigurationError(msg)
    return text


def whole_number(name: str, value: object, *, at_least: int) -> int:
    """Return a whole number; refuses a bool.

    Example:
        >>> whole_number("retain", 3, at_least=1)
        3
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        msg = f"{name}={value!r}: give a whole number of at least {at_least}"
        raise ConfigurationError(msg)
    return value


def real_number(name: str, value: object, *, at_least: float, at_most: float = math.inf) -> float:
    """Return a finite number within bounds, both inclusive."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and at_least <= number <= at_most:
            return number
    upper = "" if at_most == math.inf else f" and at most {at_most:g}"
    msg = f"{name}={value!r}: give a number of at least {at_least:g}{upper}"
    raise ConfigurationError(msg)


def truth(name: str, value: object) -> bool:
    """Return `True` or `False`; refuses any other value."""
    if not isinstance(value, bool):
        msg = f"{name}={value!r}: give True or False"
        raise ConfigurationError(msg)
    return value


def choice(name: str, value: object, kind: type[EnumT]) -> EnumT:
    """Return a member of `kind`; users may give the member or its value."""
    if isinstance(value, kind):
        return value
    for member in kind:
        if isinstance(value, str) and member.value == value:
            return member
    allowed = ", ".join(repr(member.value) for member in kind)
    msg = f"{name}={value!r}: give one of {allowed}"
    raise ConfigurationError(msg)


def check_names(owner: str, given: Mapping[str, Any], allowed: list[str]) -> None:
    """Refuse unknown names; the error suggests the nearest known name.

    Example:
        >>> check_names("Checkpointing", {"evry": 1}, ["every", "storage"])
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: Checkpointing has no setting 'evry'; did you mean 'every'?
    """
    for name in given:
        if name in allowed:
            continue
        hint = nearest_argument(str(name), allowed) or f"; it has {', '.join(allowed) or 'none'}"
        msg = f"{owner} has no setting {name!r}{hint}"
        raise ConfigurationError(msg)


def from_fields(kind: type[C], given: Mapping[str, Any]) -> C:
    """Build the dataclass `kind` from a mapping of its settings."""
    allowed = [field.name for field in fields(kind) if field.init]  # type: ignore[arg-type]
    check_names(kind.__name__, given, allowed)
    try:
        return kind(**given)
    except TypeError as error:
        msg = f"{kind.__name__}: {str(error).removeprefix(f'{kind.__name__}.__init__() ')}"
        raise ConfigurationError(msg) from error


def of_kind(setting: str, kinds: Mapping[str, type[S]], given: Mapping[str, Any]) -> S:
    """Build settings from a mapping with their `kind` and the settings of that kind."""
    kind = given.get("kind")
    if not isinstance(kind, str):
        msg = f"{setting} kind={kind!r}: give one of {', '.join(map(repr, kinds))}"
        raise ConfigurationError(msg)
    if kind not in kinds:
        hint = nearest_name(kind, kinds) or f"; give one of {', '.join(map(repr, kinds))}"
        msg = f"{setting} has no kind {kind!r}{hint}"
        raise ConfigurationError(msg)
    return kinds[kind].from_mapping({name: value for name, value in given.items() if name != "kind"})


class Settings(metaclass=NearestNames):
    """Base of settings: frozen dataclasses that can be built from a mapping, as read from a file."""

    __slots__ = ()

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Build the settings from a mapping.

        Raises:
            ConfigurationError: A setting is unknown (the nearest one is named), missing or not allowed.

        Example:
            >>> from penstock import Checkpointing
            >>> Checkpointing.from_mapping({"every": 5, "max_concurent": 2})
            Traceback (most recent call last):
            ...
            penstock.runtime.errors.ConfigurationError: Checkpointing has no setting 'max_concurent'; \
did you mean 'max_concurrent'?
        """
        return from_fields(cls, given)
