"""Split, union and broadcast state of a whole job, taken at one parallelism and restored at another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.operator import Operator, OperatorContext, Output, SavedList
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.snapshot.storage import MemoryStorage

COUNT = 900
RULES = [("limit", 10), ("limit", 10), ("colour", 3)]  # values may be equal: each of them counts
CHANGES = [(2, 2), (2, 5), (1, 4), (5, 2), (4, 1)]

#: By subtask, what it was given when it came up.
Restored = dict[int, dict[str, list[Any]]]


class KeepsAllKinds(Operator):
    """Keeps the numbers it saw in split state, its own sum in union state, and rules that all share."""

    def __init__(self, restored: Restored) -> None:
        self._restored = restored
        self._seen: list[int] = []
        self._rules = RULES
        self._subtask = 0

    def open(self, context: OperatorContext) -> None:
        self._subtask = context.connector.subtask
        if context.is_restored:
            self._restored[self._subtask] = {name: list(v) for name, v in context.restored.items()}
            self._seen = list(context.restored["seen"])
            self._rules = list(context.restored["rules"])

    def process(self, batch: Batch) -> Iterator[Output]:
        self._seen += rows_of(batch).rows
        yield batch

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {
            "seen": SavedList(tuple(self._seen)),
            "sums": SavedList(((self._subtask, sum(self._seen)),), RedistributionMode.UNION),
            "rules": SavedList(tuple(self._rules), RedistributionMode.BROADCAST),
        }


class Job:
    """Numbers that go in turn to the operator; each attempt tells what its subtasks were given."""

    def __init__(self, *, unaligned: bool) -> None:
        self.target = InMemoryCollector()
        self.restored: Restored = {}
        self.config = JobConfig(
            checkpointing=Checkpointing(every=1, unaligned=unaligned),
            advanced=AdvancedConfig(buffer_rows=5, credits=2),
        )

    def graph(self, parallelism: int) -> ExecutionGraph:
        self.restored = restored = {}
        env = StreamEnvironment("kinds", parallelism=2, max_parallelism=8)
        numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT, rate=10_000.0))
        kept = keep(numbers.rebalance(), restored, parallelism)
        kept.sink("out", CollectSink(self.target), parallelism=parallelism)
        return build_execution_graph(env.build())

    def start(self, parallelism: int) -> ScriptedJob:
        return ScriptedJob(self.graph(parallelism), self.config, MemoryStorage(), parallelism)


def keep(stream: DataStream[int], restored: Restored, parallelism: int) -> DataStream[int]:
    return stream._builder.add(
        "keep",
        "all kinds",
        lambda: KeepsAllKinds(restored),
        stream._inputs,
        "kept",
        {"parallelism": parallelism},
        stateful=True,
    )


def values_of(restored: Restored, name: str) -> list[list[Any]]:
    return [restored[subtask][name] for subtask in sorted(restored)]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """State is in files, as large state would be."""
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 10)


@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
@pytest.mark.parametrize(("old", "new"), CHANGES, ids=[f"{a} to {b}" for a, b in CHANGES])
def test_each_kind_of_operator_state_comes_up_at_another_parallelism_as_its_mode_says(
    old: int, new: int, unaligned: bool
) -> None:
    kinds = Job(unaligned=unaligned)
    job = kinds.start(old)
    job.run(150)
    job.complete_checkpoint()
    job.run(20)
    job.crash(kinds.graph(old))  # as it was saved, at the parallelism that saved it
    saved, split, union = kinds.restored, values_of(kinds.restored, "seen"), values_of(kinds.restored, "sums")
    assert len(saved) == old
    assert all(split)

    job.crash(kinds.graph(new))
    assert sorted(kinds.restored) == list(range(new))
    assert values_of(kinds.restored, "rules") == [RULES] * new
    dealt_out = values_of(kinds.restored, "seen")
    assert Counter(n for part in dealt_out for n in part) == Counter(n for part in split for n in part)
    assert max(map(len, dealt_out)) - min(map(len, dealt_out)) <= (1 if new != old else COUNT)
    sums = [(subtask, sum(part)) for subtask, part in enumerate(split)]
    assert union == [sums] * old
    assert values_of(kinds.restored, "sums") == [sums] * new

    job.finish()
    assert Counter(kinds.target.rows()) == Counter(range(COUNT))


def test_broadcast_state_stays_one_copy_over_several_changes_of_parallelism() -> None:
    kinds = Job(unaligned=True)
    job = kinds.start(2)
    for parallelism in (5, 1, 3):
        job.run(40)
        job.complete_checkpoint()
        job.crash(kinds.graph(parallelism))
        assert values_of(kinds.restored, "rules") == [RULES] * parallelism
    job.finish()
    assert Counter(kinds.target.rows()) == Counter(range(COUNT))
