"""Rules of checkpoints that most jobs keep by chance: each has a job here that fails without its part."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
import ray
from jobs.checkpoint_rules import (
    REMEMBERED,
    VISITS,
    HandsOutMeanwhile,
    KeepsOpaque,
    Visits,
    break_connections,
    moment,
    of_one_key,
    open_deliveries,
    ports,
    visit,
)
from jobs.driving import (
    PATIENCE,
    eventually,
    failure_of,
    finish,
    kill_subtask,
    submit,
    subtask_statistics,
    wait_until,
    when_records_flow,
)
from jobs.held_records import HeldAtEachRecord
from jobs.lasting import Lasting
from jobs.oracle import committed_rows
from jobs.words import NEVER, environment, last_word, lines, paced_lines

from penstock import (
    CheckpointError,
    CheckpointResult,
    FileSink,
    GeneratorSource,
    JobConfig,
    JobStatus,
    NoRestart,
    WatermarkStrategy,
)
from penstock.actors.shared.registry import NAMESPACE, find_master, process_name, processes_of_job
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.barrier.handler import BarrierHandlerStatistics
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import TriggerCheckpoint
from penstock.runtime.task.statistics import SubtaskStatistics

T = TypeVar("T")

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: Requests that may wait at the JobMaster (`CheckpointRequestDecider`).
QUEUE = 1_000
#: Checkpoints that a subtask tracks at least once, and some more.
TRACKED = 50
MANY = TRACKED + 5


def ask_for(job: RayJobHandle, checkpoints: int) -> list[Any]:
    """Ask the JobMaster for checkpoints without waiting; the answers that are to come."""
    master: Any = find_master(job.job_id)
    return [master.checkpoint.remote(job.job_id, False) for _ in range(checkpoints)]


def statistics(job: RayJobHandle, vertex: str) -> SubtaskStatistics:
    """Counters of the first subtask of a vertex."""
    return subtask_statistics(job)[SubtaskId(vertex, 0)]


def barriers(job: RayJobHandle, vertex: str) -> BarrierHandlerStatistics:
    """Counters of its barrier handler."""
    counted = statistics(job, vertex).barriers
    assert counted is not None
    return counted


def taken(job: RayJobHandle, vertex: str) -> int:
    """Number of checkpoints that it has taken."""
    counted = statistics(job, vertex).checkpoints
    assert counted is not None
    return counted.taken


def logged(job: RayJobHandle, *parts: str) -> list[str]:
    """Lines of the JobMaster's log that have all of these parts."""
    lines = [line.text for line in job.logs(operator="job-master")]
    return [line for line in lines if all(part in line for part in parts)]


def records(job: RayJobHandle) -> list[CheckpointRecord]:
    return [each.record for each in job.checkpoints()]


def held_and_free(tmp_path: Path, **checkpointing: Any) -> RayJobHandle:
    """main -> held -> both; side -> both. `held` is shut until the file `open` is there; at least once."""
    env = environment(
        tmp_path, every=600, mode="at_least_once", max_concurrent=MANY, buffer_timeout=0.1, **checkpointing
    )
    main, side = (
        env.from_source(name, paced_lines(60, 300.0, NEVER, tmp_path / "go")).rebalance()
        for name in ("main", "side")
    )
    held = main.map(HeldAtEachRecord(str(tmp_path / "open")), id="held").rebalance()
    held.union(side).map(str.upper, id="both").sink("out", FileSink.json(tmp_path / "out"))
    job = submit(env)
    when_records_flow(job, "main")
    when_records_flow(job, "side")
    return job


def test_a_checkpoint_that_was_aborted_before_its_barrier_came_is_taken_by_nobody(tmp_path: Path) -> None:
    """`held` hears of the ends before the barriers reach it, and cancels them behind itself.

    A repeated trigger and one that was overtaken begin nothing either.
    """
    job = held_and_free(tmp_path, timeout=2, tolerable_failures=None)
    ask_for(job, MANY)
    eventually(
        "the end of all", lambda: [r.failure for r in records(job)] == [Reason.CHECKPOINT_EXPIRED] * MANY
    )
    eventually("barriers of one side", lambda: barriers(job, "both").latest_checkpoint_id == MANY)
    assert barriers(job, "both").pending == TRACKED, "the oldest are forgotten"

    (tmp_path / "open").touch()

    eventually("all cancellations", lambda: barriers(job, "both").aborted == TRACKED)
    seen = barriers(job, "both")
    assert (seen.pending, seen.triggered) == (0, 0)
    assert taken(job, "held") == taken(job, "both") == 0
    assert job.checkpoint(timeout=PATIENCE).checkpoint_id == MANY + 1
    assert taken(job, "held") == taken(job, "both") == 1

    for repeated in (MANY + 1, MANY):
        trigger(job, "main", repeated)
    assert job.checkpoint(timeout=PATIENCE).checkpoint_id == MANY + 2
    assert taken(job, "main") == MANY + 2, "each once"
    assert (barriers(job, "both").triggered, taken(job, "both")) == (2, 2)
    (tmp_path / "go").touch()
    assert finish(job).statistics.restarts == 0


