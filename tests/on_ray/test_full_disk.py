"""A disk without room, and files that are deleted while a job runs.

A full disk is a small file system in memory; to mount one needs root. It is skipped by name elsewhere.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.bad_input import Gate
from jobs.driving import (
    after_checkpoints,
    eventually,
    failure_of,
    finish,
    kill_master,
    kill_subtask,
    submit,
    wait_until,
)
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, counted, environment, lines, paced_lines, wide_line

from penstock import FileSink, FixedDelay, GeneratorSource, RocksDB
from penstock.actors.shared.job_report import JobReport

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.long, pytest.mark.timeout(600)]

COUNT, RATE = 3_000, 3_000.0
SIZE = 8 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of eight megabytes; unmounted afterwards."""
    folder = tmp_path / "small"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no `mount`")
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "penstock-test", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system can't be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def without_room(disk: Path) -> Iterator[None]:
    """Fill a disk to the last byte; at the end there is room again."""
    filler = disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        yield
    finally:
        filler.unlink()


def said_of_rocksdb(report: JobReport) -> list[str]:
    """RocksDB's messages in failed checkpoints and attempts."""
    said = [record.detail for record in report.checkpoint_history]
    said += [failure.root.message for failure in report.failures]
    return [each for each in said if "RocksDB" in each]


@pytest.mark.parametrize("victim", [None, "count", "master"])
def test_checkpoints_find_no_room_for_a_while(tmp_path: Path, small: Path, victim: str | None) -> None:
    """Attempts fail as often as the disk is full; users only have to make room."""
    env = environment(small, restart=FixedDelay(attempts=1_000, delay=0.2))
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    counted(env.from_source("lines", source), FileSink.json(tmp_path / "out"))
    job = submit(env)
    failed = after_checkpoints(job, 2).statistics.failed_checkpoints
    with without_room(small):
        wait_until(job, "failures", lambda r: r.statistics.failed_checkpoints >= failed + 2)
        if victim == "master":
            kill_master(job)
        elif victim is not None and job.processes():
            with contextlib.suppress(ProcessLookupError, StopIteration):
                kill_subtask(job, victim)
    done = wait_until(job, "a report", lambda r: True).statistics.completed_checkpoints
    after_checkpoints(job, done + 2)
    (tmp_path / "go").touch()

    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []


def test_a_sink_finds_no_room_for_a_while(tmp_path: Path, small: Path) -> None:
    env = environment(tmp_path, restart=FixedDelay(attempts=1_000, delay=0.2))
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    counted(env.from_source("lines", source), FileSink.json(small / "out"))
    job = submit(env)
    after_checkpoints(job, 2)
    with without_room(small):
        wait_until(job, "a restart", lambda r: r.statistics.restarts >= 1)
    done = wait_until(job, "a report", lambda r: True).statistics.completed_checkpoints
    after_checkpoints(job, done + 2)
    (tmp_path / "go").touch()

    finish(job)
    assert_exactly_once(small / "out", lines(COUNT))
    assert hidden_files(small / "out") == []


def test_the_scratch_disk_of_rocksdb_has_no_room_for_a_while(tmp_path: Path, small: Path) -> None:
    """The folder of the databases is full, and that of the checkpoints is not."""
    env = environment(
        tmp_path,
        restart=FixedDelay(attempts=1_000, delay=0.2),
        state_backend=RocksDB(memory=8 << 20, folder=str(small)),
    )
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    counted(env.from_source("lines", source), FileSink.json(tmp_path / "out"))
    job = submit(env)
    after_checkpoints(job, 2)
    with without_room(small):
        report = wait_until(job, "a failure of RocksDB", lambda r: bool(said_of_rocksdb(r)))
        assert all(str(small) in each and "Free space" in each for each in said_of_rocksdb(report))
    done = wait_until(job, "a report", lambda r: True).statistics.completed_checkpoints
    after_checkpoints(job, done + 2)
    (tmp_path / "go").touch()

    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert list(small.glob("penstock-state-*")) == []


def test_a_state_file_that_somebody_deletes_is_named_when_it_is_needed(tmp_path: Path) -> None:
    """No checkpoint follows, so the job can't go on from another one."""
    gate = Gate(str(tmp_path / "closed"))
    env = environment(tmp_path)
    stream = env.from_source("lines", GeneratorSource(wide_line, count=100_000, rate=RATE)).map(gate)
    counted(stream, FileSink.json(tmp_path / "out"))
    job = submit(env)
    after_checkpoints(job, 3)
    (tmp_path / "closed").touch()
    eventually("a blocked operator", (tmp_path / "closed.reached").exists)
    deleted = sorted((tmp_path / "checkpoints" / job.job_id / "shared").glob("*-count-*"))
    assert deleted != []
    for file in deleted:
        file.unlink()
    kill_subtask(job, "count")
    (tmp_path / "closed").unlink()

    message = failure_of(job)

    assert any(file.name in message for file in deleted), message


def test_the_report_and_the_notes_of_ids_that_somebody_deletes_are_written_again(tmp_path: Path) -> None:
    """Small files of the storage that no restore needs while the JobMaster lives."""
    env = environment(tmp_path, restart=FixedDelay(attempts=1_000, delay=0.2))
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    counted(env.from_source("lines", source), FileSink.json(tmp_path / "out"))
    job = submit(env)
    after_checkpoints(job, 2)
    (tmp_path / "checkpoints" / job.job_id / "status.json").unlink(missing_ok=True)
    for left in (tmp_path / "checkpoints" / job.job_id / "ids").glob("*"):
        left.unlink(missing_ok=True)
    done = wait_until(job, "a report", lambda r: True).statistics.completed_checkpoints
    after_checkpoints(job, done + 2)
    (tmp_path / "go").touch()

    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
