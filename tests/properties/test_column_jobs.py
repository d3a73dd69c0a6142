"""An aggregation over columns ends with the same values whatever fails, and with those of its row form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deep import DEEP

from penstock import Checkpointing, CollectSink, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import (
    ApproxCountDistinct,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    StdDev,
    Sum,
    VectorizedAggregate,
)
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.testing import simulate
from penstock.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

pytestmark = pytest.mark.simulation


def typed(batch: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    return batch if schema is None else pa.RecordBatch.from_pylist(batch.to_pylist(), schema)


Rows = list[dict[str, Any]]

SETTINGS = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "with timeout": {"unaligned": True, "aligned_timeout": 0.01},
    "stored": {"alignment": "store"},
}


def last_values(results: InMemoryCollector, key: tuple[str, ...]) -> dict[Any, Any]:
    """The record of each key that has counted most."""
    newest: dict[Any, Any] = {}
    for row in results.rows():
        name = tuple(repr(row[part]) for part in key)
        if name not in newest or row["n"] > newest[name]["n"]:
            newest[name] = row
    return newest


def job_of(
    rows: Rows,
    aggregate: Callable[[DataStream[Any]], DataStream[Any]],
    *,
    columns: bool,
    lanes: int = 2,
    schema: pa.Schema | None = None,
    **checkpointing: Any,
) -> Callable[[], tuple[StreamEnvironment, InMemoryCollector]]:
    def build() -> tuple[StreamEnvironment, InMemoryCollector]:
        results = InMemoryCollector()
        env = StreamEnvironment(parallelism=2, checkpointing=Checkpointing(every=1, **checkpointing))
        stream = env.from_collection("rows", rows, parallelism=lanes)
        if columns:
            stream = stream.map_batches(partial(typed, schema=schema), "arrow", parallelism=lanes)
        aggregate(stream).sink("out", CollectSink(results))
        return env, results

    return build


def numbers(seed: int, keys: int, count: int = 120) -> Rows:
    draws = Random(seed)
    return [{"k": draws.randrange(keys), "v": draws.randrange(-50, 50)} for _ in range(count)]


def sums(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.key_by("k").aggregate("sums", n=Count(), total=Sum("v"), top=Max("v"), mean=Mean("v"))


def fewer(count: int, **options: Any) -> dict[str, Any]:
    """Number of simulations of a job; PENSTOCK_DEEP=N: N times as many."""
    return {"seeds": range((count + 1) // 2 * DEEP), "interleavings": 1, **options}


@pytest.mark.parametrize("mode", list(SETTINGS))
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_no_record_is_lost_or_counted_twice_whatever_fails(mode: str, columns: bool) -> None:
    rows = numbers(1, keys=7)
    right = {
        (repr(key),): sum(row["v"] for row in rows if row["k"] == key) for key in {row["k"] for row in rows}
    }
    simulate(
        job_of(rows, sums, columns=columns, **SETTINGS[mode]),
        output=lambda results: {k: row["total"] for k, row in last_values(results, ("k",)).items()},
        equal=lambda _, found: found == right,
        **fewer(3),
    )


def with_trigger(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.key_by("k").aggregate("sums", n=Count(), kinds=CountDistinct("v"), emit_every=0.05)


def test_what_a_trigger_holds_back_and_different_values_are_exact_whatever_fails() -> None:
    rows = numbers(2, keys=5)
    right = {
        (repr(key),): len({row["v"] for row in rows if row["k"] == key}) for key in {row["k"] for row in rows}
    }
    simulate(
        job_of(rows, with_trigger, columns=True, unaligned=True),
        output=lambda results: {k: row["kinds"] for k, row in last_values(results, ("k",)).items()},
        equal=lambda _, found: found == right,
        **fewer(6),
    )


def in_windows(stream: DataStream[Any]) -> DataStream[Any]:
    strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(2)
    timed = stream.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row: row["at"] * 1_000_000)
    )
    windows = SlidingEventTimeWindows(size=10, slide=4)
    return timed.key_by("k").window(windows).aggregate("panes", n=Count(), total=Sum("v"))


def test_windows_over_columns_emit_each_window_once_whatever_fails() -> None:
    draws = Random(3)
    rows = [
        {"k": draws.choice("abc"), "v": draws.randrange(9), "at": number // 2 + draws.randrange(2)}
        for number in range(120)
    ]
    right: dict[tuple[str, int], int] = {}
    for row in rows:
        for start in SlidingEventTimeWindows(size=10, slide=4).starts(row["at"] * 1_000_000):
            right[row["k"], start] = right.get((row["k"], start), 0) + row["v"]
    expected = sorted((key, start, total) for (key, start), total in right.items())
    simulate(
        job_of(rows, in_windows, columns=False),
        output=lambda results: sorted(
            (row["k"], round(row["window_start"].timestamp() * 1_000_000), row["total"])
            for row in results.rows()
        ),
        equal=lambda _, found: found == expected,
        **fewer(4),
    )


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_windows_of_all_records_combine_in_front_of_their_subtask_whatever_fails(columns: bool) -> None:
    windows = TumblingEventTimeWindows(10)
    rows = [{"v": number, "at": number // 2 * 1_000_000} for number in range(80)]
    right: dict[int, int] = {}
    for row in rows:
        (start,) = windows.starts(row["at"])
        right[start] = right.get(start, 0) + row["v"]

    def totals(stream: DataStream[Any]) -> DataStream[Any]:
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(2)
        timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_column("at"))
        found = timed.window_all(windows).aggregate("totals", total=Sum("v"))
        assert "totals-combine" in [node.operator.id for node in found._builder.graph.nodes]
        return found

    simulate(
        job_of(rows, totals, columns=columns),
        output=lambda results: {
            round(row["window_start"].timestamp() * 1_000_000): row["total"] for row in results.rows()
        },
        equal=lambda _, found: found == right,
        **fewer(4),
    )


class Bits(VectorizedAggregate):
    """The numbers from 0 to 62 that were there, as bits."""

    state: ClassVar[Any] = {"bits": "int64"}

    def update(self, state: Any, columns: Any, slots: Any) -> None:
        np.bitwise_or.at(state["bits"], slots, 1 << columns["v"])

    def merge(self, state: Any, other: Any) -> None:
        state["bits"] |= other["bits"]

    def result(self, state: Any) -> Any:
        return state["bits"]


class BitsByRow(Bits):
    """The same without a merge: all records travel."""

    merge = VectorizedAggregate.merge


@pytest.mark.parametrize("function", [Bits("v"), BitsByRow("v")], ids=["merged", "by row"])
def test_a_function_of_the_users_own_is_exact_by_key_and_in_windows_whatever_fails(
    function: VectorizedAggregate,
) -> None:
    rows = [{**row, "v": row["v"] % 60, "at": 0} for row in numbers(4, keys=4, count=80)]
    right: dict[Any, int] = {}
    for row in rows:
        right[row["k"]] = right.get(row["k"], 0) | 1 << row["v"]

    def bits(stream: DataStream[Any]) -> DataStream[Any]:
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(60)
        timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_column("at"))
        windows = TumblingEventTimeWindows(100)
        in_windows = timed.key_by("k").window(windows).aggregate("panes", bits=function, n=Count())
        by_key = stream.key_by("k").aggregate("bits", bits=function, n=Count())
        return by_key.select("k", "n", "bits").union(
            in_windows.select(n=pc.field("n") * -1, k=pc.field("k"), bits=pc.field("bits"))
        )

    def of_both(results: InMemoryCollector) -> Any:
        """By key and form: a window's record has its number of rows below 0."""
        found = [{**row, "form": row["n"] > 0} for row in results.rows()]
        newest = {(row["k"], row["form"]): row for row in sorted(found, key=lambda row: abs(row["n"]))}
        return {key: row["bits"] for key, row in newest.items()}

    simulate(
        job_of(rows, bits, columns=True, unaligned=True),
        output=of_both,
        equal=lambda _, found: found == {(key, form): right[key] for key in right for form in (True, False)},
        **fewer(2),
    )


