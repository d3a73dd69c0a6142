"""Jobs with every kind of edge under unaligned checkpoints: nothing in flight is lost, or counts twice.

Jobs of `test_random_jobs` have one line of operators. A job here has a middle with several inputs at once:
forward, spread and broadcast edges. The barriers of some may overtake, those of others may not. There are
dead letters on a side output, timestamps, Arrow batches. Its history has the events that disturb checkpoints:
a crash, a timeout or a failed write a few moves after a checkpoint has begun. Both meanings of the end of a
channel are tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from deep import DEEP
from hypothesis import example, given, settings
from hypothesis import strategies as st
from job_histories import state_files_in
from memory_storages import UnsureStorage
from simulated_jobs.scripted_job import ScriptedJob
from strict_collector import StrictCollector

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.operators.source import ConnectorContext, DeadLetter, Polled
from penstock.runtime.record.elements import RowBatch, SnapshotKind
from penstock.runtime.snapshot import metadata
from penstock.runtime.testing.manual_time import ManualClock

KEYS = 4

#: Source and number: what one record is.
Item: TypeAlias = tuple[int, int]
Row: TypeAlias = tuple[int, tuple[Item, ...]]
Collector: TypeAlias = StrictCollector[int, tuple[Item, ...]]
#: A lane of a source: its number, how many there are, and the next record.
Lane: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Numbers:
    """A source of `count` records, a few a poll; some are dead letters, some batches have timestamps."""

    source: int
    count: int
    is_stamped: bool

    def splits(self, parallelism: int) -> Sequence[Lane]:
        return [(lane, parallelism, lane) for lane in range(parallelism)]

    def reader(self, context: ConnectorContext, splits: Sequence[Lane]) -> NumbersReader:
        return NumbersReader(self, list(splits))


def is_dead(i: int) -> bool:
    return i % 7 == 3


class NumbersReader:
    def __init__(self, numbers: Numbers, lanes: list[Lane]) -> None:
        self._numbers = numbers
        self._lanes = lanes

    def poll(self, max_rows: int) -> Polled[Item]:
        source, count = self._numbers.source, self._numbers.count
        self._lanes = [lane for lane in self._lanes if lane[2] < count]
        if not self._lanes:
            return Polled(finished=True)
        number, step, first = self._lanes.pop(0)
        indices = list(range(first, count, step))[: min(max_rows, 2 + first % 5)]
        self._lanes.append((number, step, indices[-1] + step))
        rows = [(source, i) for i in indices if not is_dead(i)]
        stamps = [i * 1_000 for _, i in rows] if self._numbers.is_stamped and first % 2 else None
        dead = tuple(DeadLetter(i, "dead", str(source)) for i in indices if is_dead(i))
        return Polled(RowBatch(rows, stamps) if rows else None, dead)

    def snapshot(self) -> Sequence[Lane]:
        return [lane for lane in self._lanes if lane[2] < self._numbers.count]

    def close(self) -> None:
        """Nothing to release."""


def strings(target: Collector) -> dict[int, tuple[Item, ...]]:
    """The final length of each key; every length on the way was committed exactly once."""
    return {key: longest(grown) for key, grown in target.by_key().items()}


def longest(grown: list[tuple[Item, ...]]) -> tuple[Item, ...]:
    grown.sort(key=len)
    assert [len(items) for items in grown] == list(range(1, len(grown) + 1))
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(grown))
    return grown[-1]


@dataclass(frozen=True)
class Shape:
    """A job: the edges into its middle, the work of the middle, and its continuation."""

    counts: tuple[int, int]
    edges: Sequence[tuple[int, str, str]]  # (source, "records" or "dead letters", how they are dealt out)
    work: str
    relay: str
    chaining: bool
    seconds_per_record: float
    parallelism: Sequence[int]  # of the sources, the middle, the relay, the keyed operator and the sink

    def expected(self) -> dict[int, Counter[Item]]:
        """The number of times that each item must be in the string of its key."""
        of_middle, of_relay = self.parallelism[1:3]
        strings: dict[int, Counter[Item]] = {}
        for source, what, how in self.edges:
            for i in range(self.counts[source]):
                if is_dead(i) == (what == "dead letters"):
                    copies = of_middle if how == "broadcast" else 1
                    copies *= of_relay if self.relay == "broadcast" else 1
                    strings.setdefault((source + i) % KEYS, Counter())[source, i] += copies
        return strings

    def build(self, target: Collector, clock: ManualClock) -> ExecutionGraph:
        of_source, of_middle, of_relay, of_keyed, of_sink = self.parallelism
        env = StreamEnvironment("unaligned", max_parallelism=8, chaining=self.chaining)
        sources: list[DataStream[Any]] = [
            env.from_source(f"source-{source}", Numbers(source, count, source == 0), parallelism=of_source)
            for source, count in enumerate(self.counts)
        ]
        inputs = [dealt_out(side_of(sources[source], what), how) for source, what, how in self.edges]
        middle = inputs[0].union(*inputs[1:]) if len(inputs) > 1 else inputs[0]
        worked = self._work(middle, clock, of_middle)
        if self.relay:
            worked = dealt_out(worked, self.relay).map(lambda row: row, parallelism=of_relay)
        worked.map(to_row).key_by(lambda row: row[0]).reduce(
            "strung", lambda a, b: (a[0], a[1] + b[1]), parallelism=of_keyed
        ).sink("out", CollectSink(target), parallelism=of_sink)
        return build_execution_graph(env.build())

    def _work(self, stream: DataStream[Any], clock: ManualClock, parallelism: int) -> DataStream[Any]:
        def item(record: Any) -> dict[str, int]:
            clock.advance(self.seconds_per_record)
            source, i = (int(record.origin), record.record) if isinstance(record, DeadLetter) else record
            return {"source": source, "i": i}

        def twice_half(record: Any) -> Iterator[dict[str, int]]:
            yield item(record)

        def same(batch: pa.RecordBatch) -> pa.RecordBatch:
            clock.advance(self.seconds_per_record * batch.num_rows)
            return batch

        if self.work == "flat_map":
            return stream.flat_map(twice_half, parallelism=parallelism)
        mapped = stream.map(item, parallelism=parallelism)
        if self.work == "arrow":
            return mapped.map_batches(same, "arrow").map_batches(same, "arrow")
        return mapped


def side_of(stream: DataStream[Any], what: str) -> DataStream[Any]:
    return stream.dead_letters() if what == "dead letters" else stream


def dealt_out(stream: DataStream[Any], how: str) -> DataStream[Any]:
    return {"broadcast": stream.broadcast, "rebalance": stream.rebalance}.get(how, lambda: stream)()


def to_row(record: dict[str, int]) -> Row:
    source, i = record["source"], record["i"]
    return (source + i) % KEYS, ((source, i),)


edges = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["records", "records", "dead letters"]),
    st.sampled_from(["as it comes", "rebalance", "broadcast"]),
)
shapes = st.builds(
    Shape,
    counts=st.tuples(st.integers(0, 16), st.integers(0, 16)),
    edges=st.lists(edges, min_size=1, max_size=3),
    work=st.sampled_from(["map", "flat_map", "arrow"]),
    relay=st.sampled_from(["", "rebalance", "broadcast"]),
    chaining=st.booleans(),
    seconds_per_record=st.sampled_from([0.0, 0.004, 0.03]),
    parallelism=st.lists(st.integers(1, 2), min_size=5, max_size=5),
)
configs = st.builds(
    JobConfig,
    advanced=st.builds(
        AdvancedConfig,
        credits=st.integers(1, 4),
        buffer_rows=st.integers(1, 8),
        arrow_buffer_rows=st.integers(1, 8),
    ),
    buffer_timeout=st.sampled_from([0.0, 0.01, 0.1]),
    end_of_partition=st.sampled_from(["counts_as_barrier", "aborts"]),
    checkpointing=st.sampled_from(
        [
            Checkpointing(every=1, unaligned=True),
            Checkpointing(every=1, unaligned=True, aligned_timeout=0),
            Checkpointing(every=1, unaligned=True, aligned_timeout=0.05),
        ]
    ),
)
#: A checkpoint or savepoint, and what comes so many moves later.
happenings = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from(["checkpoint", "checkpoint", "savepoint"]),
        st.integers(0, 40),
        st.sampled_from(["nothing", "nothing", "give up", "give up", "crash", "storage"]),
    ),
    max_size=6,
)


@dataclass
class History:
    """One case, step by step."""

    shape: Shape
    config: JobConfig
    random: Random
    clock: ManualClock = field(default_factory=ManualClock)
    target: Collector = field(default_factory=StrictCollector)
    storage: UnsureStorage = field(default_factory=UnsureStorage)
    crashes: int = 0
    keeps_checkpoints: bool = True

    def __post_init__(self) -> None:
        graph = self.shape.build(self.target, self.clock)
        self.job = ScriptedJob(
            graph,
            self.config,
            self.storage,
            self.random.randrange(1 << 32),
            self.clock,
            keeps_checkpoints=self.keeps_checkpoints,
        )

    def run(self, happenings: Sequence[tuple[int, str, int, str]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata, "INLINE_LIMIT", 40)  # so that small state is in files, too
            for before, kind, after, what in happenings:
                self.job.run(before)
                if len(self.job.running) <= (kind == "savepoint"):  # savepoints may be forced
                    self.job.trigger_checkpoint(SnapshotKind(kind))
                self.job.run(after)
                self._happen(what)
            self.storage.refuses = False
            self.job.finish()
            self.job.run(10_000)

    def _happen(self, what: str) -> None:
        running = self.job.running
        if what == "give up" and running:
            self.job.give_up_checkpoint(self.random.choice(sorted(running)))
        elif what == "storage":
            self.storage.refuses = not self.storage.refuses
        elif what == "crash":
            self.crashes += 1
            with self.storage.answering():  # a job restarts only when its log can be written
                self.job.crash(killed=self.random.choice([None, *self.job.tasks]))


@settings(max_examples=20 * DEEP, deadline=None)
@given(shapes, configs, happenings, st.integers(0, 2**32))
def test_every_record_has_its_effect_once_on_every_way_that_it_takes(
    shape: Shape, config: JobConfig, happenings: list[tuple[int, str, int, str]], seed: int
) -> None:
    history = History(shape, config, Random(seed))
    history.run(happenings)
    assert {key: Counter(items) for key, items in strings(history.target).items()} == shape.expected()


#: A subtask acknowledges an aborted checkpoint, and the job's last subtask finishes before that comes.
LATE_ACKNOWLEDGEMENT = Shape(
    counts=(8, 5),
    edges=[(1, "records", "as it comes")],
    work="map",
    relay="",
    chaining=True,
    seconds_per_record=0.0,
    parallelism=[2, 1, 1, 1, 2],
)


@settings(max_examples=14 * DEEP, deadline=None)
@given(shapes, configs, happenings, st.integers(0, 2**32))
@example(
    LATE_ACKNOWLEDGEMENT,
    JobConfig(
        advanced=AdvancedConfig(credits=1, buffer_rows=1, arrow_buffer_rows=1),
        buffer_timeout=0.0,
        end_of_partition="counts_as_barrier",
        checkpointing=Checkpointing(every=1, unaligned=True),
    ),
    [(35, "savepoint", 0, "nothing"), (0, "savepoint", 0, "nothing"), (48, "checkpoint", 0, "nothing")],
    134217727,
)
def test_checkpoints_that_end_in_any_way_leave_no_files_behind(
    shape: Shape, config: JobConfig, happenings: list[tuple[int, str, int, str]], seed: int
) -> None:
    history = History(shape, config, Random(seed), keeps_checkpoints=False)
    history.run([(b, kind, a, what) for b, kind, a, what in happenings if what != "crash"])
    assert state_files_in(history.storage) == set()


@pytest.mark.long
@settings(max_examples=5000, deadline=None)
@given(shapes, configs, happenings, st.integers(0, 2**32))
def test_every_record_has_its_effect_once_in_many_more_jobs(
    shape: Shape, config: JobConfig, happenings: list[tuple[int, str, int, str]], seed: int
) -> None:
    history = History(shape, config, Random(seed))
    history.run(happenings)
    assert {key: Counter(items) for key, items in strings(history.target).items()} == shape.expected()
