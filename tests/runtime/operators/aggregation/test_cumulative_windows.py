"""Cumulative windows over columns give what plain Python gives."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock import DataStream
from penstock.aggregates import Count, CountDistinct, First, Last, Max, Sum
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.paned_aggregate import PanedAggregateOperator
from penstock.runtime.operators.aggregation.panes import WindowCombineOperator
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch
from penstock.testing import OperatorHarness
from penstock.windows import CumulativeEventTimeWindows

SECOND = 1_000_000

#: Key, value, second.
Triple = tuple[str, int, int]
#: Key, and the seconds of start and end.
Window = tuple[str, int, int]


def columns(triples: list[Triple]) -> ArrowBatch:
    batch = pa.RecordBatch.from_pylist([{"k": k, "v": v} for k, v, _ in triples])
    return ArrowBatch(batch, pa.array([at * SECOND for *_, at in triples], pa.int64()))


def records(seed: int) -> list[Triple]:
    """Records in any order, also from before the epoch."""
    draws = Random(seed)
    return [(draws.choice("ab"), draws.randrange(9), draws.randrange(-25, 60)) for _ in range(80)]


def plain(triples: list[Triple], size: int, step: int, offset: int) -> dict[Window, list[int]]:
    """The values of each window: every window that a record may be in is looked at."""
    windows: dict[Window, list[int]] = {}
    for k, v, at in triples:
        for start in range(-200 + offset, 200, size):
            for end in range(start + step, start + size + 1, step):
                if start <= at < end:
                    windows.setdefault((k, start, end), []).append(v)
    return windows


def window_of(row: dict[str, Any]) -> Window:
    return row["k"], int(row["window_start"].timestamp()), int(row["window_end"].timestamp())


SHAPES = [(20, 5, 0), (20, 20, 0), (10, 1, 3), (40, 8, -7)]


@pytest.mark.parametrize("ends", [{}, {"first": First("v"), "last": Last("v")}], ids=["panes", "windows"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cumulative_windows_over_columns_are_those_of_plain_python(
    shape: tuple[int, int, int], ends: dict[str, Any]
) -> None:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        windows = stream.key_by("k").window(CumulativeEventTimeWindows(*shape))
        return windows.aggregate(
            "of",
            n=Count(),
            total=Sum("v"),
            most=Max("v"),
            kinds=CountDistinct("v"),
            **ends,
        )

    triples = records(sum(shape))
    with OperatorHarness.of(build) as harness:
        harness.push_batch(columns(triples[:50]))
        snapshot = harness.snapshot()
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        harness.push_batch(columns(triples[50:]))
        found = harness.push_watermark(END_OF_TIME - 1)
    names = ("n", "total", "most", "kinds", *ends)
    assert {window_of(row): tuple(row[name] for name in names) for row in found} == {
        window: (len(of), sum(of), max(of), len({*of}), of[0], of[-1])[: len(names)]
        for window, of in plain(triples, *shape).items()
    }
    assert len(found) == len(plain(triples, *shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_combiner_in_front_of_cumulative_windows_changes_nothing(shape: tuple[int, int, int]) -> None:
    key, windows = ColumnKey(("k",)), CumulativeEventTimeWindows(*shape)
    functions = {"n": Count(), "total": Sum("v")}
    aggregation = Aggregation(key.names, functions)
    triples = records(sum(shape) + 1)
    with (
        OperatorHarness(WindowCombineOperator(key, aggregation, windows)) as sender,
        OperatorHarness(PanedAggregateOperator(key, aggregation, windows)) as receiver,
    ):
        for start in range(0, len(triples), 20):
            sender.push_batch(columns(triples[start : start + 20]))
        sender.end_of_data()
        for batch in sender.batches:
            receiver.push_batch(batch)
        found = receiver.push_watermark(END_OF_TIME - 1)
    assert {window_of(row): (row["n"], row["total"]) for row in found} == {
        window: (len(of), sum(of)) for window, of in plain(triples, *shape).items()
    }


def test_each_cumulative_window_over_columns_comes_when_event_time_has_passed_its_end() -> None:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        windows = stream.key_by("k").window(CumulativeEventTimeWindows(max_size=20, step=5))
        return windows.aggregate("of", n=Count(), kinds=CountDistinct("v"))

    emitted = []
    with OperatorHarness.of(build) as harness:
        harness.push_batch(columns([("a", 1, 1), ("a", 2, 12)]))
        for second in (4, 5, 14, 15, 20):
            rows = harness.push_watermark(second * SECOND - 1)
            emitted.append([(window_of(row)[1:], row["n"]) for row in rows])
    assert emitted == [[], [((0, 5), 1)], [((0, 10), 1)], [((0, 15), 2)], [((0, 20), 2)]]
