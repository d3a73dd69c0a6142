"""Restores at another parallelism, over graphs and ways to checkpoint: every record exactly once.

A job runs a little, takes a checkpoint, runs on, and loses everything that is in memory; the rest is done at
the new parallelism. The same cases run on Ray (`tests/on_ray/test_rescaling.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from jobs.rescaling import CASES, Case, itself
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.storage import MemoryStorage

COUNT = 400


def graph(case: Case, parallelism: int, target: InMemoryCollector) -> ExecutionGraph:
    env = StreamEnvironment("matrix", parallelism=parallelism, max_parallelism=24)
    case.build(env, parallelism, numbers, CollectSink(target))
    return build_execution_graph(env.build())


def numbers() -> GeneratorSource[int]:
    return GeneratorSource(itself, count=COUNT, rate=10_000.0)


def test_there_are_thirty_cases() -> None:
    assert len(set(CASES)) == 30
    assert {case.old < case.new for case in CASES} == {case.old > case.new for case in CASES} == {True, False}
    assert any(case.old == case.new for case in CASES)
    assert {n for case in CASES for n in (case.old, case.new)} >= {1, 20}


def each_case_in_one_way() -> Iterator[object]:
    """Cases take turns; the other way of each is run with `--run-long`, and in the simulation each time."""
    for number, case in enumerate(CASES):
        for way in ("aligned", "unaligned"):
            is_its_turn = (way == "unaligned") == (number % 2 == 0)
            yield pytest.param(case, way, id=f"{case}-{way}", marks=[] if is_its_turn else [pytest.mark.long])


@pytest.mark.parametrize(("case", "way"), list(each_case_in_one_way()))
def test_a_job_goes_on_exactly_once_at_another_parallelism(
    case: Case, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 40)
    checkpointing = Checkpointing(every=1, unaligned=way == "unaligned")
    config = JobConfig(checkpointing=checkpointing, advanced=AdvancedConfig(credits=2, buffer_rows=3))
    target, random, expected = InMemoryCollector(), Random(str(case)), case.expected(COUNT)
    step = ScriptedJob(graph(case, case.old, target), config, MemoryStorage(), random.randrange(1 << 32))
    step.run(40 * case.old + random.randint(0, 60))
    step.complete_checkpoint()
    early = Counter(target.rows())
    step.run(30)
    assert early.total() < expected.total()
    step.crash(graph(case, case.new, target))
    assert sum(task.vertex == "count" for task in step.tasks) == case.new
    step.run(30)
    step.finish()
    assert Counter(target.rows()) == expected
