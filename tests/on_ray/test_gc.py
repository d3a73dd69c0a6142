"""`penstock gc` on a real cluster: it takes what ended jobs have left, and nothing that another one needs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from jobs.commands import run_here
from jobs.driving import after_checkpoints, eventually, finish, kill_master, submit, when_records_flow
from jobs.talking import talking_job

from penstock import JobStatus
from penstock.actors.client.logs import read_files
from penstock.actors.client.master_calls import MasterCalls
from penstock.actors.master.program_keeper import find_keeper
from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.output_capture import log_file_name, log_file_pattern, logs_folder

pytestmark = pytest.mark.usefixtures("ray_cluster")

DAY = 86_400.0


def gc(*given: str) -> dict[str, object]:
    done = run_here("gc", "--json", *given)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return dict(json.loads(done.stdout))


def lines_left(job_id: str) -> int:
    return len(read_files(log_file_pattern(job_id), {}))


def test_what_an_ended_job_has_left_goes_and_a_running_one_beside_it_can_still_be_restored(
    tmp_path: Path,
) -> None:
    running = submit(talking_job(tmp_path / "running", 1_000_000, 200.0))
    ended = submit(talking_job(tmp_path / "ended", 500, 5_000.0, name="ended"))
    finish(ended)
    when_records_flow(running, "out", 50)
    after_checkpoints(running, 1)
    MasterCalls(running.job_id).quick("keep_program", of_ended=lambda report: None)
    files = sorted(path for path in (tmp_path / "ended").rglob("*") if path.is_file())
    assert lines_left(ended.job_id) > 0

    assert ended.job_id not in gc("--dry-run")["jobs"], "it ended less than seven days ago"
    eventually(
        "its processes have left", lambda: ended.job_id in gc("--older-than", "0s", "--dry-run")["jobs"]
    )
    assert load_from_cluster(ended.job_id) is not None

    done = gc("--older-than", "0s")
    assert ended.job_id in done["jobs"]
    assert running.job_id not in done["jobs"]
    assert load_from_cluster(ended.job_id) is None
    assert lines_left(ended.job_id) == 0
    assert sorted(path for path in (tmp_path / "ended").rglob("*") if path.is_file()) == files

    assert lines_left(running.job_id) > 0
    assert find_keeper(running.job_id) is not None
    unknown = logs_folder() / log_file_name("forgotten-1", "count", 0, "2")
    unknown.write_text("a line of a job whose node was away\n")
    os.utime(unknown, (time.time() - 2 * DAY, time.time() - 2 * DAY))
    named = run_here("gc", "--older-than", "1d", "--dry-run")
    assert "  forgotten-1 (the cluster no longer knows this job; only log files)" in named.stdout
    assert unknown.exists()
    assert gc("--older-than", "1d")["unknown_jobs"] == ["forgotten-1"]
    assert not unknown.exists()
    kill_master(running)
    eventually("the JobMaster is back", lambda: running.statistics().restarts >= 1)
    running.cancel()
    eventually("it has ended", lambda: running.status() is JobStatus.CANCELLED)
    eventually("its processes have left", lambda: running.job_id in gc("--older-than", "0s")["jobs"])
    assert find_keeper(running.job_id) is None, "its upgrade can't be repeated without its records"


@pytest.mark.parametrize("age", ["soon", "7", "7 weeks"])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    done = run_here("gc", "--older-than", age)
    assert done.returncode == 1
    assert f"--older-than '{age}': give a number and its unit (s, m, h or d)" in done.stderr
