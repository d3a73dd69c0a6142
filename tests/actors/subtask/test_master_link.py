"""Reports of a subtask to a JobMaster that is unreachable, is dead, or raises an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from unsteady import DEAD, Unsteady

from penstock.actors.shared.system_ports import TASKS
from penstock.actors.subtask.gateway import MasterLink
from penstock.runtime.execution.role import Role
from penstock.runtime.job.job_state import Declined, SubtaskReport
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.ids import SubtaskId

ROLE = Role("job", SubtaskId("count", 0), 2, "token")


def report(checkpoint_id: int) -> SubtaskReport:
    return Declined(ROLE.subtask, checkpoint_id, CheckpointFailureReason.CHECKPOINT_DECLINED, "why not")


class Master:
    """Keeps its messages, or raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[tuple[Role, SubtaskReport]] = []
        self._error = error

    def report(self, role: Role, report: SubtaskReport) -> None:
        if self._error is not None:
            raise self._error
        self.told.append((role, report))


def sent(
    master: Unsteady, reports: list[SubtaskReport], act: Callable[[MasterLink], None] | None = None
) -> None:
    """Send reports, and wait until all calls have ended."""

    async def scenario() -> None:
        link = MasterLink(asyncio.get_running_loop(), cast("Any", master), ROLE, lambda channel, number: None)
        for each in reports:
            link.report(each)
        await asyncio.sleep(0)  # they begin
        if act is not None:
            act(link)
        while TASKS:
            await asyncio.wait(set(TASKS))

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_report_that_is_lost_while_the_job_master_lives_is_sent_until_it_arrives() -> None:
    master = Master()
    sent(Unsteady(master, {"report": 2}), [report(1), report(2)])
    assert sorted(told.checkpoint_id for _, told in cast("Any", master.told)) == [1, 2]
    assert {role for role, _ in master.told} == {ROLE}


def test_no_report_is_repeated_when_the_attempt_is_over() -> None:
    unsteady = Unsteady(Master(), {"report": 1_000})
    sent(unsteady, [report(1)], MasterLink.close)
    assert len(unsteady.calls) == 1


def test_a_dead_job_master_is_told_nothing_again(caplog: pytest.LogCaptureFixture) -> None:
    """The next JobMaster requests what it needs."""
    unsteady = Unsteady(Master(), {"report": 1}, error=DEAD)
    sent(unsteady, [report(1)])
    assert len(unsteady.calls) == 1
    assert "the JobMaster has died, so a report was not delivered" in caplog.text


def test_a_report_over_which_the_job_master_fails_is_named_and_not_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unsteady = Unsteady(Master(), {"report": 1}, error=ValueError("a bug of the JobMaster"))
    sent(unsteady, [report(1)])
    assert len(unsteady.calls) == 1
    assert "the JobMaster could not process a Declined" in caplog.text
    assert "a bug of the JobMaster" in caplog.text
