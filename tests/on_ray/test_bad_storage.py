"""Storages and snapshots that are damaged, lost or no folder at all: the job fails, and says what it is."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import bad_input
from jobs.backpressure import after_in_flight_checkpoint
from jobs.driving import (
    after_checkpoints,
    eventually,
    failure_of,
    kill_master,
    kill_subtask,
    submit,
    wait_until,
)
from jobs.oracle import committed_rows, committed_updates, expected_updates
from jobs.throttled import Throttled
from jobs.words import counted, environment, line, lines, paced_lines, wide_line, word_count

from penstock import AdvancedConfig, FileSink, GeneratorSource, JobConfig
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")


# -- storage ------------------------------------------------------------------------------------------------


def test_a_storage_that_is_no_folder_fails_the_job_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file stands where the folder should be")

    message = failure_of(submit(word_count(tmp_path, paced_lines(100, 1_000.0))))

    assert str(tmp_path / "checkpoints") in message


def newest_metadata(tmp_path: Path, job: RayJobHandle) -> Path:
    folder = tmp_path / "checkpoints" / job.job_id
    return max(folder.glob("chk-*/metadata"), key=lambda file: int(file.parent.name.split("-")[1]))


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 0xFF
    file.write_bytes(data)


def stopped_checkpoints(tmp_path: Path, text: Callable[[int], str] = line, **options: Any) -> RayJobHandle:
    """A running job whose checkpoints come no more, so that its newest one stays the newest."""
    gate = bad_input.Gate(str(tmp_path / "closed"))
    env = environment(tmp_path, every=0.2, **options)
    source = GeneratorSource(text, count=100_000, rate=3_000.0)
    counted(env.from_source("lines", source).map(gate), FileSink.json(tmp_path / "out"))
    job = submit(env)
    after_checkpoints(job, 3)
    (tmp_path / "closed").touch()
    wait_until(job, "a blocked operator", lambda r: (tmp_path / "closed.reached").exists())
    wait_until_nothing_completes(job)
    return job


def wait_until_nothing_completes(job: RayJobHandle) -> None:
    """A checkpoint whose barrier was past the gate may still complete."""
    seen, since = -1, time.monotonic()

    def has_been_the_newest_for_a_second() -> bool:
        nonlocal seen, since
        completed = job.statistics().completed_checkpoints
        if completed != seen:
            seen, since = completed, time.monotonic()
        return time.monotonic() > since + 1.0

    eventually("no other checkpoint", has_been_the_newest_for_a_second)


def test_a_damaged_checkpoint_fails_the_job_and_is_named(tmp_path: Path) -> None:
    job = stopped_checkpoints(tmp_path)
    damaged = newest_metadata(tmp_path, job)
    flip_a_byte(damaged)
    before = committed_updates(tmp_path / "out")
    kill_master(job)
    (tmp_path / "closed").unlink()

    message = failure_of(job)

    assert f"{damaged.parent.name}/metadata" in message
    assert "damaged" in message
    committed = committed_updates(tmp_path / "out")
    assert before <= committed
    assert committed <= expected_updates(lines(100_000))


@pytest.mark.long
def test_a_damaged_state_file_fails_the_job_and_is_named(tmp_path: Path) -> None:
    job = stopped_checkpoints(tmp_path, wide_line)
    shared = sorted((tmp_path / "checkpoints" / job.job_id / "shared").glob("*-count-*"))
    assert shared, "the state is so small that it stands in the metadata"
    for file in shared:
        flip_a_byte(file)
    kill_subtask(job, "count")
    (tmp_path / "closed").unlink()

    message = failure_of(job)

    assert any(file.name in message for file in shared)
    assert job.statistics().restarts <= 1, "a damaged file does not heal by trying again"


def test_an_older_checkpoint_will_do_when_the_user_allows_it(tmp_path: Path) -> None:
    job = stopped_checkpoints(tmp_path, retain=3, allow_older=True)
    damaged = newest_metadata(tmp_path, job)
    newest = int(damaged.parent.name.split("-")[1])
    flip_a_byte(damaged)
    kill_master(job)
    (tmp_path / "closed").unlink()

    after = wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2 and r.warnings != ())

    assert any(f"checkpoint {newest}" in w and "Sinks may repeat" in w for w in after.warnings)
    after_checkpoints(job, 1)
    job.cancel()
    committed = committed_updates(tmp_path / "out")
    read = max(n for word, n in committed if word == "the")
    assert {n for word, n in committed if word == "the"} == set(range(1, read + 1)), "lost updates"


def stopped_in_flight(tmp_path: Path, **options: Any) -> tuple[RayJobHandle, list[Path]]:
    """A job that is stuck in its sink, and the files of in-flight data of its newest checkpoint."""
    shut, gate = tmp_path / "shut", bad_input.Gate(str(tmp_path / "closed"))
    shut.touch()
    env = environment(
        tmp_path,
        every=0.2,
        unaligned=True,
        config=JobConfig(advanced=AdvancedConfig(buffer_rows=10)),
        **options,
    )
    source = env.from_source("lines", GeneratorSource(bad_input.long_number))
    slow = Throttled(FileSink.json(tmp_path / "out"), str(shut), seconds=0.05)
    source.rebalance().map(gate, id="gate").sink("updates", slow)
    job = submit(env)
    after_in_flight_checkpoint(job, attempt=1, completed=3)
    (tmp_path / "closed").touch()
    wait_until(job, "a blocked operator", lambda r: (tmp_path / "closed.reached").exists())
    wait_until_nothing_completes(job)
    return job, sorted(newest_metadata(tmp_path, job).parent.glob("channels-*"))


def go_on_without(job: RayJobHandle, damaged: list[Path], tmp_path: Path) -> None:
    """Damage files and let the job be restored from them."""
    assert damaged, "so little was in flight that it stands in the metadata"
    for file in damaged:
        flip_a_byte(file)
    kill_subtask(job, "gate")  # the one that is stuck: no other checkpoint can complete any more
    (tmp_path / "shut").unlink()
    (tmp_path / "closed").unlink()


@pytest.mark.long
def test_a_damaged_file_of_in_flight_data_fails_the_job_and_is_named(tmp_path: Path) -> None:
    job, files = stopped_in_flight(tmp_path, retain=3)
    go_on_without(job, files, tmp_path)

    message = failure_of(job)

    assert any(f"{file.parent.name}/{file.name}" in message for file in files)
    assert "damaged" in message
    assert job.statistics().restarts <= 1, "a damaged file does not heal by trying again"


@pytest.mark.long
def test_an_older_checkpoint_will_do_for_damaged_in_flight_data_when_the_user_allows_it(
    tmp_path: Path,
) -> None:
    job, files = stopped_in_flight(tmp_path, retain=3, allow_older=True)
    newest = int(files[0].parent.name.split("-")[1]) if files else 0
    before = job.statistics().completed_checkpoints
    go_on_without(job, files, tmp_path)

    after = wait_until(
        job, "a restart from before", lambda r: r.statistics.restarts == 2 and r.warnings != ()
    )
    after_checkpoints(job, before + 1)
    job.cancel()

    assert any(f"checkpoint {newest}" in w and files[0].name in w for w in after.warnings)
    assert any("Sinks may repeat" in w for w in after.warnings)
    committed = set(map(int, committed_rows(tmp_path / "out")))
    assert committed == set(range(max(committed) + 1)), "lost lines"


@pytest.mark.long
@pytest.mark.parametrize("victim", [pytest.param("count", marks=pytest.mark.long), "master"])
def test_a_storage_that_is_lost_while_the_job_runs_fails_the_job(tmp_path: Path, victim: str) -> None:
    """A user deletes the job's folder: starting again from nothing would write everything twice."""
    job = stopped_checkpoints(tmp_path)
    before = committed_updates(tmp_path / "out")
    shutil.rmtree(tmp_path / "checkpoints" / job.job_id)
    if victim == "master":
        kill_master(job)
    else:
        kill_subtask(job, victim)
    (tmp_path / "closed").unlink()

    message = failure_of(job)

    # A record that was written meanwhile begins a log of its own, in which the first slots are missing.
    assert f"{tmp_path}/checkpoints/{job.job_id}/log/" in message
    assert "has lost records: attempt 1" in message or "is missing from the decision log" in message
    assert "let only Penstock delete files there" in message
    assert job.statistics().restarts == 0
    committed = committed_updates(tmp_path / "out")
    assert before <= committed
    assert committed <= expected_updates(lines(100_000))


@pytest.mark.long
def test_a_storage_that_becomes_unwritable_while_the_job_runs_fails_the_job(tmp_path: Path) -> None:
    """It takes half a minute: the end of the job is tried to be recorded that long."""
    job = submit(word_count(tmp_path, paced_lines(100_000, 3_000.0), tolerable_failures=0))
    eventually("a commit", lambda: committed_rows(tmp_path / "out") != [])
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "checkpoints").write_text("a file stands where the folder should be")

    message = failure_of(job)

    assert str(tmp_path / "checkpoints") in message
    assert committed_updates(tmp_path / "out") <= expected_updates(lines(100_000))
