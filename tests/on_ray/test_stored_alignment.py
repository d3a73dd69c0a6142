"""Alignments that store: the sender of a blocked channel goes on, kills cost nothing, limits hold.

A file holds the slow branch up, so an alignment is open for as long as a test wants. No test compares times.
"""

from __future__ import annotations

import json
import random
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs.backpressure import completed_records, record_of, running
from jobs.commands import run_here
from jobs.driving import after_checkpoints, eventually, kill_subtask, wait_until
from jobs.meeting import COUNT, Meeting, more_than_on_the_way
from jobs.oracle import hidden_files
from jobs.wrapped_sink import WrappedSink, WrappedWriter

from penstock.actors import RayJobHandle
from penstock.runtime import ConnectorContext, FileSink, SinkWriter
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointRecord, CheckpointStatus
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason

# The simulation kills processes in the middle of stored alignments each time
# (`tests/simulation/test_stored_alignments.py`).
pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.long, pytest.mark.timeout(600)]

#: Memory for stored elements; what is stored beyond it is on disk.
MEMORY = 2_000
#: So much is stored when a process is killed: some of it is on disk.
STORED = 2 * MEMORY


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


def test_sender_of_a_blocked_channel_goes_on_and_a_kill_in_the_middle_costs_nothing(
    meeting: Meeting, record_property: Callable[[str, object], None]
) -> None:
    job = meeting.submit(alignment_memory=MEMORY)
    after_checkpoints(job, 1)
    meeting.hold_up(job, STORED)
    waiting = running(job.report())
    assert waiting is not None
    report = more_than_on_the_way(job, "fast")
    still = record_of(report, waiting.checkpoint_id)
    assert still is not None
    assert still.status is CheckpointStatus.IN_PROGRESS, "the fast branch went on during the alignment"
    meeting.let_go()
    done = completed(job, waiting.checkpoint_id)
    assert done.subtasks[COUNT].stored_bytes > done.subtasks[COUNT].spilled_bytes > 0
    shown = json.loads(run_here("checkpoints", job.job_id, "--json").stdout)
    rows = next(each["by_subtask"] for each in shown if each["checkpoint_id"] == waiting.checkpoint_id)
    assert {(r["vertex"], r["subtask"]): r["spilled_bytes"] > 0 for r in rows}[COUNT.vertex, COUNT.index]

    killed_while_stored(meeting, job, "count", attempt=1)
    job.stop(drain=True)

    meeting.assert_exactly_once()
    assert hidden_files(meeting.folder / "met") == []
    record_property("shown", "killed in the middle of a stored alignment: count")


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


def test_limit_gives_up_exactly_the_checkpoints_that_exceed_it(meeting: Meeting) -> None:
    limit, reason = 10_000, CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED
    job = meeting.submit(alignment_memory=MEMORY, max_alignment_bytes=limit, tolerable_failures=0)
    after_checkpoints(job, 1)
    for _ in range(2):
        failed = job.statistics().failed_checkpoints
        meeting.hold_up(job, 1)
        wait_until(job, "a limit", lambda r, f=failed: r.statistics.failed_checkpoints > f)  # type: ignore[misc]
        before = job.statistics().completed_checkpoints
        meeting.let_go()
        after_checkpoints(job, before + 2)
    job.stop(drain=True)

    known = job.checkpoints()
    done = [each for each in known if each.record.status is CheckpointStatus.COMPLETED]
    assert len(done) > 4
    assert max(each.subtasks[COUNT].stored_bytes for each in done if each.subtasks) <= limit
    given_up = given_up_by_subtasks(job)
    assert len(given_up) >= 2
    assert {record.failure for record in given_up} == {reason}
    assert min(stored_when_given_up(record, limit) for record in given_up) > limit
    assert job.report().statistics.attempt == 1, "no checkpoint that was given up has failed the job"
    meeting.assert_exactly_once()


def given_up_by_subtasks(job: RayJobHandle) -> list[CheckpointRecord]:
    """Failed checkpoints, but for one that ran when the job was stopped."""
    stopped = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
    records = [each.record for each in job.checkpoints()]
    return [r for r in records if r.status is CheckpointStatus.FAILED and r.failure is not stopped]


def stored_when_given_up(record: CheckpointRecord, limit: int) -> int:
    found = re.fullmatch(
        rf".*?([\d,]+) bytes were stored for .*, more than max_alignment_bytes={limit:,}.*", record.detail
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


def completed(job: RayJobHandle, checkpoint_id: int) -> CheckpointDetails:
    """The details of a checkpoint, when it is complete."""
    found: list[CheckpointDetails] = []

    def is_completed() -> bool:
        found.extend(
            each
            for each in job.checkpoints()
            if each.record.checkpoint_id == checkpoint_id and each.record.status is CheckpointStatus.COMPLETED
        )
        return found != []

    eventually(f"the end of checkpoint {checkpoint_id}", is_completed)
    return found[0]


def test_disk_without_room_gives_checkpoints_up_and_the_job_goes_on(meeting: Meeting) -> None:
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

    given_up = given_up_by_subtasks(job)
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED
    assert {record.failure for record in given_up} == {reason}
    assert all("File too large" in record.detail and "TMPDIR" in record.detail for record in given_up)
    assert job.report().statistics.attempt == 1
    assert any("gives checkpoint" in line.text for line in job.logs(operator="count"))
    meeting.assert_exactly_once()
