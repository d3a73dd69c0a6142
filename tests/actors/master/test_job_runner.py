"""A job whose storage or cluster does not answer can be cancelled, looked at and ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import RayError
from ray.experimental import internal_kv

from penstock import Checkpointing, DiscardSink, GeneratorSource, JobStatus, StreamEnvironment
from penstock.actors.master import job_runner
from penstock.actors.master.cluster_calls import ClusterCalls, ClusterTimeoutError
from penstock.actors.master.job_master import JobMaster
from penstock.actors.master.job_runner import JobRunner
from penstock.actors.shared import system_ports
from penstock.actors.shared.archive import (
    forbid_jobs_of,
    is_to_be_cancelled,
    load_from_cluster,
    may_have_jobs,
)
from penstock.actors.shared.graph_shipping import pack_job
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.registry import SubmittedJob
from penstock.runtime.execution import job_lifecycle
from penstock.runtime.execution.job_lifecycle import Then
from penstock.runtime.execution.role import Role
from penstock.runtime.job.job_state import JobState, ReachedEndOfData
from penstock.runtime.snapshot.ids import SubtaskId

#: Seconds for anything that a test waits for.
PATIENCE = 30.0
SOON = 0.01


#: The calls of the current test.
CALLS: list[ClusterCalls] = []


class KeyValues:
    """The cluster's store, which answers unless it is switched off."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self.answers = threading.Event()
        self.answers.set()

    def internal_kv_get(self, key: bytes, namespace: bytes) -> bytes | None:
        assert self.answers.wait(PATIENCE)
        return self._values.get(key)

    def internal_kv_put(self, key: bytes, value: bytes, overwrite: bool, namespace: bytes) -> int:
        assert self.answers.wait(PATIENCE)
        self._values[key] = value
        return 0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyValues]:
    made = KeyValues()
    monkeypatch.setattr(internal_kv, "global_gcs_client", made)
    yield made
    made.answers.set()
    while CALLS:  # with the real store, a call that still waits would start a Ray cluster
        CALLS.pop().begin("be the last call", lambda: None).future.result(PATIENCE)


@pytest.fixture
def unreachable(tmp_path: Path) -> str:
    """A storage that can't be opened: nothing can be written below a file."""
    (tmp_path / "file").touch()
    return str(tmp_path / "file" / "checkpoints")


def runner_of_job(storage: str | None, came_back: bool) -> JobRunner:
    """A job with checkpoints in this storage, or without any."""
    checkpointing = None if storage is None else Checkpointing(every=1.0, storage=storage)
    env = StreamEnvironment(checkpointing=checkpointing)
    env.from_source("numbers", GeneratorSource(str)).sink("out", DiscardSink())
    chunks = tuple(pack_job(env.build(), env.config))
    job = SubmittedJob("words-1", "words", time.time(), chunks, ray_submission="raysubmit_1")

    def over(stays: bool, then: Then) -> None:
        then()

    def fenced() -> None:
        pytest.fail("nobody else is the JobMaster")

    CALLS.append(ClusterCalls())
    return JobRunner(job, came_back, CALLS[-1], on_over=over, on_fenced=fenced)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


async def ended(runner: JobRunner) -> JobReport:
    while not (report := await runner.wait_end(PATIENCE)).status.is_terminal:
        pass
    return report


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough tries at once, then pauses that no test outlasts.

    Outside of Ray there are no processes to take over.
    """

    async def no_processes(_: JobRunner) -> None:
        raise RayError

    monkeypatch.setattr(JobRunner, "_adopt", no_processes)
    monkeypatch.setattr(job_lifecycle, "_STORAGE_RETRIES", (0.0,) * 4 + (3_600.0,) * 20)


@pytest.mark.usefixtures("store", "long_pauses")
def test_a_job_is_cancelled_while_its_job_master_waits_for_a_storage_that_is_away(
    unreachable: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        runner = runner_of_job(unreachable, came_back=True)
        while caplog.text.count("can't be started yet") < 5:
            await asyncio.sleep(SOON)
        await runner.cancel()
        report = await ended(runner)
        assert report.status is JobStatus.CANCELLED
        assert "its end could not be recorded" in str(report.warnings)
        assert load_from_cluster("words-1") is not None
        assert is_to_be_cancelled("words-1")

    run(scenario)


@pytest.mark.usefixtures("store", "long_pauses")
def test_a_job_that_is_to_be_cancelled_waits_for_its_storage_for_a_short_while_only(unreachable: str) -> None:
    job_runner.remember_cancellation("words-1")

    async def scenario() -> None:
        report = await ended(runner_of_job(unreachable, came_back=True))
        assert report.status is JobStatus.CANCELLED

    run(scenario)


@pytest.mark.usefixtures("store", "long_pauses")
def test_a_job_of_a_program_that_an_upgrade_has_ended_is_cancelled(unreachable: str) -> None:
    forbid_jobs_of("raysubmit_1")
    assert may_have_jobs("raysubmit_2")
    assert may_have_jobs(""), "a program that Ray's Jobs API does not know"

    async def scenario() -> None:
        report = await ended(runner_of_job(unreachable, came_back=True))
        assert report.status is JobStatus.CANCELLED
        assert "an upgrade has ended its program raysubmit_1" in str(report.warnings)

    run(scenario)


@pytest.mark.usefixtures("store", "long_pauses")
def test_a_scheduler_that_fails_at_a_cancellation_ends_its_process(
    unreachable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at any other request: the state of the scheduler is unknown then."""
    exits: list[int] = []
    monkeypatch.setattr(system_ports.os, "_exit", exits.append)

    def fail() -> None:
        raise KeyError

    async def scenario() -> None:
        runner = runner_of_job(unreachable, came_back=True)
        scheduler = SimpleNamespace(cancel=fail, state=JobState.RUNNING)
        runner._life.scheduler = cast("Any", scheduler)
        await runner.cancel()
        assert exits == [1]
        runner._life.scheduler = None
        await ended(runner)

    run(scenario)