def late_and_in_time(stream: DataStream[Any]) -> DataStream[Any]:
    """The number of records of each window, and one record for each that is late."""
    strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(0)
    timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_column("at"))
    windows = timed.key_by("k").window(TumblingEventTimeWindows(4)).aggregate("panes", n=Count())
    late = windows.side_output("late_records")
    return windows.select("k", "n").union(late.select("k", n=pc.scalar(1)))


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_each_record_is_in_a_window_or_late_whatever_fails(columns: bool) -> None:
    draws = Random(6)
    rows = [
        {"k": draws.choice("abc"), "at": max(0, number // 3 - draws.randrange(9)) * 1_000_000}
        for number in range(120)
    ]
    right = {key: sum(row["k"] == key for row in rows) for key in "abc"}
    simulate(
        job_of(rows, late_and_in_time, columns=columns),
        output=lambda results: {
            key: sum(row["n"] for row in results.rows() if row["k"] == key) for key in "abc"
        },
        equal=lambda _, found: found == right,
        **fewer(4),
    )


#: For each type values that are hard to get right.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole numbers": (pa.int64(), [0, 1, -1, 2**40, -(2**53) - 1]),
    "floats": (pa.float64(), [0.0, -0.0, 0.1, 1e100, -1e-300, float("nan"), float("inf")]),
    "decimals": (
        pa.decimal128(20, 3),
        [Decimal("0.001"), Decimal("-99.999"), Decimal("12345678901234567.890")],
    ),
    "text": (pa.string(), ["", "a", "ä", "\U0001f600", "a" * 40]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff\xfe"]),
    "dates": (pa.date32(), [date(1970, 1, 1), date(1, 1, 1), date(2026, 2, 28)]),
    "moments": (pa.timestamp("us"), [datetime(1969, 12, 31, 23), datetime(2026, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001
    "moments in a zone": (
        pa.timestamp("us", "Europe/Berlin"),
        [
            datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(1969, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        ],
    ),
    "truth values": (pa.bool_(), [True, False]),
}

NUMBERS = {"whole numbers", "floats", "decimals"}


def any_aggregate(of_key: tuple[str, ...], value: str) -> Callable[[DataStream[Any]], DataStream[Any]]:
    functions: dict[str, Any] = {
        "n": Count(),
        "there": Count("v"),
        "low": Min("v"),
        "high": Max("v"),
        "first": First("v"),
        "last": Last("v"),
    }
    if value in NUMBERS:
        functions |= {"total": Sum("v"), "mean": Mean("v"), "dev": StdDev("v")}

    def aggregate(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by(list(of_key)).aggregate("any", **functions)

    return aggregate


@pytest.mark.parametrize("seed", range(3 * DEEP))
def test_rows_and_columns_of_any_types_end_with_the_same_values(seed: int) -> None:
    draws = Random(seed)
    of_key = ("a", "b")[: draws.randrange(1, 3)]
    key_kinds = [draws.choice([*VALUES]) for _ in of_key]
    value = draws.choice([*VALUES])
    rows: Rows = []
    for _ in range(draws.randrange(1, 150)):
        row = {
            name: draws.choice([None, *VALUES[kind][1]]) for name, kind in zip(of_key, key_kinds, strict=True)
        }
        rows.append(row | {"v": draws.choice([None, *VALUES[value][1]]), "list": [1, None]})
    schema = pa.schema(
        [(name, VALUES[kind][0]) for name, kind in zip(of_key, key_kinds, strict=True)]
        + [("v", VALUES[value][0]), ("list", pa.list_(pa.int64()))]
    )
    in_columns, in_rows = (
        outcome(job_of(rows, any_aggregate(of_key, value), columns=form, lanes=1, schema=schema), of_key)
        for form in (True, False)
    )
    assert in_columns.keys() == in_rows.keys()
    for key, row in in_columns.items():
        for name, got in row.items():
            assert are_close(got, in_rows[key][name]), (seed, key, name, got, in_rows[key][name])


def distinct_in(windows: TumblingEventTimeWindows) -> Callable[[DataStream[Any]], DataStream[Any]]:
    def aggregate(stream: DataStream[Any]) -> DataStream[Any]:
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(DISORDER)
        timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_column("at"))
        kinds = {"kinds": CountDistinct("v"), "about": ApproxCountDistinct("v")}
        return timed.key_by("k").window(windows).aggregate("panes", n=Count(), **kinds)

    return aggregate


#: Seconds by which a row may be older than the newest one before it.
DISORDER = 5


@pytest.mark.parametrize(
    ("key_kind", "value_kind", "windows"),
    [
        ("floats", "text", TumblingEventTimeWindows(10)),
        ("text", "floats", SlidingEventTimeWindows(size=10, slide=4)),
        ("moments in a zone", "decimals", TumblingEventTimeWindows(10)),
        ("whole numbers", "binary", SlidingEventTimeWindows(size=10, slide=4)),
    ],
    ids=["text by floats", "floats by text", "decimals by moments", "binary by whole numbers"],
)
def test_rows_and_columns_have_the_same_numbers_of_different_values_in_each_window(
    key_kind: str, value_kind: str, windows: TumblingEventTimeWindows
) -> None:
    """Whatever fails, and as plain Python counts them. So few values are counted exactly by sketches, too."""
    draws = Random(value_kind)
    rows: Rows = [
        {
            "k": draws.choice([None, *VALUES[key_kind][1]]),
            "v": draws.choice([None, *VALUES[value_kind][1]]),
            "at": (number // 3 + draws.randrange(DISORDER)) * 1_000_000,
        }
        for number in range(45)
    ]
    schema = pa.schema([("k", VALUES[key_kind][0]), ("v", VALUES[value_kind][0]), ("at", pa.int64())])
    of_pane: dict[tuple[str, int], list[Any]] = {}
    for row in rows:
        for start in windows.starts(row["at"]):
            of_pane.setdefault((one_value(row["k"]), start), []).append(row["v"])
    right = Counter(
        (start, len(values), len({one_value(value) for value in values if value is not None}))
        for (_, start), values in of_pane.items()
    )

    in_columns, in_rows = (
        panes_of(job_of(rows, distinct_in(windows), columns=form, schema=schema, lanes=1))
        for form in (True, False)
    )

    assert in_columns == in_rows
    assert in_columns.total() == len(of_pane), "each window of each key once"
    assert Counter((start, n, kinds) for _, start, n, kinds, _ in in_columns.elements()) == right
    assert all(kinds == about for _, _, _, kinds, about in in_columns)


def one_value(value: Any) -> str:
    """The same text for values that count as one."""
    return repr(0.0) if value == 0 and isinstance(value, float) else repr(value)


def panes_of(build: Callable[[], Any]) -> Counter[tuple[str, int, int, int, int]]:
    """The windows that a job emits: the same ones in each run."""
    seen: list[Counter[tuple[str, int, int, int, int]]] = []

    def panes(results: InMemoryCollector) -> Counter[tuple[str, int, int, int, int]]:
        seen.append(
            Counter(
                (
                    repr(row["k"]),
                    round(row["window_start"].timestamp() * 1_000_000),
                    row["n"],
                    row["kinds"],
                    row["about"],
                )
                for row in results.rows()
            )
        )
        return seen[-1]

    simulate(build, output=panes, **fewer(1))
    return seen[-1]


def outcome(build: Callable[[], Any], key: tuple[str, ...]) -> dict[Any, Any]:
    """The output of a job after a run with failures."""
    found: list[dict[Any, Any]] = []
    simulate(build, output=lambda results: found.append(last_values(results, key)) or "done", **fewer(1))
    return found[-1]


def are_close(one: Any, other: Any) -> bool:
    """Equal; floats up to what the order of additions changes."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or one == other or math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and one == other
