"""A process of JobMasters runs one job at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from penstock.actors.master import master_process
from penstock.actors.master.master_process import MasterProcess
from penstock.actors.shared.registry import SubmittedJob


class Runner:
    """Runs a job that does not end."""

    def __init__(self, job: SubmittedJob, *_: Any, **__: Any) -> None:
        self.job_id = job.job_id


def job(job_id: str) -> SubmittedJob:
    return SubmittedJob(job_id, "words", 1.0, (), "a token")


@pytest.fixture
def outside_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no cluster that knows the process."""
    context = SimpleNamespace(was_current_actor_reconstructed=False)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(master_process.registry, "set_master", lambda *_: None)
    monkeypatch.setattr(master_process, "log_key", lambda job_id: b"a key")
    monkeypatch.setattr(master_process, "JobRunner", Runner)


@pytest.mark.usefixtures("outside_of_ray")
def test_a_process_that_has_a_job_takes_no_other_one() -> None:
    async def scenario() -> None:
        process = MasterProcess("9f04", job("words-1"), ())
        running = process.runner("words-1")
        assert not await process.take(job("words-2"))
        assert process.runner("words-1") is running
        with pytest.raises(ValueError, match="this process is not the JobMaster of words-2"):
            process.runner("words-2")

    asyncio.run(asyncio.wait_for(scenario(), 20))
