"""Laws of keys and key groups."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.snapshot.handles import KeyGroupRange, RedistributionMode
from penstock.runtime.state.key_groups import (
    KeyToSubtask,
    default_max_parallelism,
    key_group_array,
    key_group_of,
    key_group_range,
    redistribute,
    subtask_of_key_group,
)
from penstock.runtime.state.stable_hash import stable_hash
from penstock.runtime.state.stable_hash_arrays import key_hashes, stable_hashes

decimals = st.decimals().filter(lambda number: not number.is_snan())  # can't be in a set in the first place
numbers = st.integers() | st.integers(-3, 3) | st.floats() | decimals | st.fractions() | st.booleans()
zones = st.none() | st.builds(lambda h: timezone(timedelta(hours=h)), st.integers(-12, 12))
scalars = (
    numbers | st.text(max_size=3) | st.binary(max_size=3) | st.none() | st.uuids() | st.dates()
    | st.timedeltas() | st.datetimes(timezones=zones)
)  # fmt: skip
keys = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
parallelisms = st.integers(1, 300).flatmap(lambda p: st.tuples(st.just(p), st.integers(p, 400)))


def hash_or_refused(key: Any) -> int | None:
    try:
        return stable_hash(key)
    except KeyTypeError:
        return None


def spellings(number: Any) -> list[Any]:
    """The same number in every type that can hold it."""
    same = [number]
    for kind in (int, float, Decimal, Fraction, bool, np.int64, np.float64, np.uint8):
        try:
            other = kind(number)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            continue
        if other == number and hash(other) == hash(number):
            same.append(other)
    return same


@given(numbers)
def test_a_number_hashes_equal_in_every_type(number: Any) -> None:
    assert len({hash_or_refused(same) for same in spellings(number)}) == 1


@given(keys, keys)
def test_equal_keys_hash_equal(left: Any, right: Any) -> None:
    if left == right and None not in (hashes := [hash_or_refused(left), hash_or_refused(right)]):
        assert hashes[0] == hashes[1]


@given(st.datetimes(timezones=zones.filter(lambda zone: zone is not None)), zones.filter(bool))
def test_a_moment_hashes_equal_in_every_zone(moment: datetime, zone: timezone) -> None:
    try:
        elsewhere = moment.astimezone(zone)
    except OverflowError:
        return
    assert stable_hash(moment) == stable_hash(elsewhere)


@given(keys)
def test_a_hash_has_64_bits_and_a_key_without_one_is_refused(key: Any) -> None:
    hashed = hash_or_refused(key)
    assert hashed is None or 0 <= hashed < 1 << 64


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_hash_the_same_in_every_form(numbers: list[int]) -> None:
    expected = [stable_hash(number) for number in numbers]
    assert stable_hashes(numbers).tolist() == expected
    assert key_hashes([pa.array(numbers, type=pa.int64())]).tolist() == expected


@given(st.lists(st.none() | st.text(max_size=4)), st.lists(st.none() | st.binary(max_size=4)))
def test_strings_and_bytes_hash_the_same_in_columns(
    texts: list[str | None], blobs: list[bytes | None]
) -> None:
    assert key_hashes([pa.array(texts, type=pa.string())]).tolist() == [stable_hash(t) for t in texts]
    assert key_hashes([pa.array(blobs, type=pa.binary())]).tolist() == [stable_hash(b) for b in blobs]


@given(st.lists(st.integers() | st.text() | st.dates() | st.tuples(st.integers(), st.text())), parallelisms)
def test_every_key_is_in_exactly_one_subtask(some: list[int | str | date], numbers: tuple[int, int]) -> None:
    parallelism, max_parallelism = numbers
    ranges = [key_group_range(index, parallelism, max_parallelism) for index in range(parallelism)]
    subtask_of = KeyToSubtask(parallelism, max_parallelism, limit=5)
    groups = key_group_array(some, max_parallelism).tolist()
    assert groups == [key_group_of(key, max_parallelism) for key in some]
    for key in some:
        group = key_group_of(key, max_parallelism)
        owners = [index for index, own in enumerate(ranges) if group in own]
        assert owners == [subtask_of[key]]


@given(parallelisms)
def test_ranges_cover_all_key_groups_in_order_and_evenly(numbers: tuple[int, int]) -> None:
    parallelism, max_parallelism = numbers
    ranges = [key_group_range(index, parallelism, max_parallelism) for index in range(parallelism)]
    groups = [group for own in ranges for group in range(own.first, own.last + 1)]
    assert groups == list(range(max_parallelism))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    for index, own in enumerate(ranges):
        assert subtask_of_key_group(own.first, parallelism, max_parallelism) == index
        assert subtask_of_key_group(own.last, parallelism, max_parallelism) == index


@given(*[st.integers(0, 50)] * 4)
def test_an_intersection_holds_what_is_in_both(a: int, b: int, c: int, d: int) -> None:
    left, right = KeyGroupRange(a, b), KeyGroupRange(c, d)
    common = left.intersection(right)
    inside = [group for group in range(60) if group in left and group in right]
    assert [group for group in range(60) if group in common] == inside
    assert len(common) == len(inside)


@given(st.integers(1, 32_768))
def test_the_default_leaves_room_to_grow(parallelism: int) -> None:
    default = default_max_parallelism(parallelism)
    assert default.bit_count() == 1
    assert 128 <= default <= 32_768
    assert default >= min(parallelism * 3 // 2, 32_768)


modes = dict(zip("abcdef", list(RedistributionMode) * 2, strict=True))
states = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9))


@given(st.lists(states, min_size=1, max_size=6), st.integers(1, 8))
def test_list_states_are_shared_out_by_their_mode(sizes: list[dict[str, int]], new_parallelism: int) -> None:
    old = [
        {name: (modes[name], [(name, index, at) for at in range(size)]) for name, size in subtask.items()}
        for index, subtask in enumerate(sizes)
    ]
    new = redistribute(old, new_parallelism)
    names = {name for subtask in old for name in subtask}
    totals = [0] * new_parallelism
    for name in names:
        lists = [subtask[name][1] for subtask in old if name in subtask]
        every = [value for values in lists for value in values]
        got = [subtask[name] for subtask in new]
        if modes[name] is RedistributionMode.UNION:
            assert got == [every] * new_parallelism
        elif modes[name] is RedistributionMode.BROADCAST:
            assert all(values in lists for values in got)
        else:
            assert [value for values in got for value in values] == every
            totals = [total + len(values) for total, values in zip(totals, got, strict=True)]
    if new_parallelism != len(old):
        assert max(totals) - min(totals) <= 1
