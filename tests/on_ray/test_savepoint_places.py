"""The place of a savepoint is checked before any barrier is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import finish, submit, subtask_statistics, when_records_flow
from jobs.oracle import assert_exactly_once
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock.actors import RayJobHandle
from penstock.runtime import JobStatus
from penstock.runtime.errors import SavepointError
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT = 900


def barriers(job: RayJobHandle) -> int:
    """Barriers that the subtasks of the running attempt have met: each is taken or declined."""
    seen = [each.checkpoints for each in subtask_statistics(job).values() if each.checkpoints is not None]
    assert len(seen) == 3, "every subtask answers"
    return sum(each.taken + each.declined for each in seen)


def test_a_savepoint_whose_place_can_not_be_written_sends_no_barrier_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    source = paced_lines(COUNT, 3_000.0, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, sink_parallelism=1, every=600.0))
    when_records_flow(job, "count", 100)
    (tmp_path / "file").write_text("no folder can be made below this")
    before = sorted(tmp_path.rglob("*"))

    for ask in (job.savepoint, job.stop):
        with pytest.raises(SavepointError) as caught:
            ask(tmp_path / "file" / "saved")
        assert f"its place can't be written: {tmp_path}/file/saved/savepoint-" in str(caught.value)
        assert "is a file; name a folder" in str(caught.value)

    assert barriers(job) == 0
    assert job.status() is JobStatus.RUNNING
    assert sorted(path for path in tmp_path.rglob("*") if "out" not in path.parts) == [
        path for path in before if "out" not in path.parts
    ]
    assert [each.record.status for each in job.checkpoints()] == [CheckpointStatus.FAILED] * 2
    assert job.savepoint(tmp_path / "saved").startswith(f"{tmp_path}/saved/savepoint-")
    assert barriers(job) > 0, "they are counted"
    (tmp_path / "go").touch()
    assert finish(job).statistics.restarts == 0
    assert_exactly_once(tmp_path / "out", lines(COUNT))
