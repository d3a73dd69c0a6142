"""The command line beside a real cluster: in this process, and as a program as a user's shell starts it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from jobs.commands import Done, run_here
from jobs.driving import (
    PATIENCE,
    after_checkpoints,
    eventually,
    finish,
    kill_subtask,
    submit,
    when_records_flow,
)
from jobs.oracle import assert_exactly_once
from jobs.talking import talking_job
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import DiscardSink, JobStatus, StreamEnvironment
from penstock.actors.shared.output_capture import JOB_MASTER, log_file_name, log_file_pattern, logs_folder
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

COMMAND = [sys.executable, "-m", "penstock.actors.command_line"]
FOR_EVER = 1_000_000


def arguments(*given: str) -> list[str]:
    return [*COMMAND, *given, "--address", ray.get_runtime_context().gcs_address]


def run(*given: str, code: int = 0) -> Done:
    """Run a command in this process."""
    return checked(run_here(*given), code)


def run_in_shell(*given: str, code: int = 0) -> Done:
    """Run a command as a program of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        arguments(*given), env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return checked(Done(done.returncode, done.stdout, done.stderr), code)


def checked(done: Done, code: int) -> Done:
    assert done.returncode == code, (done.stdout, done.stderr)
    if code == 0:
        assert done.stderr == ""
    return done


def error_of(*given: str) -> str:
    return the_line_of(run(*given, code=1))


def the_line_of(done: Done) -> str:
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("penstock: ")
    return line


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RayJobHandle]:
    job = submit(talking_job(tmp_path, FOR_EVER, 2_000.0))
    when_records_flow(job, "out", 1_000)
    yield job
    job.cancel()


def test_a_job_is_listed_looked_at_and_cancelled_from_another_shell(running: RayJobHandle) -> None:
    after_checkpoints(running, 1)

    (mine,) = [line for line in run_in_shell("list").stdout.splitlines() if running.job_id[:15] in line]
    short, *rest = mine.split()
    assert rest[:2] == ["talker", "running"]
    assert running.job_id.startswith(short)
    assert len(running.job_id) == len("talker-") + 32
    assert running.job_id in run("status", short).stdout
    assert running.job_id in run("status", short.removeprefix("talker-")).stdout
    (listed,) = [job for job in json.loads(run("list", "--json").stdout) if job["job_id"] == running.job_id]
    assert (listed["name"], listed["status"]) == ("talker", "running")

    status: dict[str, Any] = json.loads(run("status", "talker", "--json").stdout)
    assert status["statistics"]["operators"]["out"]["records_in"] >= 1_000
    operators = [o for vertex in status["graph"]["vertices"] for o in vertex["operators"]]
    assert [o["id"] for o in operators if o["is_sink"]] == ["out"]
    assert {s["vertex"] for s in status["subtasks"] if s["process"] is not None} == {"numbers", "largest"}
    assert sum(s["statistics"]["operators"]["out"]["records_in"] for s in status["subtasks"][:2]) >= 1_000
    assert status["checkpoint_history"][0]["status"] == "completed"
    text = run("status", running.job_id[:-4]).stdout
    for expected in (running.job_id, "created -> deploying", "reduce(larger)", "completed, 0 failed"):
        assert expected in text

    assert "deletes its checkpoints, and it has no savepoint" in error_of("cancel", running.job_id)
    assert running.status() is JobStatus.RUNNING
    ended = run("cancel", running.job_id, "--yes")
    assert ended.stdout.splitlines() == [
        f"job {running.job_id}: cancelled",
        "kept: nothing",
        "deleted: its checkpoints, by keep_after='failure'",
    ]
    assert running.status() is JobStatus.CANCELLED
    assert "had already ended: cancelled" in run("cancel", running.job_id).stdout
    assert "cancelled" in run("status", running.job_id).stdout


def lines_of(*given: str) -> list[str]:
    return run("logs", *given).stdout.splitlines()


def texts(lines: list[str], vertex: str) -> set[str]:
    pattern = re.compile(rf"\d\d:\d\d:\d\d\.\d\d\d {vertex}\[[01]\] \| (.*)")
    return {match[1] for line in lines if (match := pattern.fullmatch(line))}