@pytest.mark.usefixtures("store", "long_pauses")
def test_a_message_of_a_subtask_of_another_job_is_not_handed_on(unreachable: str) -> None:
    """A process serves one job after the other, so its late messages may reach another job."""

    async def scenario() -> None:
        runner, reports = runner_of_job(unreachable, came_back=True), list[tuple[int, ReachedEndOfData]]()
        scheduler = SimpleNamespace(report=lambda *reported: reports.append(reported))
        runner._life.scheduler = cast("Any", scheduler)
        subtask = SubtaskId("numbers", 0)
        master = object.__new__(JobMaster)
        master._process = cast("Any", SimpleNamespace(runner=SimpleNamespace(current=runner)))
        for job_id in ("another-1", "words-1"):
            await master.report(Role(job_id, subtask, 2, "token"), ReachedEndOfData(subtask))
        assert reports == [(2, ReachedEndOfData(subtask))]
        runner._life.scheduler = None
        await runner.cancel()
        await ended(runner)

    run(scenario)


@pytest.mark.usefixtures("store", "long_pauses")
def test_a_cancelled_job_whose_modules_are_missing_ends_as_cancelled(
    unreachable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modules may be missing on the node where the JobMaster is restarted."""
    job_runner.remember_cancellation("words-1")

    def unpack(chunks: tuple[bytes, ...]) -> Any:
        raise ModuleNotFoundError("No module named 'words'")

    monkeypatch.setattr(job_runner, "unpack_job", unpack)

    async def scenario() -> None:
        report = await ended(runner_of_job(unreachable, came_back=True))
        assert report.status is JobStatus.CANCELLED

    run(scenario)


@pytest.mark.usefixtures("store")
def test_a_users_class_that_exits_while_the_scheduler_is_made_fails_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(*_: object, **__: object) -> Any:
        raise SystemExit(3)

    monkeypatch.setattr(job_runner, "assemble_scheduler", make)

    async def scenario() -> None:
        runner = runner_of_job(None, came_back=False)

        async def adopt() -> Any:
            runner._processes = runner._fleet = cast("Any", SimpleNamespace())
            return SimpleNamespace(leave=lambda then: then())

        monkeypatch.setattr(runner, "_adopt", adopt)
        report = await ended(runner)
        assert report.status is JobStatus.FAILED
        assert report.failure is not None
        assert "SystemExit" in report.failure.root.message

    run(scenario)


def test_a_job_without_a_log_whose_job_master_died_is_not_run_again(
    store: KeyValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's progress is unknown, so it would overwrite its own output."""

    async def scenario() -> None:
        runner = runner_of_job(None, came_back=True)
        taken_over = asyncio.Event()

        async def adopt() -> Any:
            taken_over.set()
            return SimpleNamespace(leave=lambda then: then())

        monkeypatch.setattr(runner, "_adopt", adopt)
        report = await ended(runner)
        assert taken_over.is_set(), "its processes are looked for, to be ended"
        assert report.status is JobStatus.FAILED
        assert report.failure is not None
        assert "its progress is unknown" in report.failure.root.message

    run(scenario)


@pytest.mark.usefixtures("store")
def test_a_new_job_whose_storage_can_not_be_reached_fails(unreachable: str) -> None:
    async def scenario() -> None:
        report = await ended(runner_of_job(unreachable, came_back=False))
        assert report.status is JobStatus.FAILED
        kept = load_from_cluster("words-1")
        assert kept is not None
        assert kept.status is JobStatus.FAILED

    run(scenario)


def test_a_cluster_that_does_not_answer_holds_up_neither_answers_nor_cancellations(
    store: KeyValues, unreachable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "_NOTING", SOON)
    store.answers.clear()

    async def scenario() -> None:
        runner = runner_of_job(unreachable, came_back=False)
        assert (await runner.status(fresh=True)).status is JobStatus.CREATED
        with pytest.raises(ClusterTimeoutError, match="record the cancellation of job words-1"):
            await runner.cancel()
        store.answers.set()
        await ended(runner)

    run(scenario)


def test_a_job_ends_though_the_cluster_does_not_answer(
    store: KeyValues, unreachable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "_LOOKING_UP", SOON)
    monkeypatch.setattr(job_runner, "_KEEPING", SOON)
    store.answers.clear()

    async def scenario() -> None:
        report = await ended(runner_of_job(unreachable, came_back=False))
        assert report.status is JobStatus.FAILED
        assert report.failure is not None
        assert "ClusterTimeoutError: can't look up" in report.failure.root.message
        assert store._values == {}

    run(scenario)
