"""Jobs of random shapes that are driven step by step, and what must be true of their output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, TypeAlias

import pyarrow.compute as pc
import pytest
from hypothesis import event
from hypothesis import strategies as st
from memory_storages import UnsureStorage
from simulated_jobs.scripted_job import ScriptedJob
from strict_collector import StrictCollector

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.functions.keyed_folds import REDUCE_STATE
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.record.elements import ArrowBatch, Batch, SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.handles import KeyGroupRange, StateHandle
from penstock.runtime.snapshot.metadata import read_state
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_of
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.manual_time import ManualClock

KEYS = 5
KEY_GROUPS = 12
#: Source, index, number of the copy: what one record is.
Item: TypeAlias = tuple[int, int, int]
Row: TypeAlias = tuple[int, tuple[Item, ...]]
Collector: TypeAlias = StrictCollector[int, tuple[Item, ...]]


class Relay(Operator):
    """Passes on what it gets, and sees that it is Arrow batches of its own keys."""

    batch_format = "both"
    keyed = True

    def open(self, context: OperatorContext) -> None:
        self._own = context.key_groups

    def process(self, batch: Batch) -> Iterator[Batch]:
        assert isinstance(batch, ArrowBatch)
        assert {key_group_of(key, KEY_GROUPS) for key in batch.batch["k"].to_pylist()} <= set(self._own)
        yield batch


def through_columns(rows: Any, parallelism: int) -> Any:
    """The same rows after a way as Arrow batches, through expressions and an exchange by a column."""
    dicts = rows.map(lambda row: {"k": row[0], "item": list(row[1][0])}, parallelism=parallelism)
    batches = dicts.map_batches(lambda batch: batch, "arrow", parallelism=parallelism)
    steps = batches.filter(pc.field("k") >= 0, parallelism=parallelism)
    steps = steps.with_columns(k=pc.field("k") + 1, parallelism=parallelism)
    relayed = steps.key_by("k").transform("relay", Relay(), parallelism=parallelism)
    return relayed.map(lambda row: (row["k"] - 1, (tuple(row["item"]),)), parallelism=parallelism)


@dataclass(frozen=True)
class Shape:
    """A graph but for its parallelism."""

    counts: Sequence[int]
    flat: bool
    chaining: bool
    rate: float | None
    seconds_per_record: float
    columns: bool = False

    def items(self) -> list[tuple[int, Item]]:
        copies = (lambda i: i % 3) if self.flat else (lambda i: 1)
        return [
            ((i + source) % KEYS, (source, i, copy))
            for source, count in enumerate(self.counts)
            for i in range(count)
            for copy in range(copies(i))
        ]

    def build(self, parallelism: Sequence[int], target: Collector, clock: ManualClock) -> ExecutionGraph:
        of_source, of_middle, of_keyed, of_sink = parallelism
        env = StreamEnvironment("step", max_parallelism=KEY_GROUPS, chaining=self.chaining)
        streams = [
            env.from_source(
                f"source-{source}",
                GeneratorSource(lambda i, s=source: (s, i), count=count, rate=self.rate),
                parallelism=of_source,
            )
            for source, count in enumerate(self.counts)
        ]
        stream = streams[0].union(*streams[1:])
        slow = self.seconds_per_record

        def one(pair: tuple[int, int]) -> Row:
            clock.advance(slow)
            source, i = pair
            return (i + source) % KEYS, ((source, i, 0),)

        def many(pair: tuple[int, int]) -> Iterable[Row]:
            source, i = pair
            for copy in range(i % 3):
                clock.advance(slow)
                yield (i + source) % KEYS, ((source, i, copy),)

        middle: Any = (
            stream.flat_map(many, parallelism=of_middle)
            if self.flat
            else stream.map(one, parallelism=of_middle)
        )
        if self.columns:
            middle = through_columns(middle, of_middle)
        summed = middle.key_by(lambda row: row[0]).reduce(
            "strung", lambda a, b: (a[0], a[1] + b[1]), parallelism=of_keyed
        )
        summed.sink("out", CollectSink(target), parallelism=of_sink)
        return build_execution_graph(env.build())


shapes = st.builds(
    Shape,
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=2),
    flat=st.booleans(),
    chaining=st.booleans(),
    rate=st.sampled_from([None, None, 200.0]),
    seconds_per_record=st.sampled_from([0.0, 0.0, 0.004, 0.03]),
    columns=st.booleans(),
)
parallelisms = st.lists(st.integers(1, 3), min_size=4, max_size=4)
configs = st.builds(
    JobConfig,
    advanced=st.builds(
        AdvancedConfig,
        credits=st.integers(1, 8),
        buffer_rows=st.integers(1, 12),
        arrow_buffer_rows=st.integers(1, 12),
    ),
    buffer_timeout=st.sampled_from([0.0, 0.01, 0.1]),
    checkpointing=st.sampled_from(
        [
            Checkpointing(every=1),
            Checkpointing(every=1, unaligned=True),
            Checkpointing(every=1, unaligned=True, aligned_timeout=0.05),
            Checkpointing(every=1, unaligned=True, aligned_timeout=5),
        ]
    ),
)
happenings = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.sampled_from(
            ["checkpoint", "checkpoint", "checkpoint", "savepoint", "give up", "storage", "crash", "rescale"]
        ),
    ),
    max_size=10,
)


@dataclass
class History:
    """One case, step by step."""

    shape: Shape
    parallelism: Sequence[int]
    config: JobConfig
    random: Random
    clock: ManualClock = field(default_factory=ManualClock)
    target: Collector = field(default_factory=StrictCollector)
    storage: UnsureStorage = field(default_factory=UnsureStorage)
    crashes: int = 0
    keeps_checkpoints: bool = True
    has_left_state_behind: bool = False

    def __post_init__(self) -> None:
        self.job = ScriptedJob(
            self._graph(),
            self.config,
            self.storage,
            self.random.randrange(1 << 32),
            self.clock,
            keeps_checkpoints=self.keeps_checkpoints,
        )

    def happen(self, what: str) -> None:
        running = self.job.running
        unaligned = self.config.checkpointing is not None and self.config.checkpointing.unaligned
        most = 1 if unaligned else 2
        if what == "checkpoint" and len(running) < most:
            self.job.trigger_checkpoint()
        elif what == "savepoint" and len(running) < most:
            self.job.trigger_checkpoint(SnapshotKind.SAVEPOINT)
        elif what == "give up" and running:
            self.job.give_up_checkpoint(self.random.choice(sorted(running)))
        elif what == "storage":
            self.storage.refuses = not self.storage.refuses
        elif what in ("crash", "rescale"):
            if what == "rescale":
                self.parallelism = self.another_parallelism()
            killed = self.random.choice([None, *self.job.tasks])
            self.crashes += 1
            with self.storage.answering():  # a job restarts only when its log can be written
                if what == "rescale":
                    self._look_at_finished_subtasks()
                    self.job.crash(self._graph())
                else:
                    self.job.crash(killed=killed)

    def another_parallelism(self) -> list[int]:
        """Any, but forward edges and chains stay: what is in flight can't change the exchange."""
        before = self.parallelism
        while True:
            other = [self.random.randint(1, 3) for _ in before]
            if all((other[a] == other[b]) == (before[a] == before[b]) for a, b in ((0, 1), (2, 3))):
                return other

    def _look_at_finished_subtasks(self) -> None:
        """The keyed state of finished subtasks is lost at another parallelism, by design."""
        newest = self.job.newest
        strung = None if newest is None else newest.operators.get("strung")
        self.has_left_state_behind |= strung is not None and bool(strung.finished)

    def end(self) -> None:
        self.storage.refuses = False
        self.job.finish()
        self.job.run(10_000)

    def _graph(self) -> ExecutionGraph:
        return self.shape.build(self.parallelism, self.target, self.clock)


