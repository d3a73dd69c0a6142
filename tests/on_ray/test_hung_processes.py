"""A process that lives and does nothing is named, killed and replaced; one that is busy lives."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from jobs.driving import (
    PATIENCE,
    after_checkpoints,
    assert_no_subtasks,
    eventually,
    finish,
    submit,
    wait_until,
    when_records_flow,
)
from jobs.oracle import assert_exactly_once, committed_rows
from jobs.sticking import RECORDS, Backtracks, WaitsForFile
from jobs.words import NEVER, environment, lines, paced_lines, word_count

from penstock import (
    AdvancedConfig,
    FileSink,
    GeneratorSource,
    JobCancelledError,
    JobConfig,
    JobFailedError,
    StreamEnvironment,
)
from penstock.actors.shared.job_report import JobMasterProcess, SubtaskProcess
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.snapshot.ids import SubtaskId

pytestmark = pytest.mark.usefixtures("ray_cluster")

RATE = 3_000.0
#: Shorter than the default, for jobs whose processes are stopped.
QUICK = JobConfig(advanced=AdvancedConfig(heartbeat_timeout=3.0))


@contextmanager
def stopped(process: SubtaskProcess | JobMasterProcess) -> Iterator[float]:
    """Stop a process with SIGSTOP, and return the time; it continues at the end if it still lives."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield time.monotonic()
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)


def process_of(job: RayJobHandle, vertex: str) -> SubtaskProcess:
    return next(p for p in job.processes() if p.subtask == SubtaskId(vertex, 0))


def silent(report: JobReport) -> dict[SubtaskId, bool | None]:
    """The subtasks that are said to be silent, and whether their processor time advances."""
    return {each.subtask: each.silence.uses_processor for each in report.subtasks if each.silence is not None}


def failed(report: JobReport) -> dict[SubtaskId | None, str]:
    return {failure.root.subtask: failure.root.message for failure in report.failures}


def stuck_job(tmp_path: Path, function: Callable[[str], str], config: JobConfig) -> StreamEnvironment:
    """Numbers as lines, through a function that takes long at one of them, into files."""
    env = environment(tmp_path, config=config)
    source = GeneratorSource(str, count=RECORDS)
    stream = env.from_source("numbers", source).rebalance().map(function, id="stick")
    stream.sink("out", FileSink.json(str(tmp_path / "out")))
    return env


def test_a_stopped_subtask_is_named_and_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(4_500, RATE, attempt=2), config=QUICK))
    after_checkpoints(job, 1)
    hung = process_of(job, "count")
    with stopped(hung):
        wait_until(job, "its name", lambda r: hung.subtask in silent(r) or r.statistics.attempt > 1)
        finish(job)
    assert_exactly_once(tmp_path / "out", lines(4_500))
    failure = failed(job.report())[hung.subtask]
    assert "it hangs" in failure
    assert "its processor time does not advance" in failure
    assert f"pid {hung.pid}" in failure


@pytest.mark.long
def test_a_stopped_job_master_is_replaced_by_the_word_of_its_subtasks(tmp_path: Path) -> None:
    source = paced_lines(4_500, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, config=QUICK))
    before = after_checkpoints(job, 1)
    assert before.master is not None
    with stopped(before.master):
        after = wait_until(job, "another attempt", lambda r: r.statistics.attempt > 1 and bool(r.processes))
        assert after.master is not None
        assert after.master.pid != before.master.pid
        (tmp_path / "go").touch()
        finish(job)
    assert_exactly_once(tmp_path / "out", lines(4_500))


@pytest.mark.long
def test_a_gcs_that_stands_still_stops_no_checkpoint_and_costs_no_job_master(tmp_path: Path) -> None:
    """Ray's directory of actors; a JobMaster keeps its report and the names of its processes there."""
    source = paced_lines(4_500, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, config=QUICK))
    before = after_checkpoints(job, 1)
    log = tmp_path / "checkpoints" / job.job_id / "log"
    [gcs] = [p for p in psutil.Process().children() if p.name() == "gcs_server"]
    gcs.suspend()
    try:
        time.sleep(2.5 * QUICK.advanced.heartbeat_timeout)
        recorded = max(log.iterdir())
        eventually("another checkpoint", lambda: max(log.iterdir()) > recorded)
    finally:
        gcs.resume()
    after = job.report()
    assert (after.master, after.statistics.attempt) == (before.master, 1)
    (tmp_path / "go").touch()
    finish(job)
    assert_exactly_once(tmp_path / "out", lines(4_500))


