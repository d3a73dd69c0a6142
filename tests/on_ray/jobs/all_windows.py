"""Tumbling and sliding windows with `reduce`, `aggregate` and `apply`, and records that are late in some.

One subtask reads the numbers from 0 on. Most records are in time. Every thirteenth is a straggler: it is late
in all of its windows, in some of them, or in none. The source ends a batch in front of each straggler. So the
watermark in front of it follows from the records in front of it, wherever else batches end. The same records
are late in every run, and `expected` computes them from the numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock import AggregateFunction, DataStream, StreamEnvironment, WatermarkStrategy, WindowedStream
from penstock.connectors import ConnectorContext, Polled, Sink
from penstock.operators import RowBatch
from penstock.windows import SlidingEventTimeWindows, TimeWindow, TumblingEventTimeWindows

KEYS: Final = 3
#: Milliseconds from one number to the next, and by how many a record in time may be older than the newest.
STEP: Final = 10
BOUND: Final = 40
#: Every so many numbers comes a straggler, older by one of these: late nowhere, somewhere, everywhere.
EVERY: Final = 13
DELAYS: Final = (60, 260, 110, 700, 170)

SIZE: Final = 200
SLIDES: Final = {"tumbling": SIZE, "sliding": 50}
FUNCTIONS: Final = ("reduce", "aggregate", "apply")
#: Ids of the operators with windows.
WINDOWS: Final = tuple(f"{kind}-{function}" for kind in SLIDES for function in FUNCTIONS)

#: Key, first number, how many, their sum.
Reading = tuple[int, int, int, int]
Row = tuple[Any, ...]


def moment(i: int) -> int:
    """Milliseconds since the epoch."""
    if is_straggler(i):
        return i * STEP - DELAYS[i // EVERY % len(DELAYS)]
    return i * STEP - i * 7919 % BOUND


def is_straggler(i: int) -> bool:
    return i % EVERY == EVERY - 1


def reading(i: int) -> Reading:
    return i * i % KEYS, i, 1, i


# -- the job ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """A source of numbers.

    Attributes:
        count: How many there are.
        rate: Numbers a second, until the file `release` exists; without one all come at full speed.
        release: Before it exists, the last number is kept back.
    """

    count: int
    rate: float = 0.0
    release: str | None = None

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def reader(self, context: ConnectorContext, splits: Sequence[int]) -> NumbersReader:
        return NumbersReader(self, context, splits[0] if splits else self.count)


class NumbersReader:
    """Reads on from a number."""

    def __init__(self, numbers: Numbers, context: ConnectorContext, start: int) -> None:
        self._numbers = numbers
        self._clock = context.clock
        self._next = start
        self._ready_at = 0.0

    def poll(self, max_rows: int) -> Polled[Reading]:
        numbers = self._numbers
        if self._next >= numbers.count:
            return Polled(finished=True)
        upto = min(self._next + max_rows, numbers.count)
        if numbers.release is not None and not Path(numbers.release).exists():
            now = self._clock.monotonic()
            upto = min(upto, self._next + max(1, int(numbers.rate / 20)), numbers.count - 1)
            if now < self._ready_at or upto <= self._next:
                return Polled(ready_at=max(self._ready_at, now + 0.05))
            self._ready_at = now + (upto - self._next) / numbers.rate
        stragglers = (i for i in range(self._next + 1, upto) if is_straggler(i))
        rows = [reading(i) for i in range(self._next, next(stragglers, upto))]
        self._next += len(rows)
        return Polled(RowBatch(rows))

    def snapshot(self) -> Sequence[int]:
        return [self._next] if self._next < self._numbers.count else []

    def close(self) -> None:
        """Nothing is held."""


def micros(given: Reading) -> int:
    return moment(given[1]) * 1000


def key_of(given: Reading) -> int:
    return given[0]


def both(one: Reading, other: Reading) -> Reading:
    return one[0], min(one[1], other[1]), one[2] + other[2], one[3] + other[3]


class Totals(AggregateFunction[Reading, list[int], Row]):
    """Key, last number, how many, sum of squares; the accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [-1, -1, 0, 0]

    def add(self, value: Reading, accumulator: list[int]) -> list[int]:
        accumulator[0] = value[0]
        accumulator[1] = max(accumulator[1], value[1])
        accumulator[2] += 1
        accumulator[3] += value[1] ** 2
        return accumulator

    def get_result(self, accumulator: list[int]) -> Row:
        return tuple(accumulator)


