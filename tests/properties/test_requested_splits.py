"""Splits on request under random interleavings, checkpoints, crashes and rescaling: exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectKey, CollectSink
from penstock.runtime.operators.source_coordinator import OnRequest
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.storage import MemoryStorage


class Chopped(CollectionSource[int]):
    """The numbers up to `count`, in as many splits as wanted, whatever the parallelism."""

    def __init__(self, count: int, pieces: int) -> None:
        super().__init__(range(count))
        self.pieces = pieces

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        return super().splits(self.pieces)


class Collector:
    """Takes every transaction as often as it comes, as long as it is the same one."""

    def __init__(self) -> None:
        self.committed: dict[CollectKey, list[Any]] = {}

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None:
        assert self.committed.setdefault(key, list(rows)) == list(rows)

    def counts(self) -> Counter[int]:
        return Counter(row for rows in self.committed.values() for row in rows)


def graph(count: int, pieces: int, parallelism: int, target: Collector) -> ExecutionGraph:
    env = StreamEnvironment("requested", max_parallelism=12)
    stream = env.from_source("numbers", OnRequest(Chopped(count, pieces)), parallelism=parallelism)
    stream.rebalance().map(lambda n: n, parallelism=2).sink("sink", CollectSink(target), parallelism=1)
    return build_execution_graph(env.build())


def run_job(seed: int, crashes: int) -> tuple[Counter[int], int]:
    """The output of a job that is interrupted now and then, and the expected one."""
    random = Random(seed)
    count, pieces = random.randint(0, 60), random.randint(1, 12)
    target = Collector()
    config = JobConfig(
        checkpointing=Checkpointing(every=10), advanced=AdvancedConfig(buffer_rows=3, credits=2)
    )
    parallelism = random.randint(1, 3)
    job = ScriptedJob(
        graph(count, pieces, parallelism, target), config, MemoryStorage(), random.randrange(1 << 32)
    )
    for _ in range(crashes):
        for _ in range(random.randint(0, 6)):
            job.run(random.randint(0, 60))
            kind = random.choice([SnapshotKind.CHECKPOINT, SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
            job.trigger_checkpoint(kind)
        if job.is_finished:
            break
        parallelism = random.randint(1, 3)
        job.crash(graph(count, pieces, parallelism, target))
    job.finish()
    return target.counts(), count


@settings(deadline=None, max_examples=8 * DEEP)
@given(seed=st.integers(0, 1 << 32), crashes=st.integers(0, 4))
def test_every_record_counts_once_whatever_happens(seed: int, crashes: int) -> None:
    counts, count = run_job(seed, crashes)
    assert counts == Counter(range(count))
