"""The raylet's message about a killed worker: in `penstock logs`, and not in the program's output."""

from __future__ import annotations

import subprocess
import sys
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


#: A program that connects by itself; it kills a subtask of its job, and then a worker of its own task.
_OWN_CONNECTION = """
import os, signal, sys, time
import ray
from penstock import Checkpointing, DiscardSink, FixedDelay, GeneratorSource, StreamEnvironment

ray.init(address=os.environ["RAY_ADDRESS"])
env = StreamEnvironment(
    "killed", checkpointing=Checkpointing(every=0.2, storage=sys.argv[1]), restart=FixedDelay(5, delay=0.1)
)
env.from_source("numbers", GeneratorSource(int, rate=500)).sink("out", DiscardSink())
job = env.submit()


def wait_for(what):
    deadline = time.monotonic() + 120
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


wait_for(lambda: job.statistics().completed_checkpoints)
print("SUBTASK", job.processes()[0].pid)
os.kill(job.processes()[0].pid, signal.SIGKILL)
wait_for(lambda: job.logs(operator="ray"))
wait_for(lambda: job.statistics().restarts)


@ray.remote(max_retries=0)
def die():
    os.kill(os.getpid(), signal.SIGKILL)


try:
    ray.get(die.remote())
except ray.exceptions.WorkerCrashedError:
    print("DIED")
time.sleep(3)  # for a notice that must come, and for others that must not
print("LOG", [line.text for line in job.logs(operator="ray")])
job.cancel()
"""


@pytest.mark.long
def test_after_a_users_own_init_only_deaths_of_his_own_workers_are_in_the_output(
    tmp_path: Path, ray_environment: dict[str, str]
) -> None:
    program = subprocess.run(
        [sys.executable, "-c", _OWN_CONNECTION, str(tmp_path)],
        env={**ray_environment, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    said = program.stdout
    assert program.returncode == 0, said
    pid = next(line.split()[1] for line in said.splitlines() if line.startswith("SUBTASK"))
    notices = [line for line in said.splitlines() if "A worker died or was killed" in line]
    log = next(line for line in notices if line.startswith("LOG"))
    assert f"Worker PID: {pid}" in log
    assert len(notices) == 2, said
    assert "(raylet)" in notices[0], "that of the task, as Ray prints it"
    assert pid not in notices[0]