def trigger(job: RayJobHandle, vertex: str, checkpoint_id: int) -> None:
    """Send a trigger to a source, as a JobMaster does whose call may have been lost."""
    message = TriggerCheckpoint(CheckpointBarrier(checkpoint_id, time.time()))
    actor = process_of(job, vertex)
    role = ray.get(actor.ask.remote()).role
    assert ray.get(actor.control.remote(role, message)), "it was taken"


def inside(actor: Any, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in the process of an actor, with the actor in front of the arguments."""
    result: T = ray.get(actor.__ray_call__.remote(function, *arguments))
    return result


def process_of(job: RayJobHandle, vertex: str) -> Any:
    """The actor of the first subtask of a vertex."""
    for process in processes_of_job(job.job_id):
        actor: Any = ray.get_actor(process_name(process), namespace=NAMESPACE)
        if ray.get(actor.ask.remote()).role.subtask == SubtaskId(vertex, 0):
            return actor
    raise AssertionError(f"no process of {vertex}")


def test_a_barrier_that_is_sent_twice_over_a_broken_connection_counts_once(tmp_path: Path) -> None:
    """Ray does not say which calls have arrived, so the sender repeats all that were not answered."""
    count = 12  # fits in the credits, so that the barrier reaches its receiver
    env = environment(tmp_path, every=600, buffer_timeout=0.1)
    source = env.from_source("lines", paced_lines(count, 300.0, NEVER, tmp_path / "go"))
    held = source.rebalance().map(HeldAtEachRecord(str(tmp_path / "open")), id="held")
    held.sink("out", FileSink.json(tmp_path / "out"))
    job = submit(env)
    when_records_flow(job, "lines")
    eventually("all records but the last", lambda: statistics(job, "lines").records_out == count - 1)
    [asked] = ask_for(job, 1)
    sender, receiver = process_of(job, "lines"), process_of(job, "held")
    eventually("the sender's barrier", lambda: taken(job, "lines") == 1)  # it has closed the last buffer
    with_barrier = statistics(job, "lines").buffers_out + 1
    eventually("a barrier behind records", lambda: inside(receiver, open_deliveries)[-1] == with_barrier)
    unanswered = inside(receiver, open_deliveries)

    assert inside(sender, break_connections, inside(receiver, ports)) > 0

    eventually("all of it again", lambda: inside(receiver, open_deliveries) == sorted(2 * unanswered))
    (tmp_path / "open").touch()
    assert ray.get(asked, timeout=PATIENCE).checkpoint_id == 1
    assert (taken(job, "lines"), taken(job, "held")) == (1, 1)
    assert job.checkpoint(timeout=PATIENCE).checkpoint_id == 2
    (tmp_path / "go").touch()
    assert finish(job).statistics.restarts == 0
    assert sorted(committed_rows(tmp_path / "out")) == sorted(lines(count))


@pytest.mark.long
def test_at_least_once_tracks_fifty_checkpoints_and_forgotten_ones_are_subsumed(
    tmp_path: Path,
) -> None:
    """The barriers of `held` come last; its start delay is the time for which they waited."""
    job = held_and_free(tmp_path)
    ask_for(job, MANY)
    eventually("barriers of one side", lambda: barriers(job, "both").latest_checkpoint_id == MANY)
    assert barriers(job, "both").pending == TRACKED
    begun = time.time()
    eventually("a while", lambda: time.time() - begun > 0.5)

    opened = time.time()
    (tmp_path / "open").touch()

    eventually("the end of all", lambda: all(r.duration is not None for r in records(job)))
    ended = records(job)
    forgotten, tracked = ended[: MANY - TRACKED], ended[MANY - TRACKED :]
    assert tracked[-1].status is CheckpointStatus.COMPLETED
    assert {r.failure for r in tracked} <= {None, Reason.CHECKPOINT_SUBSUMED}, "the records take turns"
    assert {r.failure for r in forgotten} == {Reason.CHECKPOINT_SUBSUMED}
    assert all("completed first" in r.detail for r in forgotten)
    seen = barriers(job, "both")
    assert (seen.triggered, seen.pending, seen.aborted) == (TRACKED, 0, 0)

    last = job.checkpoint_details(MANY)
    assert last is not None
    assert last.record.duration is not None
    waited = last.subtasks[SubtaskId("held", 0)].start_delay
    assert opened - last.record.triggered_at <= waited <= last.record.duration
    assert last.subtasks[SubtaskId("both", 0)].start_delay < opened - last.record.triggered_at
    (tmp_path / "go").touch()
    assert finish(job).statistics.restarts == 0


@pytest.mark.long
def test_requests_wait_in_a_queue_with_an_end_and_all_are_answered(tmp_path: Path) -> None:
    env = environment(tmp_path, every=600)
    source = env.from_source("lines", paced_lines(60, 300.0, NEVER, tmp_path / "go"))
    held = source.rebalance().map(HeldAtEachRecord(str(tmp_path / "open")), id="held")
    held.sink("out", FileSink.json(tmp_path / "out"))
    job = submit(env)
    when_records_flow(job, "lines")

    def counters(report: JobReport) -> Sequence[int]:
        seen = report.checkpoints
        return (0, 0, 0) if seen is None else (seen.pending, seen.queued, seen.refused)

    asked = ask_for(job, 1)
    wait_until(job, "one that runs", lambda report: counters(report) == (1, 0, 0))
    asked += ask_for(job, QUEUE + 1)
    wait_until(job, "a full queue", lambda report: counters(report) == (1, QUEUE, 1))
    waits = logged(
        job, "INFO ", "for a checkpoint waits: running checkpoints: 1 (max_concurrent=1)", "at most"
    )
    assert len(waits) == QUEUE
    assert len(logged(job, "WARNING ", f"was dropped: {QUEUE} requests are waiting")) == 1

    (tmp_path / "open").touch()
    eventually("a start", lambda: logged(job, "INFO ", "for a checkpoint starts; it has waited for"))
    job.cancel()
    answers = ray.get(asked, timeout=PATIENCE)
    told = ["" if isinstance(answer, CheckpointResult) else answer.why for answer in answers]
    refused = [why for why in told[1:] if "too many checkpoint requests" in why.replace("_", " ")]
    assert len(refused) == 1, "calls of an actor may overtake each other, so it is any of them"
    assert not told[0], "the one that ran has completed"
    assert sum("cancelled" in why or not why for why in told) == len(told) - 1, set(told)


@pytest.mark.long
def test_a_pause_stands_between_checkpoints_and_state_expires(tmp_path: Path) -> None:
    pause = 0.6
    env = environment(tmp_path, every=0.05, min_pause=pause, retain=9, buffer_timeout=0.1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(moment)
    numbers = Lasting(GeneratorSource(visit, count=len(VISITS)), NEVER, str(tmp_path / "go"))
    visits = env.from_source("visits", numbers, watermarks=strategy)
    visits.key_by(of_one_key).process("count", Visits()).sink("out", FileSink.json(tmp_path / "out"))
    job = submit(env)
    wait_until(job, "four checkpoints", lambda r: r.statistics.completed_checkpoints >= 4)
    (tmp_path / "go").touch()
    finish(job)

    completed = [r for r in job.report().checkpoint_history if r.status is CheckpointStatus.COMPLETED]
    for one, next_one in pairwise(completed[:4]):
        assert one.duration is not None
        # The wall clock tells the start, a monotonic one the duration.
        assert next_one.triggered_at - (one.triggered_at + one.duration) > pause - 0.1
    rows = committed_rows(tmp_path / "out")
    assert sorted((row["second"], row["remembered"]) for row in rows) == list(
        zip(VISITS, REMEMBERED, strict=True)
    )


def keeps_opaque(tmp_path: Path, **settings: Any) -> RayJobHandle:
    """Keeps what only pickle carries, and sends it on when the file `emit` is there."""
    env = environment(tmp_path, every=600, tolerable_failures=None, buffer_timeout=0.1, **settings)
    keyed = env.from_source("lines", paced_lines(300, 300.0, NEVER, tmp_path / "go")).key_by(last_word)
    kept = keyed.process("keep", KeepsOpaque(str(tmp_path / "emit"))).rebalance()
    kept.map(type, id="seen").map(str, id="text").sink("out", FileSink.json(tmp_path / "out"))
    job = submit(env)
    when_records_flow(job, "keep")
    return job


def test_checkpoints_without_pickle_hold_no_state_that_no_codec_knows(tmp_path: Path) -> None:
    job = keeps_opaque(tmp_path, config=JobConfig(allow_pickle="records"))
    with pytest.raises(CheckpointError, match="Opaque"):
        job.checkpoint(timeout=PATIENCE)
    job.cancel()
    eventually("the end", lambda: job.status() is JobStatus.CANCELLED)


@pytest.mark.long
def test_a_job_without_pickle_sends_no_record_that_no_codec_knows(tmp_path: Path) -> None:
    job = keeps_opaque(tmp_path, config=JobConfig(allow_pickle=False), restart=NoRestart())
    (tmp_path / "emit").touch()
    (tmp_path / "go").touch()
    assert "Opaque" in failure_of(job)


def test_a_split_that_is_handed_out_while_a_checkpoint_begins_is_in_one_snapshot(tmp_path: Path) -> None:
    count, pieces = 120, 6
    env = environment(tmp_path, every=600, buffer_timeout=0.1)
    stream = env.from_source("lines", HandsOutMeanwhile(count, pieces, tmp_path))
    stream.rebalance().sink("out", FileSink.json(tmp_path / "out"))
    job = submit(env)
    when_records_flow(job, "lines")
    job.checkpoint(timeout=PATIENCE)
    assert (tmp_path / "handed out").exists(), "before the barriers"
    kill_subtask(job, "lines")
    result = finish(job)
    assert result.statistics.restarts == 1
    assert sorted(committed_rows(tmp_path / "out")) == sorted(lines(count))
