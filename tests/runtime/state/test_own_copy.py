"""`own_copy`: equal values of the same types that share nothing that can change."""

from __future__ import annotations

import enum
import threading
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import PenstockError
from penstock.runtime.state.own_copy import can_change, own_batch, own_copies, own_copy


@dataclass
class Order:
    id: int
    items: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Fixed:
    id: int
    part: Any


@dataclass(frozen=True, slots=True)
class FixedSlots:
    id: int
    part: Any


@dataclass(slots=True)
class Slots:
    id: int
    part: Any


class Pair(NamedTuple):
    id: int
    part: Any


class Plain:
    def __init__(self) -> None:
        self.items = [1]

    def __repr__(self) -> str:
        return f"Plain({self.items})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Rows(list[Any]):
    pass


class Settings(dict[str, Any]):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.note = ["kept"]


class Level(enum.Enum):
    LOW = 1


FIXED = [
    None,
    1,
    2.5,
    "text",
    b"bytes",
    Decimal("1.50"),
    date(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC),
    timedelta(1),
    UUID(int=1),
    Level.LOW,
    int,
    np.float64(2),
    range(3),
    (),
    (1, "a"),
    (1, 2, ("a", (None,))),
    frozenset({1, (2, 3)}),
    Fixed(1, ("a", 2)),
    FixedSlots(1, "a"),
    Pair(1, "a"),
]

CHANGING = [
    [1],
    {"a": 1},
    {"a": [1]},
    {1: {"b": {2}}},
    {(1, 2): 3},
    {1, 2},
    bytearray(b"x"),
    deque([[1]], maxlen=3),
    ([1],),
    (1, {"a": 1}),
    (1, 2, [3]),
    {"array": np.arange(3)},
    {"bytes": bytearray(b"x")},
    {"numbers": array("i", [1])},
    (np.arange(2), 1),
    np.array([[1], None], dtype=object),
    np.zeros(2, dtype=[("a", "i4")]),
    array("d", [1.0]),
    Order(1, [2]),
    (1, Order(2)),
    Fixed(1, [2]),
    FixedSlots(1, [2]),
    Slots(1, [2]),
    Pair(1, [2]),
    Plain(),
    {"plain": Plain()},
    Rows([[1]]),
    Settings(a=[1]),
    OrderedDict(a=[1]),
    Counter("aab"),
    defaultdict(list, {"a": [1]}),
    {"day": datetime(2026, 1, 1, tzinfo=UTC), "tags": ["a"]},
]


@pytest.mark.parametrize("value", FIXED, ids=repr)
def test_what_can_not_change_is_its_own_copy(value: Any) -> None:
    assert own_copy(value) is value
    assert own_copies([value, value])[1] is value
    assert not can_change([value])


@pytest.mark.parametrize("value", CHANGING, ids=repr)
def test_what_can_change_is_copied_with_all_of_its_parts(value: Any) -> None:
    copied = own_copy(value)
    assert copied is not value
    assert type(copied) is type(value)
    assert repr(copied) == repr(value)
    assert not _shared(copied, value)
    assert can_change([1, value])


def _shared(one: Any, other: Any) -> list[Any]:
    """Mutable parts that two values share."""
    found: dict[int, Any] = {}
    for value, known in ((one, None), (other, found)):
        waiting = [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, (list, dict, set, deque, bytearray, np.ndarray, array, Order, Plain, Slots)):
                if known is None:
                    found[id(part)] = part
                elif id(part) in known:
                    return [part]
            if isinstance(part, dict):
                waiting += [*part, *part.values()]
            elif isinstance(part, (list, tuple, set, frozenset, deque)):
                waiting += part
            if hasattr(part, "__dict__") and not isinstance(part, type):
                waiting += vars(part).values()
            waiting += [getattr(part, name) for name in getattr(type(part), "__slots__", ()) if name]
            if isinstance(part, np.ndarray) and part.dtype == object:
                waiting += part.tolist()
    return []


_LEAVES = st.none() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False) | st.binary(max_size=2)
_VALUES = st.recursive(
    _LEAVES,
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.dictionaries(st.text(max_size=2), parts, max_size=3)
        | st.tuples(parts, parts)
        | st.builds(Order, st.integers(), st.lists(parts, max_size=2))
        | st.builds(Pair, st.integers(), parts)
        | st.builds(Fixed, st.integers(), parts)
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(value: Any) -> None:
    before = deepcopy(value)
    copied = own_copy(value)
    assert copied == before
    assert not _shared(copied, value)
    assert own_copies([value]) == [before]


def test_a_value_that_holds_itself_is_copied() -> None:
    value: list[Any] = [1]
    value.append(value)
    copied = own_copy(value)
    assert copied is not value
    assert copied[1] is copied


def test_what_can_not_be_copied_is_refused_by_name() -> None:
    with pytest.raises(
        PenstockError, match=r"a value of type _thread\.lock can't be copied .*make all other"
    ):
        own_copy({"lock": threading.Lock()})


def test_an_arrow_batch_gets_memory_of_its_own() -> None:
    numbers = np.arange(4)
    batch = pa.record_batch(
        {"n": pa.array(numbers), "t": pa.array(["a", None, "b", "c"]).dictionary_encode()}
    )
    kept = own_batch(batch.slice(1))
    numbers[:] = 0
    assert kept.to_pydict() == {"n": [1, 2, 3], "t": [None, "b", "c"]}


class Cents(int):
    """Is made of euros."""

    def __new__(cls, euros: int) -> Cents:
        return super().__new__(cls, euros * 100)


class Pair(str):
    def __new__(cls, first: str, second: str) -> Pair:
        return super().__new__(cls, first + second)

    def __str__(self) -> str:
        return "hidden"


class Vector(tuple[Any, ...]):
    def __new__(cls, *parts: Any) -> Vector:
        return super().__new__(cls, parts)

    def __iter__(self) -> Any:
        return iter(())


class PointBase(NamedTuple):
    x: int


class NextPoint(PointBase):
    def __new__(cls, x: int) -> NextPoint:
        return super().__new__(cls, x + 1)


@pytest.mark.parametrize("value", [Cents(3), Pair("a", "b"), Vector(1, [2]), NextPoint(1)])
def test_a_copy_is_never_made_by_a_call_of_a_users_new(value: Any) -> None:
    value.note = ["first"]
    copied = own_copy(value)
    value.note.append("second")
    base = next(kind for kind in (int, str, tuple) if isinstance(value, kind))
    assert type(copied) is type(value)
    assert base.__eq__(copied, value)
    assert copied.note == ["first"]


def test_parts_of_a_tuple_of_an_own_class_are_copied() -> None:
    value = Vector([1])
    copied = own_copy(value)
    value[0].append(2)
    assert copied[0] == [1]