def held(key: int, window: TimeWindow, readings: list[Reading]) -> Iterator[Row]:
    """Two records: what it holds in the order of arrival, and where it ends."""
    yield key, window.start_timestamp // 1000, *(number for _, number, _, _ in readings)
    yield key, window.end_timestamp // 1000


def add_all_windows(
    env: StreamEnvironment,
    source: Numbers,
    sink_of: Callable[[str], Sink[Any]],
    parallelism: int,
    names: Sequence[str] = WINDOWS,
) -> None:
    """Add the source, operators with windows, a sink for the results of each, and one for all late records.

    Args:
        sink_of: Makes the sink of an operator's results from its id, and that of `late` records.
        parallelism: Of the operators with windows.
        names: Ids of the operators with windows.
    """
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(BOUND / 1000).with_timestamp_assigner(micros)
    numbers = env.from_source("numbers", source, parallelism=1)
    keyed = numbers.assign_timestamps_and_watermarks(strategy, parallelism=1).key_by(key_of)
    tumbling = keyed.window(TumblingEventTimeWindows(SIZE / 1000))
    sliding = keyed.window(SlidingEventTimeWindows(SIZE / 1000, SLIDES["sliding"] / 1000))
    late: list[DataStream[Any]] = []
    for name in names:
        kind, _, function = name.partition("-")
        results = _results({"tumbling": tumbling, "sliding": sliding}[kind], name, function, parallelism)
        results.sink(f"{name}-out", sink_of(name), parallelism=parallelism)
        late.append(results.side_output("late_records"))
    late[0].union(*late[1:]).sink("late-out", sink_of("late"), parallelism=1)


def _results(
    windows: WindowedStream[Reading, int], id: str, function: str, parallelism: int
) -> DataStream[Any]:
    if function == "reduce":
        return windows.reduce(id, both, parallelism=parallelism)
    if function == "aggregate":
        return windows.aggregate(id, Totals(), parallelism=parallelism)
    return windows.apply(id, held, parallelism=parallelism)


# -- what it must leave -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """The contents of windows of one kind, computed without Penstock.

    Attributes:
        windows: The numbers of each key and start, in their order.
        late: Numbers that are late in all of their windows.
        partly: How many are late in some.
    """

    windows: dict[tuple[int, int], list[int]]
    late: list[int]
    partly: int


def expected(slide: int, count: int) -> Expected:
    """Put each number into its windows, as long as the newest one before it has not closed them."""
    windows: dict[tuple[int, int], list[int]] = {}
    late, partly, newest = [], 0, -(10**9)
    for i in range(count):
        stamp = moment(i)
        starts = list(range(stamp // slide * slide, stamp - SIZE, -slide))
        still_open = [start for start in starts if start + SIZE > newest - BOUND]
        assert is_straggler(i) or still_open == starts, "a record in time is late nowhere"
        for start in still_open:
            windows.setdefault((i * i % KEYS, start), []).append(i)
        if not still_open:
            late.append(i)
        partly += 0 < len(still_open) < len(starts)
        newest = max(newest, stamp)
    return Expected(windows, late, partly)


def expected_rows(count: int, names: Sequence[str] = WINDOWS) -> dict[str, list[Row]]:
    """The rows of each sink, sorted, by the id that `add_all_windows` gives to `sink_of`."""
    rows: dict[str, list[Row]] = {"late": []}
    for name in names:
        kind, _, function = name.partition("-")
        of = expected(SLIDES[kind], count)
        rows[name] = _made(function, of)
        rows["late"] += [(i * i % KEYS, i, 1, i) for i in of.late]
    return {name: sorted(each) for name, each in rows.items()}


def _made(function: str, of: Expected) -> list[Row]:
    """The results of a function over the windows."""
    each = list(of.windows.items())
    if function == "reduce":
        return [(key, min(held), len(held), sum(held)) for (key, _), held in each]
    if function == "aggregate":
        return [(key, max(held), len(held), sum(i * i for i in held)) for (key, _), held in each]
    return [
        *((key, start, *held) for (key, start), held in each),
        *((key, start + SIZE) for (key, start), _ in each),
    ]
