"""Alignments that store: the sender of a blocked channel continues, kills cost nothing, limits hold.

A file holds the slow branch up, so an alignment is open for as long as a test wants. No test compares times.
"""

from __future__ import annotations

import json
import random
import re
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs.backpressure import completed_records, record_of, running
from jobs.commands import run_here
from jobs.driving import after_checkpoints, eventually, kill_subtask, wait_until
from jobs.meeting import COUNT, Meeting, more_than_on_the_way
from jobs.oracle import hidden_files
from jobs.words import wide_line
from jobs.wrapped_sink import WrappedSink, WrappedWriter

from penstock import FileSink
from penstock.cluster import RayJobHandle
from penstock.connectors import ConnectorContext, SinkWriter
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointFailureReason,
    CheckpointRecord,
    CheckpointStatus,
)

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: Memory for stored elements; what is stored beyond it is on disk.
MEMORY = 2_000
#: So much is stored when a process is killed: some of it is on disk.
STORED = 2 * MEMORY
#: The most that an alignment may store, where there is a limit.
LIMIT = 15_000

LIMIT_EXCEEDED = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED
#: Of a checkpoint that ran when a process died, and of one that ran when the job was stopped.
NOT_OF_ALIGNMENT = {
    CheckpointFailureReason.JOB_FAILURE,
    CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND,
}


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path)


def killed_while_stored(meeting: Meeting, job: RayJobHandle, victim: str, attempt: int) -> None:
    """Kill a process in the middle of a stored alignment, and wait for a checkpoint of the next attempt."""
    stored = meeting.hold_up(job, STORED)
    assert stored.spilled_bytes > 0
    kill_subtask(job, victim)
    meeting.let_go()
    wait_until(job, "a restart", lambda report: report.statistics.attempt > attempt)
    wait_until(job, "a checkpoint", lambda report: completed_records(report, attempt + 1) != [])


def sender_goes_on(meeting: Meeting, job: RayJobHandle) -> CheckpointDetails:
    """Hold the slow branch up, and wait until the fast one has gone on; the checkpoint of that time.

    One that stores more than the limit allows meanwhile is given up. Then the next one is looked at.
    """
    while True:
        meeting.hold_up(job, STORED)
        waiting = running(job.report())
        report = more_than_on_the_way(job, "fast")
        still = None if waiting is None else record_of(report, waiting.checkpoint_id)
        meeting.let_go()
        if still is not None and still.status is CheckpointStatus.IN_PROGRESS:
            ended = details_at_its_end(job, still.checkpoint_id)
            if ended.record.status is CheckpointStatus.COMPLETED:
                return ended
            assert ended.record.failure is LIMIT_EXCEEDED


def details_at_its_end(job: RayJobHandle, checkpoint_id: int) -> CheckpointDetails:
    """Wait until a checkpoint is complete or given up."""
    found: list[CheckpointDetails] = []

    def has_ended() -> bool:
        found[:] = [each for each in job.checkpoints() if each.record.checkpoint_id == checkpoint_id]
        return found[0].record.status not in (CheckpointStatus.IN_PROGRESS, CheckpointStatus.FINALIZING)

    eventually(f"the end of checkpoint {checkpoint_id}", has_ended)
    return found[0]


def exceed_the_limit(meeting: Meeting, job: RayJobHandle) -> None:
    """Hold the slow branch up until a checkpoint is given up; the ones behind it complete."""
    before = len(given_up(job))
    meeting.hold_up(job, 1)
    eventually("a limit", lambda: len(given_up(job)) > before)
    meeting.let_go()
    after_checkpoints(job, job.statistics().completed_checkpoints + 2)


def given_up(job: RayJobHandle) -> list[CheckpointRecord]:
    """Failed checkpoints, but for those that failed with a process or with the end of the job."""
    failed = [r for r in (each.record for each in job.checkpoints()) if r.status is CheckpointStatus.FAILED]
    return [record for record in failed if record.failure not in NOT_OF_ALIGNMENT]


def assert_limit_was_kept(known: Sequence[CheckpointDetails], given_up: Sequence[CheckpointRecord]) -> None:
    """Exactly the checkpoints were given up that have stored more than the limit."""
    done = [each for each in known if each.record.status is CheckpointStatus.COMPLETED]
    assert max(each.subtasks[COUNT].stored_bytes for each in done if each.subtasks) <= LIMIT
    assert {record.failure for record in given_up} == {LIMIT_EXCEEDED}
    assert min(map(stored_when_given_up, given_up)) > LIMIT


