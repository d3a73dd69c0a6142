"""Values and rows come back from the codecs equal and of the same type."""

from __future__ import annotations

import math
from datetime import date, time
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from codec_values import (
    FIRST,
    LAST,
    Colour,
    Empty,
    Frozen,
    Mode,
    Pair,
    Rows,
    Text,
    any_text,
    datetimes,
    hashable_leaves,
    rows,
    same,
    timestamps,
    values,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import CodecError
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import (
    RowBatch,
)
from penstock.runtime.record.value_codec import ValueCodec


@given(values)
def test_a_value_comes_back_equal_and_of_the_same_type_without_pickle(value: Any) -> None:
    codec = ValueCodec(allow_pickle=False)
    assert same(codec.loads(codec.dumps(value)), value)


@given(
    hashable_leaves.flatmap(lambda leaf: st.lists(st.just(leaf) | hashable_leaves, min_size=2, max_size=5))
)
def test_a_column_of_simple_values_comes_back_equal_and_of_the_same_type(column: list[Any]) -> None:
    codec = ValueCodec(allow_pickle=False)
    assert same(codec.loads(codec.dumps(column)), column)


columns = st.sampled_from(
    [
        any_text,
        st.integers(),
        st.floats(),
        st.booleans(),
        datetimes,
        st.datetimes(),
        st.datetimes(FIRST, LAST, timezones=st.just(ZoneInfo("Europe/Berlin"))),
        st.decimals(),
        st.sampled_from(Colour),
        st.sampled_from(Mode),
        st.floats().map(np.float64),
        st.integers(0, 9).map(np.int32),
        st.binary().map(bytearray),
        st.tuples(st.integers(), any_text),
        st.lists(st.integers(), min_size=2, max_size=2),
        st.builds(Pair, st.integers(), any_text),
        st.builds(Frozen, st.integers()),
        st.builds(Empty),
        st.one_of(st.none(), st.integers()),
        st.dictionaries(st.sampled_from([1, True, 1.0, "1"]), st.integers(), max_size=2),
        st.tuples(),
    ]
)


@given(columns.flatmap(lambda column: st.lists(column, min_size=1, max_size=20)))
def test_a_column_of_one_type_comes_back_equal_and_of_the_same_type(column: list[Any]) -> None:
    codec = ValueCodec(allow_pickle=False)
    assert same(codec.loads(codec.dumps(column)), column)


@given(st.one_of(st.text().map(Text), st.lists(st.integers()).map(Rows), st.builds(range, st.integers(0, 9))))
def test_a_subclass_of_a_builtin_is_pickled_or_refused_but_never_becomes_its_base(value: Any) -> None:
    codec = ValueCodec()
    assert same(codec.loads(codec.dumps([value, 1])), [value, 1])
    assert codec.pickled == 1
    with pytest.raises(CodecError, match=f"{type(value).__name__} can only be pickled"):
        ValueCodec(allow_pickle=False).dumps([value, 1])
    with pytest.raises(CodecError, match="holds a pickled value"):
        ValueCodec(allow_pickle=False).loads(codec.dumps([value, 1]))


@given(rows, st.data())
def test_rows_come_back_equal_and_of_the_same_type(given_rows: list[Any], data: st.DataObject) -> None:
    stamps = data.draw(
        st.none() | st.lists(timestamps, min_size=len(given_rows), max_size=len(given_rows)), label="stamps"
    )
    codec = BatchCodec(allow_pickle=False)
    buffer = codec.encode(RowBatch(given_rows, stamps))
    batch = codec.decode(buffer)
    assert isinstance(batch, RowBatch)
    assert same(list(batch.rows), given_rows)
    assert same(batch.timestamps, stamps)
    assert buffer.rows == len(given_rows)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, -0.0, UUID(int=5), Fraction(1, 3), date.min, time.max]
)
def test_the_comparison_of_these_tests_tells_types_apart(value: Any) -> None:
    assert same(value, value)
    assert not same([value], [str(value)])
    assert not same([1], [True])
    assert not same([0.0], [-0.0])
