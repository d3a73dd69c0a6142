"""A key of any column type gives the same results in every operator, form of batch, backend and parallelism.

Half of the records come before a restore, the other half behind it, dealt out as an exchange does it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock import KeyedProcessFunction, MapState, ValueState
from penstock.aggregates import Sum
from penstock.runtime.config.job_config import HeapState, RocksDB
from penstock.runtime.errors import OperatorError
from penstock.runtime.network.result_partition import KeyGroupSelector
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.testing import OperatorHarness
from penstock.windows import EventTimeSessionWindows, TumblingEventTimeWindows

MAX_PARALLELISM = 128
END = 10**9


def at(month: int, day: int, *hours: int) -> list[datetime]:
    return [datetime(2022, month, day, hour, 30, tzinfo=UTC) for hour in hours]


NEW_YORK = "America/New_York"
COLUMNS: dict[str, pa.Array] = {
    "an hour that comes twice": pa.array([*at(11, 6, 5, 6, 7), None], pa.timestamp("us", NEW_YORK)),
    "an hour that is skipped": pa.array(at(3, 13, 6, 7), pa.timestamp("s", NEW_YORK)),
    "nanoseconds": pa.array([1000, 2000], pa.timestamp("ns", "Europe/Berlin")),
    "durations": pa.array([1000, 2000], pa.duration("ns")),
    "times of day": pa.array([1, 2], pa.time32("s")),
    "days": pa.array([86_400_000, 0], pa.date64()),
    "large numbers": pa.array([2**63 + 1, 2**63, 5, None], pa.uint64()),
    "floats": pa.array([math.nan, 0.0, -0.0, math.nan, 2.0**63, 1.5]),
    "narrow floats": pa.array([0.1, 0.5, math.nan], pa.float32()),
    "decimals": pa.array([Decimal("1.00"), Decimal("1.50"), None]),
    "letters with accents": pa.array(["\u00e9", "e\u0301", "", None], pa.large_string()),
    "views": pa.array(["a" * 40, "b", None], pa.string_view()),
    "a dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "bytes": pa.array([b"a", b"", None], pa.binary()),
    "bytes of one length": pa.array([b"ab", b"cd"], pa.binary(2)),
    "booleans": pa.array([True, False, None]),
    "nulls": pa.nulls(3),
}


class Visits(KeyedProcessFunction[Any, Any, Any]):
    """Uses the key in a value, in a map and in a timer."""

    count = ValueState(int, default=0)
    by_key: MapState[Any, int] = MapState()

    def process(self, value: Any, ctx: Any) -> Any:
        self.count.update(self.count.value() + 1)
        self.by_key[ctx.current_key] = self.count.value()
        ctx.timer_service.register_event_time_timer(END // 2)
        yield ctx.current_key, self.count.value(), len(self.by_key)

    def on_timer(self, timestamp: Any, ctx: Any) -> Any:
        yield "timer", ctx.current_key, self.count.value()


def added(one: Any, other: Any) -> Any:
    return {**other, "n": one["n"] + other["n"]}


JOBS: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda keyed: keyed.reduce("x", added),
    "process": lambda keyed: keyed.process("x", Visits()),
    "window": lambda keyed: keyed.window(TumblingEventTimeWindows(10)).reduce("x", added),
    "session": lambda keyed: keyed.window(EventTimeSessionWindows(10)).reduce("x", added),
    "aggregate": lambda keyed: keyed.aggregate("x", combine=False, n=Sum("n")),
    "aggregate of windows": lambda keyed: keyed.window(TumblingEventTimeWindows(10)).aggregate(
        "x", combine=False, n=Sum("n")
    ),
    "aggregate of sessions": lambda keyed: keyed.window(EventTimeSessionWindows(10)).aggregate(
        "x", combine=False, n=Sum("n")
    ),
}
HEAP, ROCKSDB = HeapState(), RocksDB(8 * 1024 * 1024, "/dev/shm")


def form(value: Any) -> Any:
    """A value in a form that tells what differs, also of NaN and of an hour that comes twice."""
    if isinstance(value, dict):
        return tuple((name, form(part)) for name, part in sorted(value.items()))
    if isinstance(value, tuple):
        return tuple(map(form, value))
    if isinstance(value, datetime):
        return "moment", value.timestamp()
    return repr(value + 0.0 if isinstance(value, float) else value)


def results(
    job: Callable[[Any], Any], key: list[str], batch: Batch, backend: Any, parallelism: int
) -> Counter[Any]:
    def build(stream: Any) -> Any:
        return job(stream.key_by(key))

    with OperatorHarness.of(build, state_backend=backend) as harness:
        found = harness.push_batch(batch)
        saved = harness.snapshot()
    exchange = KeyGroupSelector(ColumnKey(tuple(key)), parallelism, MAX_PARALLELISM)
    parts = dict(exchange.select(batch))
    for subtask in range(parallelism):
        settings: Any = {"subtask": subtask, "parallelism": parallelism, "restored": [saved]}
        with OperatorHarness.of(build, state_backend=backend, **settings) as harness:
            if subtask in parts:
                found += harness.push_batch(parts[subtask])
            harness.snapshot()
            found += harness.push_watermark(END)
    return Counter(map(form, found))


#: Two columns make tuples in rows, whose parts have the same forms; some show that.
PAIRED = ("an hour that comes twice", "nanoseconds", "floats", "a dictionary")


@pytest.mark.parametrize(
    ("name", "key"), [*((name, ["k"]) for name in COLUMNS), *((name, ["k", "other"]) for name in PAIRED)]
)
def test_a_key_gives_the_same_results_in_rows_columns_backends_and_parallelisms(
    name: str, key: list[str]
) -> None:
    column = COLUMNS[name]
    other = [number // 2 for number in range(len(column))]
    data = {"k": column, "other": other, "n": [1] * len(column)}
    columns = ArrowBatch(pa.record_batch(data), pa.array([0] * len(column), pa.int64()))
    rows = rows_of(columns)
    for kind, job in JOBS.items():
        expected = results(job, key, rows, HEAP, 1)
        assert expected, kind
        assert results(job, key, columns, HEAP, 3) == expected, kind
        if not kind.startswith("aggregate"):
            assert results(job, key, rows, ROCKSDB, 3) == expected, kind
            assert results(job, key, columns, ROCKSDB, 1) == expected, kind


@pytest.mark.parametrize("job", [JOBS[name] for name in JOBS if name.startswith("aggregate")])
@pytest.mark.parametrize("bad", [2**70, (1, 2)], ids=str)
def test_a_key_that_no_column_holds_is_named_wherever_it_stands_in_a_batch(
    job: Callable[[Any], Any], bad: Any
) -> None:
    rows = [{"k": 1, "n": 1}, {"k": 2, "n": 1}, {"k": bad, "n": 1}]
    with (
        OperatorHarness.of(lambda stream: job(stream.key_by("k"))) as harness,
        pytest.raises(OperatorError, match=r"can't take the record .*can't be stored exactly") as raised,
    ):
        harness.push(rows, timestamps=[0, 20, 40])
    assert repr(bad)[:10] in str(raised.value)
