"""Whole jobs with windows of event time: each window of each key once and whole, whatever happens.

A case is a job of several sources, whose records are out of order within the bound that their strategy knows,
with windows of keys and windows of those windows; settings that squeeze the data plane; and a history of
checkpoints, refusals of the storage, crashes and changes of parallelism a few moves apart. Nothing may be
late: a record behind its window would mean that event time was somewhere ahead of what it speaks of. That is
what watermarks in flight, a restored watermark and keys of several old subtasks must not bring about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.runtime.checkpoint import state_files
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.operators.protocols import ConnectorContext, Polled
from penstock.runtime.record.elements import RowBatch, SnapshotKind
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.step_job import StepJob
from penstock.runtime.testing.step_world import StrictCollector, UnsureStorage
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
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
    return [((key, window.start), tuple(sorted(items)))]


def united(key: int, window: TimeWindow, rows: list[Row]) -> list[Row]:
    return [((key, window.start), tuple(sorted(item for _, items in rows for item in items)))]


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
        """What each window holds, and each window of windows."""
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
        windows = stream.key_by(key_of).window(self.windows).apply("windows", held, parallelism=of_windows)
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
    """What a job has committed."""

    narrow: Target = field(default_factory=StrictCollector)
    wide: Target = field(default_factory=StrictCollector)
    late: Target = field(default_factory=StrictCollector)


shapes = st.builds(
    Shape,
    counts=st.lists(st.integers(30, 70) | st.integers(0, 9), min_size=1, max_size=2),
    monotonous=st.booleans(),
    size=st.sampled_from([30, 100]),
    slides=st.booleans(),
    relays=st.booleans(),
    chaining=st.booleans(),
)
parallelisms = st.tuples(st.integers(1, MOST_LANES), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2))
configs = st.builds(
    JobConfig,
    credits=st.integers(1, 5),
    buffer_rows=st.integers(1, 8),
    buffer_timeout=st.sampled_from([0.0, 0.01]),
    end_of_partition=st.sampled_from(["counts_as_barrier", "aborts"]),
    checkpointing=st.sampled_from(
        [
            Checkpointing(every=1),
            Checkpointing(every=1, unaligned=True),
            Checkpointing(every=1, unaligned=True),
            Checkpointing(every=1, unaligned=True, aligned_timeout=0.05),
        ]
    ),
)
#: A checkpoint or savepoint, and what comes when it is complete, or so many moves later.
happenings = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.sampled_from(["checkpoint", "checkpoint", "checkpoint", "savepoint"]),
        st.integers(0, 60) | st.just(1000),
        st.sampled_from(["rescale", "crash", "rescale", "nothing", "give up", "storage"]),
    ),
    min_size=2,
    max_size=7,
)


@dataclass
class History:
    """One case, as it goes on."""

    shape: Shape
    parallelism: Sequence[int]
    config: JobConfig
    random: Random
    targets: Targets = field(default_factory=Targets)
    storage: UnsureStorage = field(default_factory=UnsureStorage)
    crashes: int = 0
    early: int = 0

    def __post_init__(self) -> None:
        graph = self.shape.build(self.parallelism, self.targets)
        self.job = StepJob(graph, self.config, self.storage, self.random.randrange, ManualClock())

    def run(self, happenings: Sequence[tuple[int, str, int, str]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state_files, "INLINE_LIMIT", 40)  # so that small state is in files, too
            for before, kind, after, what in happenings:
                self.job.run(before)
                if not self.job.checkpoints.running:
                    self.job.trigger_checkpoint(SnapshotKind(kind))
                for _ in range(after):
                    if not self.job.checkpoints.running or not self.job.move():
                        break
                self._happen(what)
            self.storage.refuses = False
            self.job.finish()

    def check(self) -> None:
        assert self.targets.late.by_key() == {}
        narrow, wide = self.shape.expected()
        assert once(self.targets.narrow) == {window: tuple(sorted(items)) for window, items in narrow.items()}
        assert once(self.targets.wide) == {window: tuple(sorted(items)) for window, items in wide.items()}

    def _happen(self, what: str) -> None:
        running = self.job.checkpoints.running
        if what == "give up" and running:
            self.job.give_up_checkpoint(self.random.choice(sorted(running)))
        elif what == "storage":
            self.storage.refuses = not self.storage.refuses
        elif what in ("crash", "rescale"):
            self.crashes += 1
            self.early = len(self.targets.narrow.by_key())
            killed = self.random.choice([None, *self.job.tasks])
            if what == "rescale":
                lanes = self.parallelism[0] if self.shape.monotonous else self.random.randint(1, MOST_LANES)
                self.parallelism = [lanes, *(self.random.randint(1, most) for most in (2, 3, 2))]
            self.job.crash(self.shape.build(self.parallelism, self.targets), killed=killed)


def once(
    target: StrictCollector[tuple[int, int], tuple[Item, ...]],
) -> dict[tuple[int, int], tuple[Item, ...]]:
    windows: dict[tuple[int, int], tuple[Item, ...]] = {}
    for window, fired in target.by_key().items():
        (windows[window],) = fired
    return windows


@settings(max_examples=60, deadline=None)
@given(shapes, parallelisms, configs, happenings, st.integers(0, 2**32))
def test_each_window_comes_out_once_and_whole_and_nothing_is_late(
    shape: Shape,
    parallelism: Sequence[int],
    config: JobConfig,
    happenings: list[tuple[int, str, int, str]],
    seed: int,
) -> None:
    history = History(shape, parallelism, config, Random(seed))
    history.run(happenings)
    history.check()
    event(f"windows came before the last crash: {history.early > 0}, crashes: {history.crashes}")


@pytest.mark.parametrize("seed", range(12))
def test_watermarks_in_flight_make_nothing_late_at_another_parallelism(seed: int) -> None:
    """Much is in flight, no bound has room for it, and the receivers are at different moments."""
    random = Random(seed)
    shape = Shape(
        counts=random.choice([(60,), (60, 40)]),
        monotonous=True,
        size=30,
        slides=False,
        relays=random.random() < 0.3,
        chaining=random.random() < 0.5,
    )
    config = JobConfig(
        credits=random.choice([3, 5, 8]),
        buffer_rows=random.choice([1, 2]),
        buffer_timeout=0.0,
        checkpointing=Checkpointing(every=1, unaligned=True),
    )
    parallelism = [random.choice([1, 2]), 2, random.choice([2, 3]), random.choice([1, 2])]
    history = History(shape, parallelism, config, random)
    history.run([(random.randint(20, 250), "checkpoint", 1000, "rescale") for _ in range(3)])
    history.check()


@pytest.mark.long
@settings(max_examples=5000, deadline=None)
@given(shapes, parallelisms, configs, happenings, st.integers(0, 2**32))
def test_each_window_comes_out_once_and_whole_in_many_more_jobs(
    shape: Shape,
    parallelism: Sequence[int],
    config: JobConfig,
    happenings: list[tuple[int, str, int, str]],
    seed: int,
) -> None:
    history = History(shape, parallelism, config, Random(seed))
    history.run(happenings)
    history.check()
    event(f"windows came before the last crash: {history.early > 0}, crashes: {history.crashes}")
