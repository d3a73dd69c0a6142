"""Restores at another parallelism, over graphs and ways to checkpoint: every record exactly once.

Thirty cases for each way: as many subtasks, more and fewer of them, between 1 and 20, in jobs whose
records go by key, in turn, through a union, and through several inputs of one operator. A job runs a little,
takes a checkpoint, runs on, and loses everything that is in memory; the rest is done at the new parallelism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from penstock.runtime.checkpoint import state_files
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.testing.step_job import StepJob

COUNT, KEYS = 400, 11
Pairs = DataStream[tuple[int, int]]


def source(env: StreamEnvironment, name: str, parallelism: int) -> DataStream[int]:
    return env.from_source(
        name, GeneratorSource(lambda i: i, count=COUNT, rate=10_000.0), parallelism=parallelism
    )


def pair(i: int) -> tuple[int, int]:
    return i % KEYS, 1


def keyed(env: StreamEnvironment, n: int) -> list[Pairs]:
    return [source(env, "numbers", n).map(pair, id="pair", parallelism=n)]


def rebalanced(env: StreamEnvironment, n: int) -> list[Pairs]:
    return [source(env, "numbers", n).rebalance().map(pair, id="pair", parallelism=n)]


def union(env: StreamEnvironment, n: int) -> list[Pairs]:
    both = source(env, "numbers", n).union(source(env, "more", n))
    return [both.map(pair, id="pair", parallelism=n)]


def several_inputs(env: StreamEnvironment, n: int) -> list[Pairs]:
    """Forward, in turn and by key, into one operator."""
    direct = source(env, "numbers", n).map(pair, id="pair", parallelism=n)
    in_turn = source(env, "more", 2).rebalance().map(pair, id="pair-2", parallelism=n)
    return [direct, in_turn]


SHAPES: dict[str, tuple[Callable[[StreamEnvironment, int], list[Pairs]], int]] = {
    "keyed": (keyed, 1),
    "rebalanced": (rebalanced, 1),
    "union": (union, 2),
    "several inputs": (several_inputs, 2),
}

CHANGES = [(1, 1), (4, 4), (1, 2), (2, 3), (3, 7), (1, 20), (2, 1), (5, 3), (20, 6)]
CASES = [(shape, *change) for shape in ("keyed", "rebalanced", "several inputs") for change in CHANGES] + [
    ("union", 3, 3),
    ("union", 2, 5),
    ("union", 5, 2),
]


@dataclass(frozen=True)
class Job:
    shape: str
    target: InMemoryCollector

    def graph(self, parallelism: int) -> ExecutionGraph:
        env = StreamEnvironment("matrix", parallelism=parallelism, max_parallelism=24)
        make, _ = SHAPES[self.shape]
        first, *others = make(env, parallelism)
        counts = first.union(*others).key_by(lambda p: p[0]).reduce("count", add)
        counts.sink("out", CollectSink(self.target))
        return build_execution_graph(env.build())

    def expected(self) -> Counter[tuple[int, int]]:
        totals = Counter(i % KEYS for i in range(COUNT))
        _, copies = SHAPES[self.shape]
        return Counter((key, n + 1) for key, total in totals.items() for n in range(total * copies))


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0], a[1] + b[1]


def test_there_are_thirty_cases() -> None:
    assert len(set(CASES)) == 30
    assert {old < new for _, old, new in CASES} == {old > new for _, old, new in CASES} == {True, False}


@pytest.mark.parametrize("way", ["aligned", "unaligned"])
@pytest.mark.parametrize(("shape", "old", "new"), CASES)
def test_a_job_goes_on_exactly_once_at_another_parallelism(
    shape: str, old: int, new: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "INLINE_LIMIT", 40)
    checkpointing = Checkpointing(every=1, unaligned=way == "unaligned")
    config = JobConfig(checkpointing=checkpointing, credits=2, buffer_rows=3)
    job, random = Job(shape, InMemoryCollector()), Random(f"{shape} {old} {new}")
    step = StepJob(job.graph(old), config, MemoryStorage(), random.randrange)
    step.run(40 * old + random.randint(0, 60))
    step.complete_checkpoint()
    early = Counter(job.target.rows())
    step.run(30)
    assert early.total() < job.expected().total()
    step.crash(job.graph(new))
    step.run(30)
    step.finish()
    assert Counter(job.target.rows()) == job.expected()
    assert {task.id.vertex: task.id.index + 1 for task in step.tasks.values()}["count"] == new
