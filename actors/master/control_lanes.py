"""Control messages that must reach a subtask in their order.

Calls of an actor start in any order, so a message is sent when the one before it has been answered. Triggers
and the events of operator coordinators share a lane: an event that was sent behind a trigger must not reach
the source before it, or what it brings would be in two snapshots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from penstock.actors.shared.messages import SubtaskControl
from penstock.runtime.snapshot.subtask_id import SubtaskId

#: Sends one message and says whether it arrived.
SendControl: TypeAlias = Callable[[int, SubtaskId, SubtaskControl], Coroutine[Any, Any, bool]]


class ControlLanes:
    """One lane a subtask; everything runs on the JobMaster's event loop.

    Args:
        send: Sends one message.
        spawn: Runs a lane's work beside the loop.
    """

    def __init__(
        self, send: SendControl, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:
        self._send = send
        self._spawn = spawn
        self._last: dict[SubtaskId, asyncio.Task[None]] = {}
        self._numbers: dict[SubtaskId, int] = {}

    def next_number(self, subtask: SubtaskId) -> int:
        """The number of the next event for a subtask."""
        self._numbers[subtask] = self._numbers.get(subtask, 0) + 1
        return self._numbers[subtask]

    def put(
        self,
        attempt: int,
        subtask: SubtaskId,
        message: SubtaskControl,
        on_answer: Callable[[bool], None] | None = None,
    ) -> None:
        """Send a message when all before it were answered; `on_answer` is told whether it arrived."""
        self._last[subtask] = self._spawn(
            self._follow(self._last.get(subtask), attempt, subtask, message, on_answer)
        )

    async def _follow(
        self,
        previous: asyncio.Task[None] | None,
        attempt: int,
        subtask: SubtaskId,
        message: SubtaskControl,
        on_answer: Callable[[bool], None] | None,
    ) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        arrived = await self._send(attempt, subtask, message)
        if on_answer is not None:
            on_answer(arrived)