def sequence_of(values: list[tuple[Item, ...]]) -> tuple[Item, ...]:
    """The one sequence of which `values` are all the prefixes, each of them once."""
    ordered = sorted(values, key=len)
    assert [len(value) for value in ordered] == list(range(1, len(ordered) + 1))
    for shorter, longer in pairwise(ordered):
        assert longer[: len(shorter)] == shorter
    return ordered[-1]


def state_of(job: ScriptedJob, storage: MemoryStorage) -> dict[int, Row]:
    """The keyed state of the newest checkpoint, read as a restore reads it."""

    class Files:
        def read(self, handle: StateHandle) -> bytes:
            return read_state(storage, handle)

    assert job.newest is not None
    strung = job.newest.operators["strung"]
    backend = HeapKeyedStateBackend(
        BackendSetup("op", KEY_GROUPS, KeyGroupRange(0, KEY_GROUPS - 1), ValueCodec())
    )
    backend.restore([handle for s in strung.subtasks.values() for handle in s.keyed], Files())
    return backend.table(REDUCE_STATE).entries


def state_files_in(storage: MemoryStorage) -> set[str]:
    """All files but the log, and savepoints, which are their users'."""
    return {path for path in storage.list("") if "/log/" not in path and "/savepoint-" not in path}


def check_output(history: History) -> None:
    expected: dict[int, list[Item]] = {}
    for key, item in history.shape.items():
        expected.setdefault(key, []).append(item)
    sequences = {key: sequence_of(values) for key, values in history.target.by_key().items()}
    assert {key: sorted(sequence) for key, sequence in sequences.items()} == {
        key: sorted(items) for key, items in expected.items()
    }
    state = state_of(history.job, history.storage)
    whole = {key: (key, sequence) for key, sequence in sequences.items()}
    if history.has_left_state_behind:
        assert state.items() <= whole.items()
    else:
        assert state == whole


def check_order(history: History, lanes: int) -> None:
    """Records of one split and key stay in order, unless a rebalance let them take several ways."""
    for values in history.target.by_key().values():
        of_lane: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for source, i, copy in sequence_of(values):
            of_lane.setdefault((source, i % lanes), []).append((i, copy))
        for items in of_lane.values():
            assert items == sorted(items)


def run(history: History, happenings: Sequence[tuple[int, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "INLINE_LIMIT", 40)  # so that small state is in files, too
        for moves, what in happenings:
            history.job.run(2 * moves)
            history.happen(what)
        history.end()
    statistics = history.job.statistics()
    event(f"crashes: {history.crashes}, of them after a checkpoint: {statistics.completed > 1}")
