"""Whole jobs with event-time windows: each window of each key is emitted once and complete, whatever happens.

Some of the jobs make the windows by hand, of timers and a map state.

A case is a job (`window_shapes`), settings with tight buffers, and a history. The history has checkpoints,
failed writes, crashes and rescales a few moves apart. No record may be late: a late record would mean that
some watermark was ahead of the data. In-flight watermarks, a restored watermark, and keys of several old
subtasks must not cause that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from deep import DEEP
from hypothesis import event, given, settings
from hypothesis import strategies as st
from memory_storages import UnsureStorage
from simulated_jobs.scripted_job import ScriptedJob
from strict_collector import StrictCollector
from window_shapes import MOST_LANES, Item, Shape, Targets

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.operators import held_watermark
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot import metadata
from penstock.runtime.testing.manual_time import ManualClock

shapes = st.builds(
    Shape,
    counts=st.lists(st.integers(30, 70) | st.integers(0, 9), min_size=1, max_size=2),
    monotonous=st.booleans(),
    size=st.sampled_from([30, 100]),
    slides=st.booleans(),
    relays=st.booleans(),
    chaining=st.booleans(),
    by_hand=st.booleans(),
)
parallelisms = st.tuples(st.integers(1, MOST_LANES), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2))
configs = st.builds(
    JobConfig,
    advanced=st.builds(
        AdvancedConfig,
        credits=st.integers(1, 5),
        buffer_rows=st.integers(1, 8),
    ),
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
    """One case, step by step."""

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
        self.job = ScriptedJob(
            graph, self.config, self.storage, self.random.randrange(1 << 32), ManualClock()
        )

    def run(self, happenings: Sequence[tuple[int, str, int, str]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata, "INLINE_LIMIT", 40)  # so that small state is in files, too
            patch.setattr(held_watermark, "MOST_FIRED", 2)  # so that few timers are a storm
            for before, kind, after, what in happenings:
                self.job.run(before)
                if not self.job.running:
                    self.job.trigger_checkpoint(SnapshotKind(kind))
                for _ in range(after):
                    if not self.job.running or not self.job.move():
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
        running = self.job.running
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
            with self.storage.answering():  # a job restarts only when its log can be written
                if what == "rescale":
                    self.job.crash(self.shape.build(self.parallelism, self.targets))
                else:
                    self.job.crash(killed=killed)


def once(
    target: StrictCollector[tuple[int, int], tuple[Item, ...]],
) -> dict[tuple[int, int], tuple[Item, ...]]:
    windows: dict[tuple[int, int], tuple[Item, ...]] = {}
    for window, fired in target.by_key().items():
        (windows[window],) = fired
    return windows


histories = st.builds(History, shapes, parallelisms, configs, st.integers(0, 2**32).map(Random))


def live(history: History, happenings: list[tuple[int, str, int, str]]) -> None:
    """Let all this happen to a job, and look at what has come out of it."""
    history.run(happenings)
    history.check()
    event(f"windows came before the last crash: {history.early > 0}, crashes: {history.crashes}")


@pytest.mark.simulation
@settings(max_examples=20 * DEEP, deadline=None)
@given(histories, happenings)
def test_each_window_comes_out_once_and_whole_and_nothing_is_late(
    history: History, happenings: list[tuple[int, str, int, str]]
) -> None:
    live(history, happenings)


@pytest.mark.parametrize("seed", range(4 if DEEP == 1 else 12))
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
        by_hand=seed % 2 == 1,
    )
    config = JobConfig(
        advanced=AdvancedConfig(credits=random.choice([3, 5, 8]), buffer_rows=random.choice([1, 2])),
        buffer_timeout=0.0,
        checkpointing=Checkpointing(every=1, unaligned=True),
    )
    parallelism = [random.choice([1, 2]), 2, random.choice([2, 3]), random.choice([1, 2])]
    history = History(shape, parallelism, config, random)
    history.run([(random.randint(20, 250), "checkpoint", 1000, "rescale") for _ in range(3)])
    history.check()


@pytest.mark.long
@settings(max_examples=5000, deadline=None)
@given(histories, happenings)
def test_each_window_comes_out_once_and_whole_in_many_more_jobs(
    history: History, happenings: list[tuple[int, str, int, str]]
) -> None:
    live(history, happenings)
