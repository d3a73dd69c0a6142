"""A keyed aggregation emits the keys of each batch, from rows and columns, and continues where it was."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import DataStream, GraphError
from penstock.aggregates import Count, CountDistinct, First, Last, Max, Min, Sum
from penstock.runtime.errors import OperatorError
from penstock.runtime.record.elements import ArrowBatch
from penstock.testing import ManualClock, OperatorHarness

Build = Callable[[DataStream[Any]], DataStream[Any]]


def sums(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.key_by("k").aggregate("sums", combine=False, total=Sum("v"), n=Count())


def push(harness: OperatorHarness, some: Any) -> list[Any]:
    return harness.push_batch(some) if isinstance(some, ArrowBatch) else harness.push(some)


def rows(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"k": key, "v": value} for key, value in pairs]


def test_a_batch_emits_each_of_its_keys_once() -> None:
    with OperatorHarness.of(sums) as harness:
        assert harness.push(rows(("a", 1), ("b", 2), ("a", 3))) == [
            {"k": "a", "total": 4, "n": 2},
            {"k": "b", "total": 2, "n": 1},
        ]
        assert harness.push(rows(("b", None))) == [{"k": "b", "total": 2, "n": 2}]


def test_columns_give_what_rows_give() -> None:
    some = rows(("a", 1), (None, 2), ("a", None))
    with OperatorHarness.of(sums) as of_rows, OperatorHarness.of(sums) as of_columns:
        batch = ArrowBatch(pa.RecordBatch.from_pylist(some))
        assert push(of_columns, batch) == push(of_rows, some)


def test_rows_go_on_from_the_state_of_columns_and_columns_from_that_of_rows() -> None:
    some = rows(("a", 1), ("b", 2))
    batch = ArrowBatch(pa.RecordBatch.from_pylist(some))
    expected = [{"k": "a", "total": 2, "n": 2}, {"k": "b", "total": 4, "n": 2}]
    for first, second in ((some, batch), (batch, some)):
        with OperatorHarness.of(sums) as harness:
            push(harness, first)
            snapshot = harness.snapshot()
        with OperatorHarness.of(sums, restored=[snapshot]) as harness:
            assert push(harness, second) == expected


def test_state_is_shared_out_at_another_parallelism() -> None:
    with OperatorHarness.of(sums) as harness:
        harness.push(rows(*((number, number) for number in range(50))))
        snapshot = harness.snapshot()
    seen = []
    for subtask in range(3):
        with OperatorHarness.of(sums, restored=[snapshot], subtask=subtask, parallelism=3) as harness:
            seen += harness.push(rows(*((number, 0) for number in range(50) if harness.owns(number))))
    assert sorted(row["k"] for row in seen) == list(range(50))
    assert all(row["n"] == 2 and row["total"] == row["k"] for row in seen)


def test_nulls_nan_and_zeros_of_both_signs_are_one_key_each() -> None:
    nan = float("nan")
    with OperatorHarness.of(sums) as harness:
        harness.push(rows((0.0, 1), (-0.0, 1), (nan, 1), (None, 1)))
        found = harness.push(rows((-0.0, 1), (float("nan"), 1), (None, 1), (0.0, 1)))
        snapshot = harness.snapshot()
    assert [(str(row["k"]), row["n"]) for row in found] == [("0.0", 4), ("nan", 2), ("None", 2)]
    with OperatorHarness.of(sums, restored=[snapshot]) as harness:
        (row,) = harness.push(rows((nan, 1)))
        assert row["n"] == 3


def test_encodings_of_a_text_are_one_key_and_one_state() -> None:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").aggregate("t", combine=False, n=Count(), low=Min("v"), last=Last("v"))

    plain = pa.array(["a", "b"])
    encodings = [
        plain.cast(pa.large_string()),
        plain,
        plain.dictionary_encode(),
        plain.cast(pa.string_view()),
    ]
    with OperatorHarness.of(build) as harness:
        for count, column in enumerate(encodings, 1):
            found = harness.push_batch(ArrowBatch(pa.record_batch({"k": column, "v": column})))
            assert found == [{"k": each, "n": count, "low": each, "last": each} for each in ("a", "b")]
        assert harness.push([{"k": "a", "v": "a"}])[0]["n"] == len(encodings) + 1


@pytest.mark.parametrize(
    ("column", "total", "low"),
    [
        (pc.run_end_encode(pa.array([1, 1, 2])), 4, 1),
        (pa.array([1, 1, 2]).dictionary_encode(), 4, 1),
        (pa.array([1, 0, 1], pa.int8()).cast(pa.bool8()), 2, False),
        (pa.array([Decimal("1.5"), None, Decimal(2)], pa.decimal32(5, 2)), Decimal("3.50"), Decimal("1.50")),
        (pa.array([Decimal("1.5"), None, Decimal(2)], pa.decimal64(5, 2)), Decimal("3.50"), Decimal("1.50")),
    ],
    ids=["run ends", "dictionary", "bool8", "decimal32", "decimal64"],
)
def test_encoded_columns_are_aggregated_like_plain_ones(column: pa.Array, total: Any, low: Any) -> None:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        functions = {"total": Sum("v"), "low": Min("v"), "first": First("v"), "n": Count("v")}
        return stream.key_by("k").aggregate("t", combine=False, **functions)

    with OperatorHarness.of(build) as harness:
        (found,) = harness.push_batch(ArrowBatch(pa.record_batch({"k": [1, 1, 1], "v": column})))
    count = len(column) - column.null_count
    assert found == {"k": 1, "total": total, "low": low, "first": column.to_pylist()[0], "n": count}


def test_values_without_an_order_have_no_minimum() -> None:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").aggregate("t", combine=False, low=Min("v"))

    ids = pa.array([b"0" * 16], pa.binary(16)).cast(pa.uuid())
    wrong = r"Min\('v'\) needs values with an order; the column is extension<arrow.uuid>"
    with OperatorHarness.of(build) as harness, pytest.raises(OperatorError, match=wrong):
        harness.push_batch(ArrowBatch(pa.record_batch({"k": [1], "v": ids})))


def test_a_key_of_several_columns_is_one_key() -> None:
    def by_two(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by(["k", "v"]).aggregate("n", combine=False, n=Count())

    with OperatorHarness.of(by_two) as harness:
        found = harness.push(rows(("a", 1), ("a", 2), ("a", 1), (None, 1)))
    assert found == [{"k": "a", "v": 1, "n": 2}, {"k": "a", "v": 2, "n": 1}, {"k": None, "v": 1, "n": 1}]


def test_different_values_count_once_also_after_a_restore() -> None:
    def kinds(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").aggregate("kinds", kinds=CountDistinct("v"), n=Count())

    with OperatorHarness.of(kinds) as harness:
        harness.push(rows(("a", 1), ("a", 1), ("a", 2), ("b", None), ("a", None)))
        snapshot = harness.snapshot()
    with OperatorHarness.of(kinds, restored=[snapshot]) as harness:
        found = harness.push(rows(("a", 2), ("a", 3), ("b", None), ("c", 1)))
    assert found == [
        {"k": "a", "kinds": 3, "n": 6},
        {"k": "b", "kinds": 0, "n": 2},
        {"k": "c", "kinds": 1, "n": 1},
    ]


def test_a_trigger_emits_what_was_touched_once_it_is_due_and_before_a_snapshot() -> None:
    clock = ManualClock()

    def every_second(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").aggregate("sums", combine=False, emit_every=1.0, total=Sum("v"))

    with OperatorHarness.of(every_second, clock=clock) as harness:
        assert harness.push(rows(("a", 1), ("b", 1))) == []
        clock.advance(1)
        assert harness.flush() == [{"k": "a", "total": 1}, {"k": "b", "total": 1}]
        assert harness.push(rows(("b", 1))) == []
        assert harness.flush() == [], "it is not due"
        harness.snapshot()
        assert harness.outputs[2:] == [{"k": "b", "total": 2}]


def test_rows_that_are_no_dicts_are_refused_with_what_to_do() -> None:
    with (
        OperatorHarness.of(sums) as harness,
        pytest.raises(OperatorError, match="make dicts with map before key_by"),
    ):
        harness.push([("a", 1)])


def test_a_column_that_is_not_there_is_refused_with_those_that_are() -> None:
    batches = {
        "no column 'v': it has 'k', 'w'$": pa.record_batch({"k": [1], "w": [2]}),
        "'k', 'vv'; did you mean 'vv'": pa.record_batch({"k": [1], "vv": [2]}),
        "several columns 'v': it has 'k', 'v', 'v'": pa.RecordBatch.from_arrays(
            [pa.array([1])] * 3, names=["k", "v", "v"]
        ),
    }
    for message, batch in batches.items():
        with OperatorHarness.of(sums) as harness, pytest.raises(OperatorError, match=message):
            push(harness, ArrowBatch(batch))


def test_values_of_a_wrong_type_are_refused_by_name() -> None:
    wrong = r"Sum\('v'\) needs numbers; the column is of type string and holds 'text'"
    with OperatorHarness.of(sums) as harness, pytest.raises(OperatorError, match=wrong):
        harness.push(rows(("a", 1), ("b", "text")))
    wrong = r"record \{'k': 'b', 'v': 18446744073709551616\}.*64 bits"
    with OperatorHarness.of(sums) as harness, pytest.raises(OperatorError, match=wrong):
        harness.push(rows(("a", 1), ("b", 2**64)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.key_by(len).aggregate("x", n=Count()), r'key_by\("name"\)'),
        (lambda s: s.key_by("k").aggregate("x"), "name at least one function"),
        (lambda s: s.key_by("k").aggregate("x", n=sum), "n is not an aggregate function"),
        (lambda s: s.key_by("k").aggregate("x", n=Count), "n is not an aggregate function"),
        (lambda s: s.key_by("k").aggregate("x", k=Count()), "'k' is already a column of the result"),
        (lambda s: s.key_by("k").aggregate("x", n=Max(3)), "n reads 3"),
        (lambda s: s.key_by("n:count").aggregate("x", n=Count()), "state already has a column 'n:count'"),
        (lambda s: s.key_by("v:").aggregate("x", n=CountDistinct("v")), "state already has a column 'v:'"),
        (lambda s: s.key_by(":start").aggregate("x", n=Count()), "state already has a column ':start'"),
        (
            lambda s: s.key_by("k").aggregate("x", emit_every=0, n=Count()),
            "emit_every=0: give a",
        ),
    ],
)
def test_calls_that_can_not_be_meant_name_the_users_line(build: Build, message: str) -> None:
    with pytest.raises(GraphError, match=rf"test_keyed_aggregate.py:\d+.*{message}"):
        OperatorHarness.of(build)


def test_an_empty_batch_emits_nothing() -> None:
    with OperatorHarness.of(sums) as harness:
        assert harness.push([]) == []
        assert push(harness, ArrowBatch(pa.RecordBatch.from_pylist(rows(("a", 1))).slice(0, 0))) == []


def test_keys_that_hardly_repeat_are_not_grouped_and_the_results_are_the_same() -> None:
    draws = Random(3)
    expected: dict[int | None, list[int]] = {}
    got: dict[int | None, dict[str, Any]] = {}
    with OperatorHarness.of(sums) as harness:
        for number in range(12):
            few = number >= 6
            keys = [draws.choice([None, *range(9 if few else 9_000)]) for _ in range(1_000)]
            values = [draws.randrange(100) for _ in keys]
            for key, value in zip(keys, values, strict=True):
                expected.setdefault(key, []).append(value)
            rows = harness.push_batch(ArrowBatch(pa.record_batch({"k": keys, "v": values})))
            assert len(rows) == len({row["k"] for row in rows}) == len(set(keys))
            got |= {row["k"]: row for row in rows}
    assert {key: (row["total"], row["n"]) for key, row in got.items()} == {
        key: (sum(values), len(values)) for key, values in expected.items()
    }
