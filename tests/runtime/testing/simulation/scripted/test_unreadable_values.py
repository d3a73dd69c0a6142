"""A job does not start from values that its program can't read, and says which they are."""

from __future__ import annotations

import pytest

from penstock.runtime import Checkpointing, GeneratorSource, JobConfig, StreamEnvironment
from penstock.runtime.errors import OperatorError, StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.testing.simulation.scripted.scripted_job import ScriptedJob


def graph() -> ExecutionGraph:
    """Ranges, which no codec but pickle knows."""
    env = StreamEnvironment("ranges")
    numbers = env.from_source("numbers", GeneratorSource(range, count=100, rate=1_000.0))
    longest = numbers.key_by(lambda r: len(r) % 3).reduce("longest", lambda a, b: b)
    longest.sink("out", CollectSink(InMemoryCollector()))
    return build_execution_graph(env.build())


def test_values_that_can_not_be_read_are_told_with_operator_state_and_what_to_do() -> None:
    config = JobConfig(checkpointing=Checkpointing(every=1))
    storage = MemoryStorage()
    first = ScriptedJob(graph(), config, storage)
    first.run(60)
    first.complete_checkpoint()

    strict = JobConfig(checkpointing=Checkpointing(every=1, allow_pickle=False))
    message = r"operator 'longest' .*state 'reduce': .*allow_pickle=False.*or give the operator a new id"
    with pytest.raises(OperatorError, match=message) as caught:
        ScriptedJob(graph(), strict, storage, job_id="another", restore_from=first.newest_url)
    assert isinstance(caught.value.__cause__, StateMismatchError)