@pytest.fixture(scope="module")
def ended(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> RayJobHandle:
    """A job that has ended, and whose JobMaster is gone."""
    job = submit(talking_job(tmp_path_factory.mktemp("ended"), 3_000, 5_000.0, name="ended"))
    finish(job)
    return job


def test_prints_and_logs_of_all_subtasks_are_read_after_the_job_has_ended(ended: RayJobHandle) -> None:
    lines = lines_of(ended.job_id)

    expected = {f"printed {n}" for n in range(0, 3_000, 297)}
    expected |= {f"complained {n}" for n in range(99, 3_000, 297)}
    expected |= {f"INFO users.own: informed {n}" for n in range(198, 3_000, 297)}
    assert expected <= texts(lines, "numbers")
    assert {line.split()[1] for line in lines if "printed" in line} == {"numbers[0]", "numbers[1]"}
    assert {f"largest {n}" for n in range(2_993, 3_000)} <= texts(lines, "largest")
    times = [line[:12] for line in lines]
    assert times == sorted(times)


@pytest.mark.long
def test_lines_that_no_process_of_the_job_wrote_are_left_out(ended: RayJobHandle) -> None:
    """A file of a stranger's, lines behind the job's own, and a pipe without a writer."""
    folder, forged = logs_folder(), "2026-01-01T00:00:00.000000Z log 0011223344556677 ERROR forged\n"
    own = next(folder.glob(log_file_pattern(ended.job_id)))
    header = own.read_bytes().split(b"\n", 1)[0]
    strange = folder / log_file_name(ended.job_id, JOB_MASTER, None, "stranger")
    strange.write_bytes(header.replace(json.loads(header)["incarnation"].encode(), b"stranger") + b"\n")
    pipe = folder / log_file_name(ended.job_id, "numbers", 0, "pipe")
    os.mkfifo(pipe)
    before = own.read_bytes()
    try:
        for path in (own, strange):
            with path.open("a") as file:
                file.write(forged)
        done = run_here("logs", ended.job_id)
    finally:
        own.write_bytes(before)
        strange.unlink()
        pipe.unlink()
    assert "forged" not in done.stdout
    assert "printed 0" in done.stdout
    assert "lines skipped, because no process of the job wrote them: 2" in done.stderr


def test_lines_are_chosen_by_operator_subtask_and_number(ended: RayJobHandle) -> None:
    by_operator = lines_of(ended.job_id, "--operator", "tell")
    assert by_operator
    assert all(line.split()[1].startswith("largest[") for line in by_operator)
    by_subtask = lines_of(ended.job_id, "--operator", "talk", "--subtask", "1")
    assert by_subtask
    assert all(line.split()[1] == "numbers[1]" for line in by_subtask)
    assert lines_of(ended.job_id, "--operator", "tell", "--tail", "3") == by_operator[-3:]
    message = error_of("logs", ended.job_id, "--operator", "nobody")
    assert "no operator 'nobody'; it has: numbers, talk, largest, tell, out, and job-master" in message


@pytest.mark.long
def test_what_a_killed_process_said_before_it_died_is_still_read(running: RayJobHandle) -> None:
    eventually("a print", lambda: any("printed" in line.text for line in running.logs(operator="talk")))
    before = {
        (line.text, line.subtask) for line in running.logs(operator="talk", subtask=0) if line.stream == "out"
    }
    kill_subtask(running, "numbers", 0)
    eventually("a restart", lambda: running.statistics().restarts >= 1)

    after = {(line.text, line.subtask) for line in running.logs(operator="talk", subtask=0)}

    assert before
    assert before <= after


@pytest.mark.long
def test_following_a_log_ends_with_the_job(tmp_path: Path) -> None:
    job = submit(talking_job(tmp_path, 6_000, 2_000.0, name="followed"))
    when_records_flow(job, "out", 100)
    follow = subprocess.Popen(
        arguments("logs", job.job_id, "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    finish(job)
    out, _ = follow.communicate(timeout=PATIENCE)
    assert follow.returncode == 0
    printed = [line.rpartition("| ")[2] for line in out.splitlines() if "printed" in line]
    assert sorted(printed) == sorted(f"printed {n}" for n in range(0, 6_000, 297))


def test_a_job_that_fails_shows_its_cause_and_its_way(tmp_path: Path) -> None:
    env = talking_job(tmp_path, 100, 1_000.0, name="failing", restarts=1)
    job = submit_failing(env)

    text = run("status", job.job_id).stdout

    assert "failed because of" in text
    assert "operator 'explode' (subtask" in text
    assert "ZeroDivisionError" in text
    assert "running -> restarting: the region of zeros[" in text, "the rest of the job goes on"
    assert "restarting -> failing" in text
    assert "2 (restarts: 1)" in text


def submit_failing(env: StreamEnvironment) -> RayJobHandle:
    env.from_collection("zeros", [0, 0]).map(lambda n: 1 // n, id="explode").sink("none", DiscardSink())
    job = submit(env)
    eventually("the end", lambda: job.status().is_terminal)
    assert job.status() is JobStatus.FAILED
    return job


@pytest.mark.parametrize("command", ["cancel", "logs", "savepoint", "stop", "checkpoints"])
def test_a_job_that_nobody_knows_is_one_clear_line(command: str) -> None:
    assert "this cluster knows no job 'nobody'" in error_of(command, "nobody")


@pytest.mark.long
def test_a_job_that_nobody_knows_is_one_clear_line_in_a_shell() -> None:
    assert "this cluster knows no job 'nobody'" in the_line_of(run_in_shell("status", "nobody", code=1))


@pytest.mark.long
def test_a_name_of_several_jobs_is_not_guessed() -> None:
    jobs = []
    for _ in range(2):
        env = StreamEnvironment("twins")
        env.from_collection("numbers", [1]).sink("out", DiscardSink())
        jobs.append(submit(env))
    for job in jobs:
        finish(job)
    message = error_of("status", "twins")
    assert "any of 2 jobs" in message
    assert all(job.job_id[: len("twins-") + 8] in message for job in jobs)


PROGRAM = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from jobs.words import lines, paced_lines, word_count

handle = word_count(Path(sys.argv[2]), paced_lines(3_000, 3_000.0), parallelism=1).submit()
print(handle.wait(120).status.value)
"""


def test_a_job_is_saved_rescaled_stopped_and_started_again_from_another_shell(tmp_path: Path) -> None:
    source = paced_lines(3_000, 3_000.0, attempt=NEVER)
    job = submit(word_count(tmp_path, source, parallelism=2))
    when_records_flow(job, "count", 300)

    assert run("checkpoint", job.job_id).stdout.startswith("checkpoint ")
    taken = json.loads(run("checkpoint", job.job_id, "--full", "--timeout", "60", "--json").stdout)
    assert taken["path"] == f"{tmp_path / 'checkpoints'}/{job.job_id}/chk-{taken['checkpoint_id']}-1"
    assert taken["size"] > 0 < taken["duration"]
    first = json.loads(run("savepoint", job.job_id, "--json").stdout)
    assert first["job_id"] == job.job_id
    assert first["savepoint"].startswith(f"{tmp_path / 'checkpoints'}/{job.job_id}/savepoint-")
    rescaled = json.loads(run("rescale", job.job_id, "count=3", "--json").stdout)
    assert rescaled["parallelism"] == {"count": 3}
    assert rescaled["seconds"] > 0
    assert {o.id: o.parallelism for o in job.report().operators}["count"] == 3
    assert "no operator 'cuont'" in error_of("rescale", job.job_id, "cuont=3")
    told = json.loads(run("checkpoints", job.job_id, "--json").stdout)
    assert "savepoint" in [each["kind"] for each in told]
    newest = [each for each in told if each["status"] == "completed"][-1]
    assert {s["vertex"] for s in newest["by_subtask"]} == {"lines", "count"}
    assert "alignment" in run("checkpoints", job.job_id).stdout
    stopped = json.loads(run_in_shell("stop", job.job_id, str(tmp_path / "saved"), "--json").stdout)
    path = stopped["savepoint"]
    assert stopped == {
        "job_id": job.job_id,
        "savepoint": path,
        "drained": False,
        "kept": f"the savepoint {path}, and 1 earlier savepoint, which `penstock checkpoints` lists",
        "deleted": "its checkpoints, by keep_after='failure'",
        "command": f"penstock restore {path} python PROGRAM",
    }
    assert job.status() is JobStatus.FINISHED
    result = job.wait()
    assert result.snapshot == path
    assert f"to continue: penstock restore {path} python PROGRAM" in str(result)
    assert result.records_in > 0 < result.records_out

    (tmp_path / "program.py").write_text(PROGRAM)
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [*COMMAND, "restore", path, sys.executable, str(tmp_path / "program.py"), here, str(tmp_path)],
        env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "finished"), done.stderr
    assert_exactly_once(tmp_path / "out", lines(3_000))
