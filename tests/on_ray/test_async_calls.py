"""Asynchronous calls of real services, from real processes: everything that can die does."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from jobs.async_service import Asks, AsksServe, Service
from jobs.driving import (
    after_checkpoints,
    eventually,
    failure_of,
    finish,
    kill_subtask,
    submit,
    wait_until,
)
from jobs.oracle import committed_rows
from jobs.words import environment, lines, paced_lines

from penstock import FileSink, NoRestart, Retry

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 3_000, 1_000.0

#: Tries for as long as a killed service or replica needs to come back.
PATIENT = Retry(attempts=1_000, delay=0.05, max_delay=0.2)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    service.start()
    yield service
    service.kill()


def answers(count: int) -> list[str]:
    return sorted(lines(count))


@pytest.mark.parametrize("ordered", [True, pytest.param(False, marks=pytest.mark.long)])
def test_calls_of_a_real_server_are_answered_once_though_processes_die(
    tmp_path: Path, service: Service, ordered: bool
) -> None:
    """The subtask with calls in flight is killed, the service too, and the subtask again."""
    env = environment(tmp_path, unaligned=ordered)
    source = env.from_source("lines", paced_lines(COUNT, RATE, attempt=3), parallelism=1)
    settings: Any = {"capacity": 64, "retry": PATIENT, "ordered": ordered}
    asked = source.rebalance().map_async(
        Asks, fn_constructor_args=(service.port,), id="asked", parallelism=2, **settings
    )
    asked.sink("answers", FileSink.json(str(tmp_path / "out")), parallelism=1, disable_chaining=True)
    job = submit(env)
    after_checkpoints(job, 1)
    before = kill_subtask(job, "asked")
    report = wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2)
    after_checkpoints(job, report.statistics.completed_checkpoints + 1)
    service.kill()
    service.start()
    kill_subtask(job, "asked", 1)
    result = finish(job)
    assert before
    assert result.statistics.restarts == 2
    rows = committed_rows(tmp_path / "out")
    assert sorted(row["line"] for row in rows) == answers(COUNT)
    requests = service.requests()
    assert len(requests) > COUNT, "some were asked twice"
    of_key = dict(requests)
    assert all(of_key[key] == question for key, question in requests), "a key belongs to one question"
    again = sum(count - 1 for count in Counter(key for key, _ in requests).values())
    assert again, "what was in flight came again with its key"


@pytest.mark.long
def test_five_thousand_calls_of_one_subtask_wait_at_once_over_as_many_connections(tmp_path: Path) -> None:
    """The service answers no request before all 5,000 wait."""
    count = 5_000
    service = Service(tmp_path, together=count)
    service.start()
    try:
        env = environment(tmp_path)
        source = env.from_source("lines", paced_lines(count, 1e6), parallelism=1)
        settings: Any = {"capacity": count, "timeout": 240.0, "parallelism": 1}
        asked = source.map_async(Asks, fn_constructor_args=(service.port,), id="asked", **settings)
        assert sorted(row["line"] for row in asked.collect(timeout=240)) == answers(count)
    finally:
        service.kill()


def test_coroutine_that_blocks_its_loop_fails_the_job_with_its_line(tmp_path: Path) -> None:
    async def sleeps(line: str) -> str:
        time.sleep(60)
        return line

    env = environment(tmp_path, restart=NoRestart())
    source = env.from_source("lines", paced_lines(10, RATE), parallelism=1)
    source.map_async(sleeps, id="asked").sink("answers", FileSink.json(str(tmp_path / "out")))
    said = failure_of(submit(env))
    assert "operator 'asked'" in said
    assert "a coroutine has blocked the event loop for 5.0 seconds, at " in said
    assert "test_async_calls.py:" in said
    assert "in sleeps" in said


class OpensSlowly:
    """Blocks in `open`, as the import of a large library or a model does."""

    async def open(self, context: Any) -> None:
        time.sleep(7)

    async def __call__(self, line: str) -> int:
        return len(line)


@pytest.mark.long
def test_open_may_block_the_loop_because_no_call_waits_yet(tmp_path: Path) -> None:
    env = environment(tmp_path, restart=NoRestart())
    source = env.from_source("lines", paced_lines(10, RATE), parallelism=1)
    asked = source.map_async(OpensSlowly, id="asked")
    assert sorted(asked.collect(timeout=120)) == sorted(map(len, lines(10)))


@ray.remote(num_cpus=0)
class Length:
    def of(self, line: str) -> int:
        return len(line)


@pytest.mark.long
def test_object_refs_of_ray_are_awaited(tmp_path: Path) -> None:
    actor = Length.remote()
    env = environment(tmp_path)
    source = env.from_source("lines", paced_lines(200, RATE), parallelism=1)
    asked = source.map_async(lambda line: actor.of.remote(line), id="asked", timeout=60)
    assert sorted(asked.collect(timeout=120)) == sorted(map(len, lines(200)))


# -- Ray Serve ----------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Iterator[str]:
    """An application of Ray Serve with two replicas; nothing listens for it, handles reach it."""
    serve = pytest.importorskip("ray.serve", reason='needs `pip install "ray[serve]"`')
    serve.start(proxy_location="Disabled")

    @serve.deployment(
        num_replicas=2,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=2,
        max_queued_requests=2,
        graceful_shutdown_timeout_s=1,
    )
    class Words:
        async def __call__(self, lines: list[str]) -> list[dict[str, Any]]:
            await asyncio.sleep(0.1)
            return [{"line": line, "words": len(line.split())} for line in lines]

    serve.run(Words.bind(), name="words", route_prefix=None)
    yield "words"
    serve.shutdown()


def replicas() -> set[str]:
    """Names of the replicas that live."""
    named = ray.util.list_named_actors(all_namespaces=True)
    return {each["name"] for each in named if each["name"].startswith("SERVE_REPLICA::words")}


@pytest.mark.long  # a server of its own dies in the first test
def test_calls_of_ray_serve_are_answered_once_though_a_replica_dies_and_back_pressure_is_met(
    tmp_path: Path, model: str
) -> None:
    """Ray Serve's back pressure refuses calls beyond its queue: they are tried again."""
    env = environment(tmp_path)
    source = env.from_source("lines", paced_lines(COUNT, RATE, attempt=2), parallelism=1)
    settings: Any = {"capacity": 32, "retry": PATIENT, "batch": 16, "linger": 0.01}
    asked = source.map_async(AsksServe, fn_constructor_args=(model,), id="asked", **settings)
    asked.sink("answers", FileSink.json(str(tmp_path / "out")), disable_chaining=True)
    job = submit(env)
    after_checkpoints(job, 1)
    before = replicas()
    assert len(before) == 2
    ray.kill(ray.get_actor(min(before), namespace="serve"), no_restart=True)
    eventually("a new replica", lambda: len(replicas() - {min(before)}) == 2)
    kill_subtask(job, "lines")
    result = finish(job)
    assert result.statistics.restarts == 1, job.report().history
    assert result.statistics.operators["asked"].extra["async_retries"] > 0
    rows = committed_rows(tmp_path / "out")
    assert sorted(row["line"] for row in rows) == answers(COUNT)
