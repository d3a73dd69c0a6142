"""Values to which a snapshot may keep a reference, and those that it has to encode at once."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.immutable_values import DELETED, ImmutableValues


class Place(NamedTuple):
    city: str
    box: Any


Loose = namedtuple("Loose", "a b")


class Extended(Loose):
    """Has a `__dict__`: an attribute may be set at any time."""


class Reversed(Loose):
    __slots__ = ()

    def __iter__(self):
        return iter(([], []))


@dataclass(frozen=True)
class Account:
    owner: str
    parts: Any = ()


@dataclass(frozen=True, slots=True)
class Slotted:
    owner: str
    parts: Any = ()


@dataclass
class Open:
    owner: str


@dataclass(frozen=True)
class Lazy:
    owner: str

    @cached_property
    def letters(self) -> list[str]:
        return list(self.owner)


class Child(Account):
    """No dataclass of its own: attributes beside the fields can be set."""


@dataclass(frozen=True)
class Filled:
    seen: list[int] = field(default_factory=list)


class Text(str):
    """May have attributes."""


class Number(int):
    """May have attributes."""


class Pair(tuple):
    """May have attributes."""


class Zone(tzinfo):
    """A time zone of a user's."""

    def utcoffset(self, _):
        return timedelta(0)


class Color(Enum):
    RED = 1


FIXED = [
    None,
    True,
    1,
    1.5,
    1j,
    Decimal("1.10"),
    "text",
    b"bytes",
    date(2026, 1, 1),
    timedelta(1),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1),  # noqa: DTZ001 - a naive one is fixed, too
    UUID(int=1),
    Color.RED,
    (),
    (1, ("a", (None, b"b"))),
    Place("Rome", (1, 2)),
    Loose(1, Place("Oslo", None)),
    Account("ann", (1, Account("bob"))),
    Slotted("ann", Slotted("bob")),
]
CHANGEABLE = [
    [],
    {},
    set(),
    frozenset([1]),  # may be fixed; no code looks into it
    bytearray(b"x"),
    ([],),
    (1, (2, (3, {}))),
    Place("Rome", []),
    Loose({}, 1),
    Extended(1, 2),
    Reversed(1, 2),
    Account("ann", []),
    Account("ann", (1, {})),
    Slotted("ann", [1]),
    Open("ann"),
    Lazy("ann"),
    Child("ann"),
    Filled(),
    Text("text"),
    Number(1),
    Pair((1, 2)),
    (1, Text("text")),
    datetime(2026, 1, 1, tzinfo=Zone()),
    object(),
    len,
    int,
]


@pytest.fixture
def fixed() -> ImmutableValues:
    return ImmutableValues(ValueCodec())


@pytest.mark.parametrize("value", FIXED, ids=lambda value: type(value).__name__)
def test_a_value_that_can_not_change_is_kept_by_reference(fixed: ImmutableValues, value: Any) -> None:
    assert fixed.are_immutable([value])
    assert fixed.mutable({"a": value, "b": 1, "c": DELETED}) == []


@pytest.mark.parametrize("value", CHANGEABLE, ids=lambda value: type(value).__name__)
def test_a_value_that_may_change_is_not(fixed: ImmutableValues, value: Any) -> None:
    assert not fixed.are_immutable([value])
    assert fixed.mutable({"a": value}) == ["a"]


def test_of_many_values_exactly_those_that_may_change_are_named(fixed: ImmutableValues) -> None:
    values = [*FIXED, *CHANGEABLE, *reversed(FIXED)]
    mutable = [number for number, value in enumerate(values) if any(value is one for one in CHANGEABLE)]
    assert fixed.mutable(dict(enumerate(values))) == mutable


def test_one_value_that_may_change_does_not_hide_among_many_of_its_type(fixed: ImmutableValues) -> None:
    values: dict[int, Any] = {number: ("ann", number) for number in range(1000)}
    values[500] = "ann", [500]
    assert fixed.mutable(values) == [500]


def test_tuples_too_deep_to_look_into_may_change(fixed: ImmutableValues) -> None:
    deep: Any = 1
    for _ in range(50):
        deep = (deep,)
    assert not fixed.are_immutable([deep])


def test_an_attribute_beside_the_fields_is_looked_at(fixed: ImmutableValues) -> None:
    account = Account("ann")
    assert fixed.are_immutable([account])
    vars(account)["cache"] = []
    assert not fixed.are_immutable([account])


def test_a_record_whose_class_can_not_be_found_again_is_refused_at_once(fixed: ImmutableValues) -> None:
    local = dataclass(frozen=True)(type("Local", (), {"__annotations__": {"a": int}}))
    assert not fixed.are_immutable([local(1)])
