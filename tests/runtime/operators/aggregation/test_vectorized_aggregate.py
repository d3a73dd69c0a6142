"""Users' aggregate functions run on rows and columns, survive restores, and are named in errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from penstock import DataStream, GraphError
from penstock.aggregates import Count, Sum, VectorizedAggregate
from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.state.column_table import ColumnTable
from penstock.testing import OperatorHarness
from penstock.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

Build = Callable[[DataStream[Any]], DataStream[Any]]


class Spread(VectorizedAggregate):
    """The distance from the least to the greatest value."""

    state: ClassVar[Any] = {"low": "float64", "high": np.float64}

    def init(self) -> dict[str, float]:
        return {"low": math.inf, "high": -math.inf}

    def update(self, state: Any, columns: Any, slots: Any) -> None:
        np.minimum.at(state["low"], slots, columns[self.columns[0]])
        np.maximum.at(state["high"], slots, columns[self.columns[0]])

    def merge(self, state: Any, other: Any) -> None:
        state["low"] = np.minimum(state["low"], other["low"])
        state["high"] = np.maximum(state["high"], other["high"])

    def result(self, state: Any) -> Any:
        spread = state["high"] - state["low"]
        return pa.array(spread, mask=np.isneginf(spread))


class RowSpread(Spread):
    """The same without a merge: all rows travel."""

    merge = VectorizedAggregate.merge


class Rows(VectorizedAggregate):
    """Number of rows; reads no column."""

    state: ClassVar[Any] = {"n": "int64"}

    def update(self, state: Any, columns: Any, slots: Any) -> None:
        assert columns == {}
        state["n"] += np.bincount(slots, minlength=len(state["n"]))

    def result(self, state: Any) -> Any:
        return state["n"]


def spread_by(function: VectorizedAggregate) -> Build:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").aggregate("spread", combine=False, spread=function, n=Count())

    return build


BOTH = pytest.mark.parametrize("function", [Spread("v"), RowSpread("v")], ids=["merged", "by row"])


def rows(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"k": key, "v": value} for key, value in pairs]


def expected(values: list[Any]) -> Any:
    there = [value for value in values if value is not None]
    return max(there) - min(there) if there else None


@BOTH
@pytest.mark.parametrize("as_columns", [False, True], ids=["rows", "columns"])
def test_each_batch_changes_the_state_of_its_keys(function: VectorizedAggregate, as_columns: bool) -> None:
    draws, seen = Random(1), dict[Any, list[Any]]()
    with OperatorHarness.of(spread_by(function)) as harness:
        for _ in range(20):
            some = rows(*((draws.choice("abc"), draws.choice([None, 1.5, -2.0, 7.25])) for _ in range(9)))
            for row in some:
                seen.setdefault(row["k"], []).append(row["v"])
            schema = pa.schema({"k": pa.string(), "v": pa.float64()})
            batch = ArrowBatch(pa.RecordBatch.from_pylist(some, schema))
            found = harness.push_batch(batch) if as_columns else harness.push(some)
            for row in found:
                assert (row["spread"], row["n"]) == (expected(seen[row["k"]]), len(seen[row["k"]]))


@BOTH
def test_state_is_restored_at_another_parallelism(function: VectorizedAggregate) -> None:
    build = spread_by(function)
    with OperatorHarness.of(build) as harness:
        harness.push(rows(*((number, 0.0) for number in range(40))))
        snapshot = harness.snapshot()
    found = []
    for subtask in range(3):
        with OperatorHarness.of(build, restored=[snapshot], subtask=subtask, parallelism=3) as harness:
            found += harness.push(rows(*((n, float(n)) for n in range(40) if harness.owns(n))))
    assert {row["k"]: (row["spread"], row["n"]) for row in found} == {n: (float(n), 2) for n in range(40)}


def test_state_of_one_form_is_that_of_the_other() -> None:
    with OperatorHarness.of(spread_by(Spread("v"))) as harness:
        harness.push(rows(("a", 1.0)))
        snapshot = harness.snapshot()
    with OperatorHarness.of(spread_by(RowSpread("v")), restored=[snapshot]) as harness:
        assert harness.push(rows(("a", 4.0))) == [{"k": "a", "spread": 3.0, "n": 2}]


@BOTH
@pytest.mark.parametrize(
    "windows", [TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5)], ids=["tumbling", "sliding"]
)
def test_windows_have_state_of_their_own(function: VectorizedAggregate, windows: Any) -> None:
    def in_windows(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").window(windows).aggregate("spread", combine=False, spread=function)

    draws, seen = Random(2), dict[tuple[Any, int], list[float]]()
    with OperatorHarness.of(in_windows) as harness:
        for _ in range(8):
            some = rows(*((draws.choice("ab"), float(draws.randrange(99))) for _ in range(12)))
            stamps = [draws.randrange(60) * 1_000_000 for _ in some]
            for row, stamp in zip(some, stamps, strict=True):
                for start in windows.starts(stamp):
                    seen.setdefault((row["k"], start), []).append(row["v"])
            harness.push(some, stamps)
        found = harness.push_watermark(100_000_000)
    starts = [round(row["window_start"].timestamp()) * 1_000_000 for row in found]
    got = {(row["k"], start): row["spread"] for row, start in zip(found, starts, strict=True)}
    assert got == {key: expected(values) for key, values in seen.items()}


def test_parts_of_a_combiner_are_merged() -> None:
    aggregation, table = Aggregation(["k"], {"spread": Spread("v")}), ColumnTable("t", 128)
    assert aggregation.combines
    for values in ([1.0, 5.0], [None, 2.0], [9.0, None]):
        combined = ColumnTable("combined", 1)
        reduced = aggregation.partials({"k": pa.array([1, 2])}, {"v": pa.array(values, pa.float64())})
        slots = aggregation.merge(combined, reduced)
        slots = aggregation.merge(table, aggregation.partials_of(combined, slots))
    assert aggregation.results(table, slots)["spread"].to_pylist() == [8.0, 3.0]


def test_a_function_without_merge_does_not_combine() -> None:
    assert not Aggregation(["k"], {"spread": RowSpread("v"), "total": Sum("v")}).combines


def test_a_function_without_columns_is_given_all_rows() -> None:
    def count(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").aggregate("n", n=Rows())

    with OperatorHarness.of(count) as harness:
        assert harness.push(rows(("a", None), ("b", 1), ("a", 2))) == [{"k": "a", "n": 2}, {"k": "b", "n": 1}]


class Seen(VectorizedAggregate):
    """Notes the types of what it is given."""

    state: ClassVar[Any] = {"n": "bool"}

    def update(self, state: Any, columns: Any, slots: Any) -> None:
        for name, array in columns.items():
            assert not array.flags.writeable, name
            assert array.dtype == TYPES[name][1], (name, array.dtype)
        state["n"][slots] = True

    def result(self, state: Any) -> Any:
        return state["n"]


TYPES: dict[str, tuple[pa.Array, Any]] = {
    "narrow": (pa.array([1], pa.int8()), "int64"),
    "single": (pa.array([1.5], pa.float32()), "float64"),
    "large": (pa.array([2**63], pa.uint64()), "uint64"),
    "truth": (pa.array([True]), "bool"),
    "text": (pa.array(["a"]), "object"),
    "moment": (pa.array([0], pa.timestamp("us", "UTC")), "datetime64[us]"),
    "length": (pa.array([0], pa.duration("us")), "timedelta64[us]"),
}


def test_columns_come_as_arrays_of_the_widest_type_that_can_not_be_changed() -> None:
    columns = {name: array for name, (array, _) in TYPES.items()}

    def build(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").aggregate("seen", seen=Seen(*TYPES))

    with OperatorHarness.of(build) as harness:
        batch = ArrowBatch(pa.record_batch({"k": pa.array([1]), **columns}))
        assert harness.push_batch(batch) == [{"k": 1, "seen": True}]


class Wrong(Spread):
    """Does one thing wrong."""

    def __init__(self, wrong: str) -> None:
        super().__init__("v")
        self._wrong = wrong

    def update(self, state: Any, columns: Any, slots: Any) -> None:
        if self._wrong == "shape":
            state["low"] = columns["v"]
        elif self._wrong == "dtype":
            state["low"] = np.zeros(len(state["low"]), np.int32)
        elif self._wrong == "name":
            state["middle"] = state["low"]
        elif self._wrong == "raises":
            columns["w"]

    def merge(self, state: Any, other: Any) -> None:
        if self._wrong == "merge":
            state["high"] = None

    def result(self, state: Any) -> Any:
        if self._wrong == "result":
            return state["low"][:-1]
        if self._wrong == "huge":
            return np.array([2**70, 1], np.object_)
        return state["low"].sum() if self._wrong == "scalar" else state["low"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "shape",
            r"update \(.*\) left the state 'low' as float64 of shape \(3,\); it must be float64 of .*2,",
        ),
        ("dtype", r"update \(.*\) left the state 'low' as int32 of shape \(2,\); it must be float64"),
        ("name", r"update \(.*\) put 'middle' into the state, which has 'low', 'high'"),
        ("raises", r"update \(.*\) failed: KeyError: 'w', at .*test_vectorized_aggregate.py:\d+ in update"),
        ("merge", r"merge \(.*\) left the state 'high' as None"),
        ("result", r"result \(.*\) returned float64 of shape \(1,\); its length must be 2"),
        ("huge", r"result \(.*\) returned values that have no Arrow type: Python int too large"),
        ("scalar", r"result \(.*\) returned .*inf.*; its length must be 2"),
    ],
)
def test_what_a_users_function_does_wrong_names_operator_function_and_line(wrong: str, message: str) -> None:
    some = rows(("a", 1.0), ("b", 2.0), ("a", 3.0))

    def push_twice(harness: OperatorHarness) -> None:
        harness.push(some)
        harness.push(some)

    place = r"'spread'.*spread=Wrong\('v'\): Wrong\.\w+ \(.*test_vectorized_aggregate\.py:\d+\)"
    with (
        OperatorHarness.of(spread_by(Wrong(wrong)), operator_id="spread") as harness,
        pytest.raises(OperatorError, match=place) as caught,
    ):
        push_twice(harness)
    assert re.search(message, str(caught.value)), str(caught.value)


class NoState(VectorizedAggregate):
    def update(self, state: Any, columns: Any, slots: Any) -> None:
        raise NotImplementedError

    def result(self, state: Any) -> Any:
        raise NotImplementedError


class TextState(NoState):
    state: ClassVar[Any] = {"name": "str"}


class WrongInit(NoState):
    state: ClassVar[Any] = {"n": "int64"}

    def init(self) -> dict[str, Any]:
        return {"n": 1.5}


class UnknownInit(WrongInit):
    def init(self) -> dict[str, Any]:
        return {"m": 1}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (NoState("v"), "declares no state"),
        (TextState("v"), "declares the state 'name' as 'str'"),
        (WrongInit("v"), r"init \(.*\) gives 'n' the value 1.5; it must be one int64 value"),
        (UnknownInit("v"), "it must have values for 'n'"),
        (Spread("v", "v"), "names one column twice: 'v', 'v'"),
        (Spread(3), "reads 3, which is not the name of a column"),  # type: ignore[arg-type]
        (Spread, "is not an aggregate function"),
    ],
    ids=str,
)
def test_functions_that_can_not_be_meant_are_refused_when_the_graph_is_built(
    function: Any, message: str
) -> None:
    with pytest.raises(GraphError, match=rf"test_vectorized_aggregate.py:\d+.*{message}"):
        OperatorHarness.of(spread_by(function))


class WholeSpread(Spread):
    state: ClassVar[Any] = {"low": "int64", "high": "int64"}

    def init(self) -> dict[str, Any]:
        return {}


def test_state_of_another_type_is_refused() -> None:
    with OperatorHarness.of(spread_by(Spread("v"))) as harness:
        harness.push(rows(("a", 1.0)))
        snapshot = harness.snapshot()
    with (
        OperatorHarness.of(spread_by(WholeSpread("v")), restored=[snapshot]) as harness,
        pytest.raises(OperatorError, match="'spread:low' is of type int64 here and of type double"),
    ):
        harness.push(rows(("a", 1)))
