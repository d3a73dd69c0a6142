"""A process of JobMasters whose decision fails dies: otherwise it would neither run a job nor leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.actors.master.cluster_calls import ClusterCalls
from penstock.actors.master.master_process import MasterProcess
from penstock.actors.shared.system_ports import TASKS


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[[], MasterProcess], list[str]]:
    """Makes a process in the running loop, without Ray; and the reasons of its deaths."""
    deaths: list[str] = []
    monkeypatch.setattr(MasterProcess, "die", lambda self, why: deaths.append(why))

    def make() -> MasterProcess:
        made = object.__new__(MasterProcess)
        made._loop, made._cluster = asyncio.get_running_loop(), ClusterCalls()
        return made

    return make, deaths


def test_a_process_that_can_not_begin_the_job_that_it_has_accepted_dies(
    process: tuple[Callable[[], MasterProcess], list[str]],
) -> None:
    make, deaths = process

    def begin(is_accepted: bool | None) -> None:
        assert is_accepted
        raise OSError(28, "No space left on device")  # as from the file of its log lines

    async def scenario() -> None:
        made = make()
        made._ask("accept job words-1", lambda: True, 10.0, begin)
        await asyncio.gather(*TASKS)

    asyncio.run(scenario())
    assert deaths == ["it can't begin, end or take a job"]


def test_a_call_to_the_cluster_that_fails_has_no_answer(
    process: tuple[Callable[[], MasterProcess], list[str]],
) -> None:
    make, deaths = process
    answers: list[int | None] = []

    def fail() -> int:
        raise ConnectionError

    async def scenario() -> None:
        made = make()
        made._ask("count warm JobMasters", fail, 10.0, answers.append)
        await asyncio.gather(*TASKS)

    asyncio.run(scenario())
    assert (answers, deaths) == ([None], [])
