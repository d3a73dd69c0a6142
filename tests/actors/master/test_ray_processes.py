"""What Ray raises is a value for those who decide, and every call is answered, later and once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import ray

from penstock.actors.master.guarded_loop import GuardedLoop
from penstock.actors.master.ray_processes import RayProcesses, settled
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.execution.processes import Away, CallFailure, Died, Raised
from penstock.runtime.execution.role import Role
from penstock.runtime.snapshot.subtask_id import SubtaskId

ROLE = Role("job", SubtaskId("count", 0), 1, "token")


async def ending_with(outcome: object) -> object:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        ("an answer", "an answer"),
        (ray.exceptions.ActorUnavailableError("the connection broke", b"\0" * 16), Away()),
        (ray.exceptions.RayActorError(error_msg="killed\nby a test"), Died("killed")),
    ],
)
def test_what_ray_says_of_a_process_is_a_value(outcome: object, answer: object) -> None:
    assert asyncio.run(settled(ending_with(outcome))) == answer


def test_an_error_of_the_call_itself_says_whether_another_attempt_may_go_better() -> None:
    for error, recoverable in ((ValueError("wrong"), True), (CorruptSnapshotError("damaged"), False)):
        answer = asyncio.run(settled(ending_with(error)))
        assert isinstance(answer, Raised)
        assert str(error) in answer.cause.message
        assert answer.cause.recoverable is recoverable


class Method:
    def __init__(self, call: Callable[..., Awaitable[object]]) -> None:
        self.remote = call


class Handle:
    """An actor whose `stop` is given."""

    def __init__(self, stop: Callable[..., Awaitable[object]]) -> None:
        self.stop = Method(stop)


def stop(handle: Handle | None) -> list[object]:
    """What is heard of a stop, and whether anything was heard before the call had returned."""

    async def scenario() -> list[object]:
        processes = RayProcesses(
            "job", JobConfig(), cast("Any", None), GuardedLoop(asyncio.get_running_loop(), "job"), ()
        )
        if handle is not None:
            processes._handles["a"] = cast("Any", handle)
        heard: list[object] = []
        answered = asyncio.Event()

        def reply(answer: CallFailure | None) -> None:
            heard.append(answer)
            answered.set()

        processes.stop("a", ROLE, reply)
        assert heard == []
        await asyncio.wait_for(answered.wait(), 10)
        return heard

    return asyncio.run(scenario())


def test_a_call_is_answered_when_its_process_answers() -> None:
    assert stop(Handle(lambda role: ending_with(None))) == [None]


def test_a_call_of_a_process_that_was_ended_is_answered_as_one_of_a_dead_process() -> None:
    assert stop(None) == [Died("the JobMaster has ended it")]


def test_arguments_that_can_not_be_sent_are_an_answer_too() -> None:
    def refuse(role: Role) -> Awaitable[object]:
        raise TypeError("cannot pickle it")

    (answer,) = stop(Handle(refuse))
    assert isinstance(answer, Raised)
    assert "cannot pickle it" in answer.cause.message
