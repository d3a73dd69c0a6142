"""Jobs of several sources with windows of keys and windows of those windows, and what each must hold.

The records of a source are out of order within the bound that its strategy knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from strict_collector import StrictCollector

from penstock import KeyedProcessFunction, MapState, OutputTag, RuntimeContext
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowAssigner,
)

KEYS = 4
MOST_LANES = 2
CHUNK = 4

#: Microseconds from one record of a source to its next one.
STEP = 10
#: By how much a record may be older than its number says.
JITTER = 25
#: A subtask reads the lane furthest behind, some records at a time: so far it may be ahead of another lane.
BOUND = JITTER + STEP * CHUNK * MOST_LANES

#: Source and number: what one record is.
Item: TypeAlias = tuple[int, int]
#: A key and the start of a window, and what that held.
Row: TypeAlias = tuple[tuple[int, int], tuple[Item, ...]]
Target: TypeAlias = StrictCollector[tuple[int, int], tuple[Item, ...]]
#: A lane of a source: how many there are, and the next record.
Lane: TypeAlias = tuple[int, int]


def in_order(item: Item) -> int:
    return STEP * item[1]


def jittering(item: Item) -> int:
    return in_order(item) - (item[1] * 7919 + item[0]) % JITTER


def key_of(item: Item) -> int:
    return (item[0] + item[1]) % KEYS


@dataclass(frozen=True)
class Numbers:
    """A source of `count` records, a few a poll."""

    source: int
    count: int

    def splits(self, parallelism: int) -> Sequence[Lane]:
        return [(parallelism, lane) for lane in range(parallelism)]

    def reader(self, context: ConnectorContext, splits: Sequence[Lane]) -> NumbersReader:
        return NumbersReader(self, list(splits))


class NumbersReader:
    """Reads the lane that is furthest behind."""

    def __init__(self, numbers: Numbers, lanes: list[Lane]) -> None:
        self._numbers = numbers
        self._lanes = lanes

    def poll(self, max_rows: int) -> Polled[Item]:
        self._lanes = self._unfinished()
        if not self._lanes:
            return Polled(finished=True)
        step, first = lane = min(self._lanes, key=lambda each: each[1])
        indices = list(range(first, self._numbers.count, step))[: min(max_rows, 1 + first % CHUNK)]
        self._lanes.remove(lane)
        self._lanes.append((step, indices[-1] + step))
        return Polled(RowBatch([(self._numbers.source, i) for i in indices]))

    def snapshot(self) -> Sequence[Lane]:
        return self._unfinished()

    def close(self) -> None:
        """Nothing to release."""

    def _unfinished(self) -> list[Lane]:
        return [lane for lane in self._lanes if lane[1] < self._numbers.count]


def held(key: int, window: TimeWindow, items: list[Item]) -> list[Row]:
    return [((key, window.start_timestamp), tuple(sorted(items)))]


def united(key: int, window: TimeWindow, rows: list[Row]) -> list[Row]:
    return [((key, window.start_timestamp), tuple(sorted(item for _, items in rows for item in items)))]


class WindowsByHand(KeyedProcessFunction[int, Item, Row]):
    """The same windows, made of a map state and timers."""

    late = OutputTag[Item]("late_records")
    items = MapState(int, list)

    def __init__(self, windows: WindowAssigner) -> None:
        self.windows = windows

    def process(self, value: Item, ctx: RuntimeContext) -> None:
        assert ctx.timestamp is not None
        reached = ctx.timer_service.current_watermark
        ends = [start + self.windows.size for start in self.windows.starts(ctx.timestamp)]
        to_come = [end for end in ends if reached is None or end - 1 > reached]
        if not to_come:
            ctx.output(self.late, value)
        for end in to_come:
            self.items[end] = [*self.items.get(end, []), value]
            ctx.timer_service.register_event_time_timer(end - 1)

    def on_timer(self, at: int, ctx: RuntimeContext) -> list[Row]:
        items = self.items[at + 1]
        del self.items[at + 1]
        return held(ctx.current_key, TimeWindow(at + 1 - self.windows.size, at + 1), items)


@dataclass(frozen=True)
class Shape:
    """A job but for its parallelism.

    Where timestamps are monotonous the sources keep their parallelism: a subtask never reads two lanes.
    """

    counts: Sequence[int]
    monotonous: bool
    size: int
    slides: bool
    relays: bool
    chaining: bool
    by_hand: bool = False

    @property
    def windows(self) -> WindowAssigner:
        size = timedelta(microseconds=self.size)
        return SlidingEventTimeWindows(size, size / 2) if self.slides else TumblingEventTimeWindows(size)

    @property
    def strategy(self) -> WatermarkStrategy[Item]:
        if self.monotonous:
            return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(in_order)
        bounded = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(microseconds=BOUND))
        return bounded.with_timestamp_assigner(jittering)

    @property
    def wide(self) -> TumblingEventTimeWindows:
        return TumblingEventTimeWindows(timedelta(microseconds=3 * self.size))

    def expected(self) -> tuple[dict[tuple[int, int], list[Item]], dict[tuple[int, int], list[Item]]]:
        """The contents of each window, and of each window of windows."""
        narrow: dict[tuple[int, int], list[Item]] = {}
        wide: dict[tuple[int, int], list[Item]] = {}
        moment = in_order if self.monotonous else jittering
        for item in ((source, i) for source, count in enumerate(self.counts) for i in range(count)):
            for start in self.windows.starts(moment(item)):
                narrow.setdefault((key_of(item), start), []).append(item)
        for (key, start), items in narrow.items():
            (wider,) = self.wide.starts(start + self.size - 1)
            wide.setdefault((key % 2, wider), []).extend(items)
        return narrow, wide

    def build(self, parallelism: Sequence[int], targets: Targets) -> ExecutionGraph:
        of_source, of_relay, of_windows, of_wide = parallelism
        env = StreamEnvironment("windows", max_parallelism=8, chaining=self.chaining)
        first, *others = [
            env.from_source(
                f"source-{source}", Numbers(source, count), parallelism=of_source
            ).assign_timestamps_and_watermarks(self.strategy, parallelism=of_source)
            for source, count in enumerate(self.counts)
        ]
        stream: Any = first.union(*others) if others else first
        if self.relays:
            stream = stream.rebalance().map(lambda item: item, parallelism=of_relay)
        keyed = stream.key_by(key_of)
        if self.by_hand:
            windows = keyed.process("windows", WindowsByHand(self.windows), parallelism=of_windows)
        else:
            windows = keyed.window(self.windows).apply("windows", held, parallelism=of_windows)
        windows.sink("out", CollectSink(targets.narrow), parallelism=of_windows)
        late = windows.side_output("late_records").map(lambda item: ((0, 0), (item,)), parallelism=of_windows)
        late.sink("late", CollectSink(targets.late), parallelism=of_windows)
        wide = windows.key_by(lambda row: row[0][0] % 2).window(self.wide)
        wide.apply("wide", united, parallelism=of_wide).sink(
            "wide-out", CollectSink(targets.wide), parallelism=of_wide
        )
        return build_execution_graph(env.build())


@dataclass(frozen=True)
class Targets:
    """The committed rows of a job."""

    narrow: Target = field(default_factory=StrictCollector)
    wide: Target = field(default_factory=StrictCollector)
    late: Target = field(default_factory=StrictCollector)