@pytest.mark.long
def test_a_regular_expression_that_keeps_the_lock_is_named_and_survives(tmp_path: Path) -> None:
    # Longer than the heartbeat timeout, after which a process that stands still would be killed.
    job = submit(stuck_job(tmp_path, Backtracks(4.0), QUICK))
    wait_until(job, "its name", lambda r: True in silent(r).values())
    finish(job)
    assert not any("it hangs" in failure for failure in failed(job.report()).values())
    assert sorted(committed_rows(tmp_path / "out")) == sorted(map(str, range(RECORDS)))


def test_a_call_that_takes_long_is_told_with_its_function_and_line(tmp_path: Path) -> None:
    job = submit(stuck_job(tmp_path, WaitsForFile(tmp_path / "go"), JobConfig()))
    report = wait_until(job, "the call", lambda r: any(each.long_call for each in r.subtasks))
    [told] = [str(each.long_call) for each in report.subtasks if each.long_call is not None]
    assert told.startswith("in map function WaitsForFile (")
    assert "sticking.py:" in told
    assert silent(report) == {}
    (tmp_path / "go").touch()
    finish(job)
    assert all(each.long_call is None for each in job.report().subtasks)


@pytest.mark.long
def test_at_default_settings_a_stopped_subtask_is_replaced(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    source = paced_lines(60_000, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source))
    after_checkpoints(job, 1)
    hung = process_of(job, "count")
    with stopped(hung) as since:
        wait_until(job, "its name", lambda r: hung.subtask in silent(r))
        named = time.monotonic() - since
        wait_until(job, "another attempt", lambda r: r.statistics.attempt == 2)
        when_records_flow(job, "count")
        flows = time.monotonic() - since
        (tmp_path / "go").touch()
        finish(job)
    record_property("shown", f"named after {named:.1f} s, records flow after {flows:.1f} s")
    assert_exactly_once(tmp_path / "out", lines(60_000))
    assert "no answer for 8 s" in failed(job.report())[hung.subtask]


@pytest.mark.long
def test_at_default_settings_a_stopped_job_master_is_replaced(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    source = paced_lines(60_000, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source))
    before = after_checkpoints(job, 1)
    assert before.master is not None
    with stopped(before.master) as since:
        wait_until(job, "another attempt", lambda r: r.statistics.attempt == 2)
        when_records_flow(job, "count")
        flows = time.monotonic() - since
        (tmp_path / "go").touch()
        finish(job)
    record_property("shown", f"records flow after {flows:.1f} s")
    assert_exactly_once(tmp_path / "out", lines(60_000))


@pytest.mark.long
def test_at_default_settings_a_regular_expression_of_25_seconds_survives(tmp_path: Path) -> None:
    job = submit(stuck_job(tmp_path, Backtracks(25.0), JobConfig()))
    wait_until(job, "its name", lambda r: True in silent(r).values())
    finish(job)
    assert job.report().failures == ()
    assert sorted(committed_rows(tmp_path / "out")) == sorted(map(str, range(RECORDS)))


@pytest.mark.long
def test_a_job_is_cancelled_while_all_its_processes_are_stopped(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    job = submit(word_count(tmp_path, paced_lines(60_000, RATE, attempt=NEVER)))
    report = after_checkpoints(job, 1)
    assert report.master is not None
    with ExitStack() as all_stopped:
        for process in (*report.processes, report.master):
            since = all_stopped.enter_context(stopped(process))
        job.cancel()
        with pytest.raises(JobCancelledError):
            job.wait(PATIENCE)
        took = time.monotonic() - since
        assert_no_subtasks(job)
    record_property("shown", f"cancelled after {took:.1f} s")


@pytest.mark.long
def test_a_stopped_subtask_of_a_job_without_checkpoints_fails_it_by_name(tmp_path: Path) -> None:
    source = paced_lines(60_000, RATE, attempt=NEVER)
    job = submit(word_count(tmp_path, source, every=None, config=QUICK))
    when_records_flow(job, "count")
    hung = process_of(job, "count")
    with stopped(hung), pytest.raises(JobFailedError, match="its processor time does not advance"):
        job.wait(PATIENCE)
    assert "it hangs" in failed(job.report())[hung.subtask]


@pytest.mark.long
def test_a_client_leaves_a_job_master_the_time_that_its_job_gives_it(tmp_path: Path) -> None:
    config = JobConfig(advanced=AdvancedConfig(heartbeat_timeout=120.0, lease_timeout=600.0))
    source = paced_lines(60_000, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, config=config))
    before = after_checkpoints(job, 1)
    assert before.master is not None
    with ThreadPoolExecutor() as pool:
        with stopped(before.master):
            answer = pool.submit(job.report)
            time.sleep(15.0)  # nearly twice the time of a job with default settings
            assert not answer.done()
        after = answer.result(PATIENCE)
    assert after.master == before.master
    (tmp_path / "go").touch()
    finish(job)
    assert job.report().statistics.attempt == 1
