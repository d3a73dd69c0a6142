"""Checkpoints by hand: when a job takes one, why it takes none, and what a full one consists of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from simulated_jobs.scripted_job import ScriptedJob
from stop_setup import COUNT, READ, Run

from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed, CheckpointSucceeded
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage


def ask(run: Run, **how: Any) -> Run:
    run.scheduler.trigger_checkpoint(on_answer=run.answers.append, **how)
    return run


def refusal(run: Run) -> str:
    """Why there is none; a refused request never became a checkpoint."""
    answer = run.answers[-1]
    assert isinstance(answer, CheckpointFailed)
    assert answer.checkpoint_id is None
    return answer.detail


def test_a_request_waits_for_the_checkpoint_that_runs_and_for_the_pause() -> None:
    run = Run(min_pause=3).start()
    run.timers.advance(10)
    ask(run)
    assert [b.checkpoint_id for b in run.cluster.barriers] == [1]
    run.acknowledge()
    assert [b.checkpoint_id for b in run.cluster.barriers] == [1], "the pause has begun"
    run.timers.advance(3)
    assert run.acknowledge() == 2
    assert isinstance(run.answers[0], CheckpointSucceeded)


def test_a_checkpoint_that_is_not_complete_in_time_says_whom_it_waited_for() -> None:
    run = ask(Run(timeout=5, tolerable_failures=1).start())
    run.timers.advance(5)
    answer = run.answers[0]
    assert isinstance(answer, CheckpointFailed)
    assert (answer.checkpoint_id, answer.reason) == (1, Reason.CHECKPOINT_EXPIRED)
    assert answer.detail == "not complete after 5 s; it waited for count[0], read[0]"


def test_a_checkpoint_that_a_subtask_declines_names_the_subtask_and_its_reason() -> None:
    run = ask(Run().start())
    run.scheduler.decline(1, COUNT, 1, Reason.CHECKPOINT_DECLINED, "disk full")
    answer = run.answers[0]
    assert isinstance(answer, CheckpointFailed)
    assert answer.detail == "count[0]: disk full"


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_a_job_that_is_being_stopped_takes_none(kind: SnapshotKind) -> None:
    """Its sources have ended for the savepoint: a later checkpoint would say that they read everything."""
    run = Run(max_concurrent=3).start().stop(drain=True)
    ask(run, kind=kind)
    assert refusal(run) == "the job is stopping"
    assert len(run.cluster.barriers) == 1
    run.acknowledge()
    ask(run, kind=kind)
    assert refusal(run) == "the job is stopping"
    run.leave()
    assert run.state is JobState.FINISHED
    assert run.cluster.barriers[-1].checkpoint_id == 1


def test_a_request_that_waits_when_the_job_is_stopped_is_refused() -> None:
    run = Run().start()
    run.timers.advance(10)
    ask(run).stop()
    assert refusal(run) == "checkpointing was stopped"


def test_a_job_that_comes_up_again_takes_one_when_it_runs() -> None:
    run = Run().start()
    run.scheduler.on_subtask_failed(1, READ, FailureCause("killed"))
    assert refusal(ask(run)) == "the job is failing"
    run.all_stopped()
    assert refusal(ask(run)) == "the job is restarting"
    run.timers.advance(0)
    run.come_up()
    ask(run).acknowledge()
    assert isinstance(run.answers[-1], CheckpointSucceeded)


def test_a_checkpoint_that_a_failure_interrupts_says_so() -> None:
    run = ask(Run().start())
    run.scheduler.on_subtask_failed(1, READ, FailureCause("killed"))
    answer = run.answers[0]
    assert isinstance(answer, CheckpointFailed)
    assert (answer.reason, answer.checkpoint_id) == (Reason.JOB_FAILURE, 1)
    assert "killed" in answer.detail


@pytest.mark.parametrize("end", ["finished", "cancelled"])
def test_a_job_at_its_end_says_how_it_ends(end: str) -> None:
    run = ask(Run().start())
    waiting = ask(run)
    if end == "finished":
        run.leave()
    else:
        run.scheduler.cancel()
    causes = {"finished": "every subtask has finished", "cancelled": "the job is cancelled"}
    assert [answer.detail for answer in run.answers if isinstance(answer, CheckpointFailed)][-1] == causes[
        end
    ]
    assert len(waiting.answers) == 2
    if end == "cancelled":
        run.all_stopped()
    assert refusal(ask(run)) == f"the job is {end}"


# -- full ---------------------------------------------------------------------------------------------------


class InPieces(GeneratorSource[tuple[str, int]]):
    """Gives few records at a time, so that a barrier does not wait behind many."""

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
        reader = super().reader(context, splits)
        give = reader.poll
        reader.poll = lambda max_rows: give(min(max_rows, 10))  # type: ignore[method-assign]
        return reader


def counts(target: InMemoryCollector) -> ExecutionGraph:
    """Numbers by key, with state that is too large for a checkpoint's metadata."""
    env = StreamEnvironment("counts", parallelism=2)
    numbers = env.from_source("numbers", InPieces(lambda i: (f"{i % 400:0200d}", 1), count=4_000))
    added = numbers.key_by(lambda pair: pair[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
    added.sink("out", CollectSink(target))
    return build_execution_graph(env.build())


def made_by(checkpoint: CompletedCheckpoint) -> set[int | None]:
    """The checkpoints that wrote the state of this one."""
    files = [file for operator in checkpoint.operators.values() for file in operator.files()]
    return {SnapshotPaths("scripted").checkpoint_of(file.path) for file in files}


def counted(job: ScriptedJob) -> int:
    return sum(job.subtask("count", index).statistics().records_in for index in (0, 1))


def taken(job: ScriptedJob, *, full: bool) -> CompletedCheckpoint:
    job.complete_checkpoint(full=full)
    newest = job.newest
    assert newest is not None
    return newest


@pytest.mark.parametrize("unaligned", [False, True])
def test_a_full_checkpoint_names_only_its_own_files_and_later_ones_share_them(unaligned: bool) -> None:
    target = InMemoryCollector()
    checkpointing = Checkpointing(every=1, retain=10, unaligned=unaligned)
    config = JobConfig(checkpointing=checkpointing, advanced=AdvancedConfig(buffer_rows=5, credits=2))
    job = ScriptedJob(counts(target), config, MemoryStorage())
    job.until(lambda: counted(job) >= 600, "every key")
    first = taken(job, full=False)
    job.run(40)
    second = taken(job, full=False)
    job.run(40)
    third = taken(job, full=True)
    job.run(40)
    fourth = taken(job, full=False)
    assert first.checkpoint_id in made_by(second), "without full it builds on what is there"
    assert made_by(third) == {third.checkpoint_id}
    assert made_by(fourth) - {fourth.checkpoint_id} == {third.checkpoint_id}
    job.run(100)
    job.crash()
    job.finish()
    assert sorted(target.rows()) == sorted((f"{key:0200d}", n) for key in range(400) for n in range(1, 11))
