"""Values of every kind that the codecs carry, and when two of them are the same."""

from __future__ import annotations

import struct
from collections import deque, namedtuple
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

# Some days away from the ends, so that every zone's offset still fits.
FIRST, LAST = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
Pair = namedtuple("Pair", ["first", "second"])


class Reading(NamedTuple):
    sensor: str
    value: Any = 0.0


@dataclass
class Order:
    key: Any
    lines: Any = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    key: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    left: Any
    right: Any = None


@dataclass
class Empty:
    pass


class Colour(Enum):
    RED = "red"
    GREEN = (1, 2)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(Flag):
    READ = 1
    WRITE = 2


class Text(str):
    """A string that is not just a string."""


class Rows(list):  # type: ignore[type-arg]
    """A list that is not just a list."""


def same(left: Any, right: Any) -> bool:
    """Equal and of the same type all the way down; nan is nan, -0.0 is not 0.0, order of dicts counts."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        same_form = left.dtype == right.dtype and left.shape == right.shape
        if left.dtype.char == "O":
            return same_form and all_same(left.ravel().tolist(), right.ravel().tolist())
        return same_form and left.tobytes() == right.tobytes()
    if isinstance(left, np.generic):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, Decimal):
        return left.as_tuple() == right.as_tuple()
    if isinstance(left, (datetime, time)):
        return left == right and left.fold == right.fold and same_zone(left.tzinfo, right.tzinfo)
    if isinstance(left, (list, tuple, deque)):
        bound = getattr(left, "maxlen", None) == getattr(right, "maxlen", None)
        return bound and all_same(left, right)
    if isinstance(left, dict):
        return all_same(left, right) and all_same(left.values(), right.values())
    if isinstance(left, (set, frozenset)):
        return all_same(sorted(left, key=stable), sorted(right, key=stable))
    if is_dataclass(left) and not isinstance(left, type):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    return bool(left == right)


def all_same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    ours, theirs = list(left), list(right)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def same_zone(left: tzinfo | None, right: tzinfo | None) -> bool:
    return type(left) is type(right) and left == right and str(left) == str(right)


def stable(item: Any) -> str:
    """A sort key that does not depend on the order of sets, and tells one nan from another."""
    if isinstance(item, frozenset):
        return f"frozenset {sorted(map(stable, item))}"
    if isinstance(item, float):
        return f"float {struct.pack('d', item).hex()}"
    if isinstance(item, tuple):
        return f"{type(item).__name__} {list(map(stable, item))}"
    if is_dataclass(item) and not isinstance(item, type):
        return f"{type(item).__name__} {[stable(getattr(item, f.name)) for f in fields(item)]}"
    return f"{type(item).__name__} {item!r}"


any_text = st.text(st.characters(exclude_categories=()))  # with NUL and lone surrogates
zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.sampled_from(["Europe/Berlin", "America/New_York", "UTC"]).map(ZoneInfo),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text("abc", min_size=1)),
)
datetimes = st.builds(
    lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
    st.datetimes(FIRST, LAST),
    zones,
    st.sampled_from([0, 0, 1]),
)
times = st.builds(
    lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), zones, st.integers(0, 1)
)
numpy_scalars = st.one_of(npst.scalar_dtypes().flatmap(npst.from_dtype)).map(np.asarray).map(lambda a: a[()])
hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(),
    any_text,
    st.binary(),
    st.dates(),
    datetimes,
    times,
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.sampled_from(
        [Decimal("1.10"), Decimal("-0"), Decimal("1E+5"), Decimal("NaN12"), Decimal("-Infinity")]
    ),
    st.fractions(),
    st.uuids(),
    st.complex_numbers(),
    st.sampled_from([*Colour, *Level, *Mode, Mode.READ | Mode.WRITE, Mode(0)]),
)
leaves = st.one_of(
    hashable_leaves,
    st.binary().map(bytearray),
    st.decimals(allow_nan=True),
    numpy_scalars,
    npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, min_side=0, max_side=3)),
    npst.arrays(npst.array_dtypes(), npst.array_shapes(max_side=3)),
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Frozen, inner),
        st.builds(Slotted, inner, inner),
    ),
    max_leaves=5,
)


def object_array(items: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = item
    return array


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(st.tuples(inner, inner), max_size=4),
        st.lists(st.fixed_dictionaries({"a": inner, "b": inner}), max_size=4),
        st.lists(st.builds(Order, inner, inner), max_size=3),
        st.lists(inner, max_size=4).map(object_array),
        st.dictionaries(hashables, inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.sets(hashables, max_size=3),
        st.frozensets(hashables, max_size=3),
        st.builds(deque, st.lists(inner, max_size=3), st.sampled_from([None, 3, 5])),
        st.builds(Pair, inner, inner),
        st.builds(Reading, any_text, inner),
        st.builds(Order, inner, inner),
        st.builds(Slotted, inner, inner),
        st.builds(Empty),
    )


values = st.recursive(leaves, containers, max_leaves=12)
rows = st.one_of(
    st.lists(values, max_size=5),
    st.lists(st.tuples(any_text, st.integers()), max_size=30),
    st.lists(st.tuples(values, values), max_size=4),
    st.lists(st.tuples(st.integers()) | st.tuples(st.integers(), st.integers()), max_size=6),
    st.lists(
        st.fixed_dictionaries({"id": st.integers(), "name": any_text}, optional={"x": values}), max_size=6
    ),
    st.lists(st.builds(Slotted, st.integers(), any_text), max_size=6),
)
timestamps = st.integers(-(1 << 63), (1 << 63) - 1)
