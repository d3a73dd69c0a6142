"""A process of JobMasters runs one job at a time, and hands on only what concerns that one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from penstock.actors.master import master_process
from penstock.actors.master.master_process import MasterProcess
from penstock.actors.shared.registry import SubmittedJob
from penstock.runtime.execution.messages import ReachedEndOfData
from penstock.runtime.execution.role import Role
from penstock.runtime.snapshot.ids import SubtaskId

SUBTASK = SubtaskId("count", 0)


class Life:
    """The life of a job that goes on."""

    def __init__(self, job: SubmittedJob, *_: Any, **__: Any) -> None:
        self.job_id = job.job_id
        self.reports: list[tuple[Role, Any]] = []

    def report(self, *report: Any) -> None:
        self.reports.append(report)


def job(job_id: str) -> SubmittedJob:
    return SubmittedJob(job_id, "words", 1.0, (), "a token")


@pytest.fixture
def outside_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no cluster that knows the process."""
    context = SimpleNamespace(was_current_actor_reconstructed=False)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(master_process.registry, "set_master", lambda *_: None)
    monkeypatch.setattr(master_process, "log_key", lambda job_id: b"a key")
    monkeypatch.setattr(master_process, "JobLife", Life)


@pytest.mark.usefixtures("outside_of_ray")
def test_a_process_that_has_a_job_takes_no_other_one() -> None:
    async def scenario() -> None:
        process = MasterProcess("9f04", job("words-1"), ())
        running = process.life("words-1")
        assert not await process.take(job("words-2"))
        assert process.life("words-1") is running
        with pytest.raises(ValueError, match="this process is not the JobMaster of words-2"):
            process.life("words-2")

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.usefixtures("outside_of_ray")
def test_what_subtasks_of_another_job_report_is_dropped() -> None:
    async def scenario() -> None:
        process, report = MasterProcess("9f04", job("words-1"), ()), ReachedEndOfData(SUBTASK)
        for job_id in ("words-0", "words-1"):
            process.report(Role(job_id, SUBTASK, 1, "token"), report)
        life: Any = process.life("words-1")
        assert [role.job_id for role, _ in life.reports] == ["words-1"]

    asyncio.run(asyncio.wait_for(scenario(), 20))
