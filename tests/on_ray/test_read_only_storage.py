"""A checkpoint storage that becomes read-only, like a file system after an error, and comes back.

The storage is a file system that the test mounts. As an administrator would, the test remounts it read-only.
Everything can still be read.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, eventually, finish, submit, wait_until
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import FixedDelay, JobStatus
from penstock.cluster import JobReport
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


class Mounted:
    """A file system in memory at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read_only(self) -> None:
        """Waits for a moment in which no file is open for writing, as `mount` demands."""
        eventually("read-only", lambda: mount("-o", "remount,ro", str(self.folder)).returncode == 0)
        with pytest.raises(OSError, match="Read-only file system"):
            (self.folder / "file").touch()

    def writable(self) -> None:
        assert mount("-o", "remount,rw", str(self.folder)).returncode == 0


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Mounted]:
    """Folder of the checkpoints of the jobs of `word_count`."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no `mount` here, so no file system can be made read-only")
    done = mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder))
    if done.returncode != 0:
        pytest.skip(f"this user may not mount a file system, which is to become read-only: {done.stderr}")
    yield Mounted(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def failed(report: JobReport) -> list[CheckpointRecord]:
    return [r for r in report.checkpoint_history if r.status is CheckpointStatus.FAILED]


def test_checkpoints_fail_and_the_job_goes_on_until_it_can_be_written_again(
    tmp_path: Path, storage: Mounted
) -> None:
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, parallelism=2, tolerable_failures=1_000))
    before = after_checkpoints(job, 2).statistics

    storage.read_only()
    wait_until(job, "failed checkpoints", lambda r: len(failed(r)) >= 3)
    meanwhile = job.report()
    storage.writable()
    after = after_checkpoints(job, meanwhile.statistics.completed_checkpoints + 2)
    (tmp_path / "go").touch()
    result = finish(job)

    assert (meanwhile.status, meanwhile.statistics.attempt) == (JobStatus.RUNNING, 1)
    for record in failed(meanwhile):
        assert "Read-only file system" in record.detail
        assert str(storage.folder) in record.detail
    assert after.statistics.completed_checkpoints >= before.completed_checkpoints + 2
    assert result.statistics.restarts == 0
    assert result.statistics.failed_checkpoints >= 3
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []


@pytest.mark.long
def test_a_job_that_tolerates_no_more_failures_restarts_when_it_can_be_written_again(
    tmp_path: Path, storage: Mounted
) -> None:
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    restart = FixedDelay(attempts=1_000, delay=0.2)
    job = submit(word_count(tmp_path, source, restart=restart, tolerable_failures=1))
    after_checkpoints(job, 2)

    storage.read_only()
    wait_until(
        job,
        "attempts that can't begin",
        lambda r: sum("the attempt could not begin" in step.cause for step in r.transitions) >= 2,
    )
    failures = job.report().failures
    storage.writable()
    wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2)
    (tmp_path / "go").touch()
    result = finish(job)

    assert any("Read-only file system" in str(failure.root) for failure in failures)
    assert result.statistics.restarts >= 1
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