def test_senders_of_blocked_channels_go_on_a_kill_meanwhile_costs_nothing_and_the_limit_is_kept(
    meeting: Meeting, record_property: Callable[[str, object], None]
) -> None:
    job = meeting.submit(alignment_memory=MEMORY, max_alignment_bytes=LIMIT, tolerable_failures=0)
    after_checkpoints(job, 1)
    done = sender_goes_on(meeting, job)
    assert LIMIT >= done.subtasks[COUNT].stored_bytes > done.subtasks[COUNT].spilled_bytes > 0
    shown = json.loads(run_here("checkpoints", job.job_id, "--json").stdout)
    rows = next(each["by_subtask"] for each in shown if each["checkpoint_id"] == done.record.checkpoint_id)
    assert {(r["vertex"], r["subtask"]): r["spilled_bytes"] > 0 for r in rows}[COUNT.vertex, COUNT.index]

    killed_while_stored(meeting, job, "count", attempt=1)
    exceed_the_limit(meeting, job)
    assert_limit_was_kept(job.checkpoints(), given_up(job))
    job.stop(drain=True)

    meeting.assert_exactly_once()
    assert hidden_files(meeting.folder / "met") == []
    assert job.report().statistics.attempt == 2, "no checkpoint that was given up has failed the job"
    record_property("shown", "killed in the middle of a stored alignment: count")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("memory", [0, MEMORY], ids=["all on disk", "memory and disk"])
def test_many_kills_in_the_middle_of_stored_alignments_cost_nothing(
    meeting: Meeting, memory: int, record_property: Callable[[str, object], None]
) -> None:
    draws = random.Random(memory)
    victims = [draws.choice(["count", "numbers", "fast", "slow", "ticks"]) for _ in range(11)]
    job = meeting.submit(alignment_memory=memory)
    after_checkpoints(job, 1)
    for attempt, victim in enumerate(victims, 1):
        killed_while_stored(meeting, job, victim, attempt)
    job.stop(drain=True)
    meeting.assert_exactly_once()
    record_property("shown", f"killed in the middle of a stored alignment: {', '.join(victims)}")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_limit_gives_up_exactly_the_checkpoints_that_exceed_it(meeting: Meeting) -> None:
    job = meeting.submit(alignment_memory=MEMORY, max_alignment_bytes=LIMIT, tolerable_failures=0)
    after_checkpoints(job, 1)
    for _ in range(5):
        exceed_the_limit(meeting, job)
    assert_limit_was_kept(job.checkpoints(), given_up(job))
    assert len(given_up(job)) >= 5
    job.stop(drain=True)

    assert job.report().statistics.attempt == 1, "no checkpoint that was given up has failed the job"
    meeting.assert_exactly_once()


def stored_when_given_up(record: CheckpointRecord) -> int:
    found = re.fullmatch(
        rf".*?([\d,]+) bytes were stored for .*, more than max_alignment_bytes={LIMIT:,}.*", record.detail
    )
    assert found is not None, record.detail
    return int(found[1].replace(",", ""))


@dataclass(frozen=True)
class WithoutRoom(WrappedSink):
    """A sink in whose process no file grows beyond a size while another file exists, as on a full disk.

    Attributes:
        full: The file that says so.
        largest: The size.
    """

    full: str
    largest: int

    def writer(self, context: ConnectorContext) -> WriterWithoutRoom:
        return WriterWithoutRoom(self, self.inner.writer(context))


class WriterWithoutRoom(WrappedWriter):
    """Sets the limit of its process, and takes it back."""

    def __init__(self, sink: WithoutRoom, inner: SinkWriter[Any]) -> None:
        super().__init__(inner)
        self._sink = sink

    def write(self, batch: Any) -> None:
        self._limit(False)  # the sink's own files are written whole
        super().write(batch)
        self._limit(Path(self._sink.full).exists())

    def prepare_commit(self) -> Any:
        self._limit(False)
        return super().prepare_commit()

    def close(self) -> None:
        self._limit(False)
        super().close()

    def _limit(self, is_full: bool) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._sink.largest if is_full else hard, hard))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_disk_without_room_gives_checkpoints_up_and_the_job_goes_on(tmp_path: Path) -> None:
    """Long words fill the disk; the limit is larger than all other files of the process."""
    meeting = Meeting(tmp_path, wide_line)
    full = meeting.folder / "full"
    sink = WithoutRoom(FileSink.json(meeting.folder / "met"), str(full), largest=200_000)
    job = meeting.submit(updates=sink, alignment_memory=0, tolerable_failures=0)
    after_checkpoints(job, 1)
    full.touch()
    meeting.shut.touch()
    seen = wait_until(job, "no room", lambda report: report.statistics.failed_checkpoints > 0)
    meeting.let_go()
    full.unlink()
    after_checkpoints(job, seen.statistics.completed_checkpoints + 2)
    job.stop(drain=True)

    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED
    assert {record.failure for record in given_up(job)} == {reason}
    assert all("File too large" in each.detail and "TMPDIR" in each.detail for each in given_up(job))
    assert job.report().statistics.attempt == 1
    assert any("declines checkpoint" in line.text for line in job.logs(operator="count"))
    meeting.assert_exactly_once()
