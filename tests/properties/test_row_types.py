"""What is computed for rows is the same for any cut into batches, or fails with the same error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.expressions.filter_expression import FilterExpressionOperator
from penstock.runtime.operators.expressions.select_columns import SelectOperator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.testing.harness import OperatorHarness

V: Final = pc.field("v")
#: Values of every type that an expression may meet, beside those that it can't hold.
VALUES: Final = (
    None,
    True,
    0,
    3,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    2.5,
    -0.0,
    math.nan,
    "a",
    "DE",
    "\ud800",
    b"a",
    Decimal("1.5"),
    Decimal("1.50"),
    Decimal("12345678901234567890.123"),
    Decimal("NaN"),
    date(2020, 1, 1),
    datetime(2020, 1, 1),  # noqa: DTZ001 - a naive one
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime(2022, 11, 6, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York")),
    timedelta(microseconds=1),
    timedelta.max,
    pd.Timestamp("2020-01-01T00:00:00.000000001Z"),
    pd.Timedelta(1, "ns"),
    np.datetime64(1, "ns"),
    np.int32(3),
    [1, None],
    [1, "a"],
    [],
    {"x": 1},
    {"x": "a", "y": 2},
    {},
    (1, "a"),
    {1: 2},
    {1, 2},
)
EXPRESSIONS: Final[dict[str, Operator]] = {
    "isin": FilterExpressionOperator(V.isin(["DE"])),
    "greater": FilterExpressionOperator(V > 2),
    "null": FilterExpressionOperator(V.is_null()),
    "itself": SelectOperator(["k"], {"w": V}),
    "sum": SelectOperator(None, {"w": V + 1}),
    "twice": SelectOperator(None, {"w": V * V, "is": V.is_valid()}),
    "divided": SelectOperator(None, {"w": V / 2}),
    "filled": SelectOperator(None, {"w": pc.coalesce(V, 0)}),
    "lower": SelectOperator(None, {"w": pc.utf8_lower(V)}),
    "nested": SelectOperator(None, {"w": pc.coalesce(pc.field("v", "x"), 7), "x": pc.field("v", "x")}),
    "chosen": SelectOperator(None, {"w": pc.if_else(pc.field("k") > 1, V, V)}),
    "year": SelectOperator(None, {"w": pc.year(V)}),
}


def cut(rows: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    parts, start = [], 0
    for length in [*lengths, len(rows)]:
        parts.append(list(rows[start : start + length]))
        start += length
    return [part for part in parts if part]


def outcome(make: Callable[[], Operator], batches: Sequence[list[Any]]) -> tuple[list[Any], str]:
    """What comes out, and the error, each with its types."""
    rows: list[Any] = []
    try:
        with OperatorHarness(make()) as harness:
            for batch in batches:
                rows += harness.push(batch)
    except OperatorError as error:
        return [], str(error)
    return list(map(repr, rows)), ""


@pytest.mark.parametrize("expression", EXPRESSIONS)
@given(
    values=st.lists(st.sampled_from(VALUES), max_size=8),
    lengths=st.lists(st.integers(1, 3), max_size=8),
    absent=st.booleans(),
)
def test_an_expression_over_rows_gives_the_same_for_any_cut(
    expression: str, values: list[Any], lengths: list[int], absent: bool
) -> None:
    rows = [{"k": place, "v": value} for place, value in enumerate(values)]
    if absent:
        rows.append({"k": -1})
    make = lambda: EXPRESSIONS[expression]  # noqa: E731
    assert outcome(make, cut(rows, lengths)) == outcome(make, [rows])


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_field_is_given_as_it_is(value: Any) -> None:
    with OperatorHarness(SelectOperator([], {"w": V})) as harness:
        assert harness.push([{"v": value}, {"v": [value, 1]}])[0]["w"] is value


@pytest.mark.parametrize(
    ("value", "more"),
    [
        (2**53 + 1, 1),
        (Decimal("12345678901234567890.123"), Decimal("0")),
        (pd.Timestamp("2020-01-01T00:00:00.000000001Z"), pd.Timedelta(1, "ns")),
        (np.datetime64(1, "ns"), np.timedelta64(1, "ns")),
    ],
    ids=repr,
)
def test_a_computed_value_keeps_its_precision(value: Any, more: Any) -> None:
    summed = SelectOperator([], {"w": pc.add(pc.field("v"), pc.field("m"))})
    with OperatorHarness(summed) as harness:
        (row,) = harness.push([{"v": value, "m": more}])
    assert row["w"] == value + more
    with OperatorHarness(SelectOperator([], {"w": pc.coalesce(V, V)})) as harness:
        assert harness.push([{"v": 2**63 + 3}]) == [{"w": 2**63 + 3}]


def test_only_fields_of_the_expression_are_looked_at() -> None:
    rows = [{"width": 3, "id": {1}, "wid": object(), "it's a width": {2}}]
    with OperatorHarness(FilterExpressionOperator(pc.field("width") > 2)) as harness:
        assert harness.push(rows) == rows
    for name in ("", "a b", "a) in ", "Name(x)", 'quote"', "ünï", "\n", "a.b", "field_ref"):
        with OperatorHarness(FilterExpressionOperator(pc.field(name).isin(["DE"]))) as harness:
            assert harness.push([{name: None}, {name: "DE"}, {}]) == [{name: "DE"}]


def test_parts_of_a_field_that_are_not_there_are_null() -> None:
    rows = [{"a": {"b": {"c": 1}}}, {"a": {"x": {3}}}, {"a": None}, {}, {"a": {"b": {"c": 2, "d": {1}}}}]
    with OperatorHarness(FilterExpressionOperator(pc.field("a", "b", "c") > 1)) as harness:
        assert harness.push(rows) == rows[4:]
