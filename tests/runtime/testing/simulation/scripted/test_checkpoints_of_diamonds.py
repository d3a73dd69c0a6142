"""Unaligned checkpoints where two ways part and meet again, one of them forward, under back pressure.

Each call makes more records than a channel has credits for. No checkpoint times out, so one that waits
for itself is a job that is stuck.
"""

from __future__ import annotations

import pytest
from simulated_jobs.scripted_job import JobStuckError, ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph import execution_graph
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.snapshot.storage import MemoryStorage

COUNT = 24
COPIES = 6
SEEDS = range(4)

CONFIG = JobConfig(
    advanced=AdvancedConfig(credits=1, buffer_rows=1),
    buffer_timeout=0.0,
    checkpointing=Checkpointing(every=1, unaligned=True, timeout=1e12, tolerable_failures=0),
)


def copies_of(number: int) -> list[tuple[int, int]]:
    return [(number, copy) for copy in range(COPIES)]


def larger(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one, other)


def diamond(target: InMemoryCollector) -> ExecutionGraph:
    """`split` sends to `largest` by key, and both to the sink; `split` does so by a forward exchange."""
    env = StreamEnvironment("diamond", parallelism=2, max_parallelism=8, chaining=False)
    others = env.from_source("others", GeneratorSource(lambda i: (i, -1), count=COUNT * COPIES))
    split = env.from_source("numbers", GeneratorSource(copies_of, count=COUNT)).flat_map(lambda rows: rows)
    largest = split.union(others).key_by(lambda record: record[0] % 8).reduce("largest", larger)
    split.union(largest.rebalance()).sink("out", CollectSink(target))
    return build_execution_graph(env.build())


def aligned_as_their_elements_demand(job: JobGraph) -> frozenset[int]:
    edges = enumerate(job.edges)
    return frozenset(i for i, e in edges if not e.partitioner.partitioning.can_be_redistributed)


def run(seed: int) -> list[object]:
    target = InMemoryCollector()
    job = ScriptedJob(diamond(target), CONFIG, MemoryStorage(), seed)
    for moves in 20 + 10 * seed, 50:
        job.run(moves)
        job.complete_checkpoint()
    job.finish()
    return target.rows()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_checkpoint_waits_for_itself(seed: int) -> None:
    # Each record of `split` arrives twice, each of `others` once.
    assert len(run(seed)) == 3 * COUNT * COPIES


def test_it_would_if_only_what_its_elements_demand_were_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_graph, "edges_to_align", aligned_as_their_elements_demand)
    with pytest.raises(JobStuckError):
        run(seed=0)
