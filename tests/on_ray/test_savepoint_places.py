"""The place of a savepoint is checked before any barrier is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import finish, submit, subtask_statistics, when_records_flow
from jobs.oracle import assert_exactly_once
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import JobStatus
from penstock.cluster import RayJobHandle
from penstock.runtime.checkpoint.coordinator.location import TRIAL
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
    # Root may write everywhere. A folder that stands where the file should be is refused to everybody.
    (tmp_path / "locked" / TRIAL / "in the way").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))

    for place, why in (
        (tmp_path / "file" / "saved", "it, or a part of its path, is a file; name a folder"),
        (tmp_path / "locked", f"can't write {tmp_path}/locked/{TRIAL}: "),
    ):
        for ask in (job.savepoint, job.stop):
            with pytest.raises(SavepointError) as caught:
                ask(place)
            assert "its location can't be written: " in str(caught.value)
            assert str(place) in str(caught.value)
            assert why in str(caught.value)

    assert barriers(job) == 0
    assert job.status() is JobStatus.RUNNING
    assert sorted(path for path in tmp_path.rglob("*") if "out" not in path.parts) == [
        path for path in before if "out" not in path.parts
    ]
    assert [each.record.status for each in job.checkpoints()] == [CheckpointStatus.FAILED] * 4
    assert job.savepoint(tmp_path / "saved").startswith(f"{tmp_path}/saved/savepoint-")
    assert barriers(job) > 0, "they are counted"
    (tmp_path / "go").touch()
    assert finish(job).statistics.restarts == 0
    assert_exactly_once(tmp_path / "out", lines(COUNT))
