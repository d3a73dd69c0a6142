"""What the raylet says of a killed worker: in `penstock logs`, and not in the program's output."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.commands import run_here
from jobs.driving import eventually, finish, kill_subtask, submit, when_records_flow
from jobs.talking import talking_job

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_the_notice_of_a_killed_worker_is_in_the_log_and_not_in_the_programs_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = submit(talking_job(tmp_path, 500, 2_000.0, attempt=2))
    when_records_flow(job, "out")
    pid = kill_subtask(job, "largest")

    def notices() -> list[str]:
        return [line.text for line in job.logs(operator="ray")]

    eventually("Ray has told the end of the worker", lambda: any(str(pid) in text for text in notices()))
    finish(job)
    said = capsys.readouterr()
    assert "raylet" not in said.out + said.err
    assert "died or was killed" not in said.out + said.err

    shown = run_here("logs", job.job_id, "--operator", "ray")
    assert shown.returncode == 0, shown.stderr
    assert all(" ray | " in line for line in shown.stdout.splitlines())
    assert f"{pid}" in shown.stdout
