"""Keys that are named by columns, of rows and of batches."""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.errors import ConfigurationError, KeyTypeError, PenstockError
from penstock.runtime.record.column_key import NAN, ColumnKey, as_column_key, one_nan


def test_one_name_gives_the_value_and_several_give_a_tuple() -> None:
    row = {"a": 1, "b": "x", "c": None}
    assert ColumnKey(("a",))(row) == 1
    assert ColumnKey(("b", "a", "c", "missing"))(row) == ("x", 1, None, None)
    assert (ColumnKey(("a",)).is_single, ColumnKey(("a", "b")).is_single) == (True, False)


def test_keys_of_many_dicts_are_those_of_each_of_them() -> None:
    rows = [{"a": 1, "b": "x"}, {"b": "y"}, {"a": None}]
    assert ColumnKey(("a",)).of_rows(rows) == [ColumnKey(("a",))(row) for row in rows] == [1, None, None]


@pytest.mark.parametrize("rows", [[{"a": 0.0}], [{"a": 1}, ("a", 1)], [defaultdict(int)]], ids=repr)
def test_keys_that_are_no_plain_values_of_dicts_are_made_one_by_one(rows: list[Any]) -> None:
    assert ColumnKey(("a",)).of_rows(rows) is None
    assert ColumnKey(("a", "b")).of_rows([{"a": 1, "b": 2}]) is None


@pytest.mark.parametrize("nan", [math.nan, -math.nan, float("nan"), np.float64("nan")], ids=repr)
def test_every_nan_of_a_row_is_the_same_object(nan: float) -> None:
    assert ColumnKey(("a",))({"a": nan}) is NAN
    assert ColumnKey(("b", "a"))({"a": nan})[1] is NAN


def test_zero_has_no_sign_and_keeps_its_type() -> None:
    for value in (0.0, -0.0):
        assert math.copysign(1, ColumnKey(("a",))({"a": value})) == 1
    assert type(ColumnKey(("a",))({"a": 0})) is int


def test_a_pickled_key_is_equal_and_still_makes_the_one_nan() -> None:
    key = pickle.loads(pickle.dumps(ColumnKey(("a", "b"))))
    assert key == ColumnKey(("a", "b"))
    assert key({"a": math.nan, "b": 1}) in {(NAN, 1): "found"}


@pytest.mark.parametrize("row", [("a", 1), "text", 5, None], ids=repr)
def test_a_record_that_is_no_dict_is_refused_with_the_columns(row: Any) -> None:
    with pytest.raises(PenstockError, match=r"names the column 'k', so it needs records that are dicts"):
        ColumnKey(("k",))(row)


@pytest.mark.parametrize(
    ("names", "what"), [((), "no name"), (("a", "b", "a"), "'a' twice"), (("a", 1), "1 is not a name")]
)
def test_names_that_can_not_be_columns_are_refused(names: Any, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        ColumnKey(names)


def test_a_name_and_lists_of_names_make_keys_and_functions_do_not() -> None:
    assert as_column_key("k") == as_column_key(["k"]) == ColumnKey(("k",))
    assert as_column_key(("a", "b")) == as_column_key(["a", "b"]) == ColumnKey(("a", "b"))
    assert as_column_key(ColumnKey(("a",))) == ColumnKey(("a",))
    assert [as_column_key(other) for other in (len, 5, None, {"a": 1})] == [None] * 4


def test_the_columns_of_a_batch_come_in_the_order_of_the_names() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    columns = ColumnKey(("b", "a")).columns(batch)
    assert [column.to_pylist() for column in columns] == [["x", None], [1, 2]]


def test_a_column_that_is_missing_or_there_twice_is_named() -> None:
    twice = pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(KeyTypeError, match=r"has no column 'k': it has a, a"):
        ColumnKey(("k",)).columns(twice)
    with pytest.raises(KeyTypeError, match=r"has 2 columns 'a'"):
        ColumnKey(("a",)).columns(twice)


def test_decoded_keys_have_the_one_nan_and_others_stay_the_same_objects() -> None:
    without: list[Any] = [1, "a", (1.5, None), 2.5]
    assert one_nan(without) is without
    fresh = float("nan")
    keys = one_nan([fresh, ("a", fresh), ("b", 1.0), 2])
    assert {NAN: 1, ("a", NAN): 2, ("b", 1.0): 3, 2: 4}.keys() == set(keys)
