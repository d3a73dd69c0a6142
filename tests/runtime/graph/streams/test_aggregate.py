"""`aggregate` means one thing, by key and in windows: columns of aggregates or an `AggregateFunction`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    AggregateFunction,
    DataStream,
    GraphError,
    OperatorError,
    RocksDB,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.aggregates import Count, Max, Sum
from penstock.operators import ArrowBatch, Batch, RowBatch
from penstock.testing import OperatorHarness
from penstock.windows import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

SECOND = 1_000_000
TEN = TumblingEventTimeWindows(10)
Rows = list[dict[str, Any]]


class Mean(AggregateFunction[dict[str, Any], list[float], dict[str, float]]):
    """A mean; it changes its accumulator in place, and gives a result that it keeps."""

    def create_accumulator(self) -> list[float]:
        return [0.0, 0]

    def add(self, value: dict[str, Any], accumulator: list[float]) -> list[float]:
        accumulator[0] += value["v"]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[float]) -> dict[str, float]:
        return {"mean": accumulator[0] / accumulator[1]}

    def merge(self, first: list[float], second: list[float]) -> list[float]:
        return [one + other for one, other in zip(first, second, strict=True)]


def by_key(stream: DataStream[Any]) -> Any:
    return stream.key_by("k")


def in_windows(stream: DataStream[Any]) -> Any:
    return stream.key_by("k").window(TEN)


def in_windows_of_all(stream: DataStream[Any]) -> Any:
    return stream.window_all(TEN)


GROUPED: dict[str, Callable[[DataStream[Any]], Any]] = {
    "by key": by_key,
    "in windows": in_windows,
    "in windows of all records": in_windows_of_all,
}


def batch_of(rows: Rows, *, columns: bool) -> Batch:
    stamps = [row["at"] * SECOND for row in rows]
    if columns:
        return ArrowBatch(pa.RecordBatch.from_pylist(rows), pa.array(stamps, pa.int64()))
    return RowBatch(rows, stamps)


ROWS: Rows = [{"k": "a", "v": 1, "at": 1}, {"k": "b", "v": 5, "at": 2}, {"k": "a", "v": 3, "at": 3}]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(
    ("group", "means", "totals"),
    [
        ("by key", [1.0, 5.0, 2.0], [("a", 4, 2), ("b", 5, 1)]),
        ("in windows", [2.0, 5.0], [("a", 4, 2), ("b", 5, 1)]),
        ("in windows of all records", [3.0], [(None, 9, 3)]),
    ],
)
def test_a_function_and_columns_are_taken_by_every_stream_in_groups(
    group: str, means: list[float], totals: list[Any], columns: bool
) -> None:
    def with_function(stream: DataStream[Any]) -> Any:
        return GROUPED[group](stream).aggregate("mean", Mean())

    def with_columns(stream: DataStream[Any]) -> Any:
        return GROUPED[group](stream).aggregate("totals", combine=False, total=Sum("v"), n=Count())

    with OperatorHarness.of(with_function) as harness:
        found = harness.push_batch(batch_of(ROWS, columns=columns)) + harness.push_watermark(10 * SECOND)
        assert [row["mean"] for row in found] == means
    with OperatorHarness.of(with_columns) as harness:
        found = harness.push_batch(batch_of(ROWS, columns=columns)) + harness.push_watermark(10 * SECOND)
        assert [(row.get("k"), row["total"], row["n"]) for row in found] == totals
        names = {"total", "n"} | ({"k"} if "all" not in group else set())
        assert set(found[0]) == names | ({"window_start", "window_end"} if "windows" in group else set())


@pytest.mark.parametrize("function", [{"n": Count()}, {"most": Max("v")}], ids=["no column", "a column"])
@pytest.mark.parametrize(
    "windows", [TEN, SlidingEventTimeWindows(10, 4), EventTimeSessionWindows(2)], ids=str
)
@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(-9, 9)), min_size=1, max_size=30),
    cut=st.integers(0, 30),
    forms=st.tuples(st.booleans(), st.booleans()),
)
def test_columns_of_all_records_are_those_of_one_key_also_after_a_restore(
    windows: Any, function: dict[str, Any], rows: Any, cut: int, forms: tuple[bool, bool]
) -> None:
    def of_one_key(stream: DataStream[Any]) -> Any:
        return stream.key_by("k").window(windows).aggregate("a", combine=False, **function)

    def of_all(stream: DataStream[Any]) -> Any:
        return stream.window_all(windows).aggregate("a", combine=False, **function)

    given_rows = [{"k": 1, "v": v, "at": at} for at, v in rows]
    parts = [given_rows[:cut], given_rows[cut:]]
    found = []
    for build in (of_one_key, of_all):
        with OperatorHarness.of(build) as harness:
            if parts[0]:
                harness.push_batch(batch_of(parts[0], columns=forms[0]))
            before = harness.push_watermark(9 * SECOND)
            snapshot = harness.snapshot()
        with OperatorHarness.of(build, restored=[snapshot]) as harness:
            if parts[1]:
                harness.push_batch(batch_of(parts[1], columns=forms[1]))
            found.append(before + harness.push_watermark(100 * SECOND))
            found[-1] += harness.side_output("late_records")
    assert [{**row, "k": 1} for row in found[1]] == found[0]


@pytest.mark.parametrize("backend", ["heap", "disk"])
def test_the_accumulator_of_a_key_survives_a_restore_and_no_result_changes_it(backend: str) -> None:
    settings: Any = {"state_backend": RocksDB()} if backend == "disk" else {}

    def mean(stream: DataStream[Any]) -> Any:
        return stream.key_by("k").aggregate("mean", Mean())

    with OperatorHarness.of(mean, **settings) as harness:
        first = harness.push(ROWS)
        first[0]["mean"] = 99.0
        snapshot = harness.snapshot()
    with OperatorHarness.of(mean, restored=[snapshot], **settings) as harness:
        assert harness.push([{"k": "a", "v": 8, "at": 4}]) == [{"mean": 4.0}]


class Broken(Mean):
    def get_result(self, accumulator: list[float]) -> dict[str, float]:
        raise ValueError("no result")


class Kept(Mean):
    """Gives its accumulator away."""

    def get_result(self, accumulator: list[float]) -> Any:
        return accumulator


def test_an_error_names_the_function_that_failed_and_the_record() -> None:
    def broken(stream: DataStream[Any]) -> Any:
        return stream.key_by("k").aggregate("mean", Broken())

    with OperatorHarness.of(broken) as harness, pytest.raises(OperatorError, match="get_result") as error:
        harness.push(ROWS)
    assert "aggregate function" in str(error.value)
    assert "'v': 1" in str(error.value)


def test_results_that_are_the_accumulator_are_copies() -> None:
    def kept(stream: DataStream[Any]) -> Any:
        return stream.key_by("k").aggregate("kept", Kept())

    with OperatorHarness.of(kept) as harness:
        assert harness.push([{"k": "a", "v": 1, "at": 0}, {"k": "a", "v": 2, "at": 0}]) == [
            [1.0, 1],
            [3.0, 2],
        ]


@pytest.fixture
def stream() -> DataStream[Any]:
    env = StreamEnvironment("aggregates", parallelism=2)
    strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()
    return env.from_collection("in", ROWS).assign_timestamps_and_watermarks(
        strategy.with_timestamp_column("at")
    )


HERE = r"^tests/runtime/graph/streams/test_aggregate.py:\d+ in lambda: "


@pytest.mark.parametrize("group", GROUPED)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.aggregate("a"), "name at least one function, for example"),
        (lambda s: s.aggregate("a", max), "is not an AggregateFunction; for a plain function use reduce"),
        (lambda s: s.aggregate("a", Mean), r"give an object, Mean\(...\), not the class itself"),
        (lambda s: s.aggregate("a", Mean(), n=Count()), r"or functions of columns \(n\), not both"),
        (lambda s: s.aggregate("a", n=5), 'n is not an aggregate function such as Sum."amount"., but 5'),
        (lambda s: s.aggregate("a", Mean(), paralelism=2), "did you mean 'parallelism'"),
        (lambda s: s.aggregate("a", Mean(), combine=False), "only functions of columns take combine, not"),
        (lambda s: s.aggregate("a", n=Count(), combine=1), "combine must be True or False, not 1"),
        (lambda s: s.aggregate(n=Count()), "missing a required argument: 'id'"),
    ],
)
def test_every_stream_in_groups_refuses_the_same_calls(
    group: str, call: Callable[[Any], object], message: str, stream: DataStream[Any]
) -> None:
    with pytest.raises(GraphError, match=f"{HERE}.*{message}"):
        call(GROUPED[group](stream))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: s.window_all(TEN).trigger(CountTrigger(5)).aggregate("a", n=Sum("v")),
            "functions of columns emit once, .* so they take no trigger, evictor or lateness",
        ),
        (
            lambda s: s.window_all(TEN).aggregate("a", n=Count(), parallelism=2),
            "windows without keys run in one subtask, so parallelism 2 is not possible",
        ),
        (
            lambda s: s.window_all(TEN).aggregate("a", None, len, n=Count()),
            "a window_function needs an AggregateFunction before it",
        ),
        (lambda s: s.key_by("k").map(abs), "a KeyedStream has no map: call map before key_by"),
        (lambda s: s.window_all(TEN).map(abs), "an AllWindowedStream has no map: say what each window emits"),
    ],
)
def test_calls_that_do_not_fit_one_kind_of_stream_are_refused(
    call: Callable[[Any], object], message: str, stream: DataStream[Any]
) -> None:
    with pytest.raises(GraphError, match=f"{HERE}.*{message}"):
        call(stream)
