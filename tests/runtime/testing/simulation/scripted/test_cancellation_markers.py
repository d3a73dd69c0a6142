"""Cancellation markers in a pipeline of three exchanges: every alignment behind a decline ends at once.

No checkpoint follows the one that is given up, and none has a timeout. So an alignment that is not released
stays for ever, and the job does not end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from simulated_jobs.scripted_job import JobStuckError, ScriptedJob

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.record.elements import CancelCheckpointMarker, SnapshotKind
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage

CONFIG = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=3, credits=2))
UNALIGNED = replace(CONFIG, checkpointing=Checkpointing(every=1, unaligned=True))
SEEDS = range(12)
COUNT = 60


def passed(letter: str, record: tuple[int, str]) -> tuple[int, str]:
    return record[0], record[1] + letter


def three_exchanges(target: InMemoryCollector) -> ExecutionGraph:
    """main, short -> a -> b -> c -> out; side -> b, side -> c."""
    env = StreamEnvironment("three", parallelism=2)

    def source(name: str, count: int) -> GeneratorSource[tuple[int, str]]:
        return GeneratorSource(lambda i: (i, name + " "), count=count)

    main, side, short = (
        env.from_source(name, source(name, count), parallelism=1).rebalance()
        for name, count in (("main", COUNT), ("side", COUNT), ("short", 5))
    )
    a = main.union(short).map(partial(passed, "a"), id="a").rebalance()
    b = a.union(side).map(partial(passed, "b"), id="b").rebalance()
    c = b.union(side).map(partial(passed, "c"), id="c")
    c.sink("out", CollectSink(target))
    return build_execution_graph(env.build())


def expected() -> list[tuple[int, str]]:
    ways = {"main abc": COUNT, "side bc": COUNT, "side c": COUNT, "short abc": 5}
    return sorted((i, way) for way, count in ways.items() for i in range(count))


def blocked(job: ScriptedJob) -> int:
    """Channels that alignments hold back."""
    seen = [task.subtask.barriers for task in job.tasks.values()]
    return sum(each.blocked for each in seen if each is not None)


def released(job: ScriptedJob) -> int:
    """Alignments that a marker has ended."""
    seen = [task.subtask.barriers for task in job.tasks.values()]
    return sum(each.cancelled_alignments for each in seen if each is not None)


def give_up(config: JobConfig, kind: SnapshotKind, seed: int, target: InMemoryCollector) -> ScriptedJob:
    """A job whose checkpoint is given up while alignments are open, with all its records still to come."""
    job = ScriptedJob(three_exchanges(target), config, MemoryStorage(), seed)
    job.run(40)
    checkpoint_id = job.trigger_checkpoint(kind)
    assert checkpoint_id is not None
    for _ in range(400):
        if blocked(job) >= 2 or not job.running:
            break
        job.move()
    if checkpoint_id in job.running:
        job.give_up_checkpoint(checkpoint_id)
    return job


def end_a_channel(seed: int, target: InMemoryCollector) -> ScriptedJob:
    """A job whose short source ends just before a checkpoint: its channels end and bring no barrier."""
    config = replace(CONFIG, end_of_partition="aborts")
    job = ScriptedJob(three_exchanges(target), config, MemoryStorage(), seed)
    job.until(lambda: job.tasks[SubtaskId("short", 0)].has_ended, "the end of the short source")
    answers: list[CheckpointAnswer] = []
    job.scheduler.trigger_checkpoint(on_answer=answers.append)
    job.until(lambda: bool(answers), "a checkpoint that covers the end")
    # The notice that lets the short source leave is on its way, and so are the next triggers.
    job.trigger_checkpoint()
    return job


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        pytest.param(CONFIG, SnapshotKind.CHECKPOINT, id="aligned checkpoint"),
        pytest.param(CONFIG, SnapshotKind.SAVEPOINT, id="savepoint"),
        pytest.param(UNALIGNED, SnapshotKind.SAVEPOINT, id="savepoint of an unaligned job"),
    ],
)
def test_checkpoint_that_the_job_gives_up_leaves_no_channel_held_back(
    config: JobConfig, kind: SnapshotKind
) -> None:
    """A subtask that hears of it before its barriers have come sends the marker in their place."""
    count = 0
    for seed in SEEDS:
        target = InMemoryCollector()
        job = give_up(config, kind, seed, target)
        job.until(lambda job=job: not job.running and not blocked(job), "no alignment")  # type: ignore[misc]
        count += released(job)
        job.finish()
        assert sorted(target.rows()) == expected(), seed
    assert count >= 10, "too few alignments were open: the test proves nothing"


def test_subtask_that_declines_at_the_end_of_a_channel_releases_the_alignments_behind_it() -> None:
    count, declined = 0, 0
    for seed in SEEDS:
        target = InMemoryCollector()
        job = end_a_channel(seed, target)
        job.until(lambda job=job: not job.running and not blocked(job), "no alignment")  # type: ignore[misc]
        count += released(job)
        declined += sum(r.failure is not None for r in job.scheduler.statistics().checkpoint_history)
        job.finish()
        assert sorted(target.rows()) == expected(), seed
    assert declined >= 4, "too few checkpoints were declined: the test proves nothing"
    assert count >= 6, "too few alignments were open: the test proves nothing"


def test_alignments_stay_open_for_ever_if_nobody_heeds_the_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the tests above if the marker were lost."""
    process = CheckpointedInputGate.process

    def lose_markers(self: CheckpointedInputGate, channel: int, element: object) -> bool:
        return not isinstance(element, CancelCheckpointMarker) and process(self, channel, element)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointedInputGate, "process", lose_markers)
    for seed in SEEDS:
        job = give_up(CONFIG, SnapshotKind.CHECKPOINT, seed, InMemoryCollector())
        try:
            job.until(lambda job=job: not job.running and not blocked(job), "no alignment", 3_000)  # type: ignore[misc]
        except JobStuckError:
            return
    pytest.fail("no alignment needed the marker")
