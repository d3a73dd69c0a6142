"""Committed rows in the program that submitted the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
from jobs.driving import PATIENCE, after_checkpoints, eventually, finish, kill_subtask, submit
from jobs.talking import talking_job

from penstock import CollectSink, GeneratorSource, JobFailedError, StreamEnvironment
from penstock.actors.client import collect
from penstock.actors.client.collect import RayCollector
from penstock.actors.shared.actor_calls import NoAnswerError
from penstock.runtime.errors import GraphError, PenstockError
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector

pytestmark = pytest.mark.usefixtures("ray_cluster")


class Point(NamedTuple):
    x: int
    y: str


def point(i: int) -> Point:
    return Point(i, str(i))


def test_rows_come_back_equal_and_of_their_type() -> None:
    results = RayCollector()
    env = StreamEnvironment("points", parallelism=2)
    env.from_source("in", GeneratorSource(point, count=100)).sink("results", CollectSink(results))
    env.run(progress=False)
    assert sorted(results.rows()) == [point(i) for i in range(100)]
    assert {type(row) for row in results} == {Point}


def test_nothing_is_seen_before_it_is_committed_and_nothing_twice_after_a_kill(tmp_path: Path) -> None:
    results = RayCollector()
    job = submit(talking_job(tmp_path, 4_500, 3_000.0, sink=CollectSink(results), attempt=2))
    after_checkpoints(job, 2)
    committed = results.rows()
    kill_subtask(job, "largest", 1)
    result = finish(job)
    rows = results.rows()
    assert result.statistics.restarts == 1
    assert rows[: len(committed)] == committed, "what was once seen stays as it was"
    # In order, each number would be the largest so far of its remainder. But subtasks of the source overtake
    # each other, so only the number of rows is known.
    assert len(rows) == 4_500
    assert Counter(row % 7 for row in rows) == Counter(n % 7 for n in range(4_500))
    assert max(rows) == 4_499


@pytest.mark.long
def test_several_sinks_and_jobs_may_share_a_collector() -> None:
    results = RayCollector()
    for start in (0, 100):
        env = StreamEnvironment("shared")
        numbers = env.from_collection("in", range(start, start + 3))
        numbers.sink("plain", CollectSink(results))
        numbers.map(str).sink("text", CollectSink(results))
        env.run(progress=False)
    expected = [n for start in (0, 100) for n in range(start, start + 3)]
    assert sorted(row for row in results.rows() if isinstance(row, int)) == expected
    assert sorted(row for row in results.rows() if isinstance(row, str)) == sorted(map(str, expected))


@pytest.mark.long
def test_a_closed_collector_fails_the_job_that_commits_to_it() -> None:
    with RayCollector() as results:
        pass
    with pytest.raises(PenstockError, match="the collector of this sink"):
        results.rows()
    env = StreamEnvironment("closed")
    env.from_collection("in", [1]).sink("results", CollectSink(results))
    with pytest.raises(JobFailedError, match=r"operator 'results'.*this sink .* is gone"):
        env.run(progress=False, timeout=PATIENCE)


@pytest.mark.long
def test_a_collector_whose_process_is_frozen_is_not_called_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "_TIMEOUT", 1.0)
    with RayCollector() as results:
        actor: Any = results._actor
        process = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
        os.kill(process, signal.SIGSTOP)
        try:
            for call in (results.rows, lambda: results.add(("j", "out", 0, 1, 0), [1])):
                with pytest.raises(NoAnswerError, match=r"the collector of this sink .*: no answer for 1 s"):
                    call()
        finally:
            os.kill(process, signal.SIGCONT)


def test_a_collector_of_one_process_is_refused_before_the_job_starts() -> None:
    env = StreamEnvironment("wrong")
    env.from_collection("in", [1]).sink("results", CollectSink(InMemoryCollector()))
    with pytest.raises(GraphError, match=r"operator 'results'.*RayCollector"):
        env.submit()


PROGRAM = """
import sys
import time
from pathlib import Path
from penstock.actors.client.collect import RayCollector
from penstock import CollectSink, GeneratorSource, StreamEnvironment

go = sys.argv[1]

def held(number):
    while not Path(go).exists():
        time.sleep(0.02)
    return number

results = RayCollector()
env = StreamEnvironment("orphan")
env.from_source("in", GeneratorSource(held, count=10)).sink("results", CollectSink(results))
print(env.submit().job_id)
"""


@pytest.mark.long
def test_a_job_that_outlives_the_program_with_its_collector_says_so(tmp_path: Path) -> None:
    from penstock import job as find_job

    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {
        **os.environ,
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
    }
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "go")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    (tmp_path / "go").touch()
    job = find_job(done.stdout.split()[-1])
    eventually("the end", lambda: job.status().is_terminal)
    with pytest.raises(JobFailedError, match="the program that made it has ended"):
        job.wait()
