"""The receiving end of remote channels: deliver calls that wait until their elements are consumed.

The return of a `deliver` call is the sender's credit, so each call waits here until the task thread has
consumed everything below its last number. Calls live on the actor's event loop; the task thread reports
from its own.
"""

from __future__ import annotations

import asyncio
import heapq
from enum import Enum
from itertools import count


class DeliveryAnswer(Enum):
    """What a sender learns from a `deliver` call; its value is what travels, as Ray would pickle a member.

    Attributes:
        CONSUMED: Everything was consumed: the credits are back.
        STALE: The receiver has moved on to a newer attempt: stop sending.
        NOT_YET: The receiver has not been deployed for this attempt: send again a little later.
    """

    CONSUMED = 0
    STALE = 1
    NOT_YET = 2


class Deliveries:
    """Waiting deliver calls of one attempt, by channel; used on the event loop only, except `consumed`.

    Args:
        loop: The actor's event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, list[tuple[int, int, asyncio.Future[DeliveryAnswer]]]] = {}
        self._consumed: dict[int, int] = {}
        self._order = count()
        self._closed_with: DeliveryAnswer | None = None

    def wait(self, channel: int, next_sequence_number: int) -> asyncio.Future[DeliveryAnswer]:
        """A future that is done when everything below this number is consumed."""
        future: asyncio.Future[DeliveryAnswer] = self._loop.create_future()
        if self._closed_with is not None:
            future.set_result(self._closed_with)
        elif self._consumed.get(channel, 0) >= next_sequence_number:
            future.set_result(DeliveryAnswer.CONSUMED)
        else:
            entry = (next_sequence_number, next(self._order), future)
            heapq.heappush(self._waiting.setdefault(channel, []), entry)
        return future

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        """Everything below this number is consumed; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._answer, channel, next_sequence_number)

    def close(self, answer: DeliveryAnswer) -> None:
        """Answer every call, now and from now on, the same way."""
        self._closed_with = answer
        for waiting in self._waiting.values():
            for _, _, future in waiting:
                if not future.done():
                    future.set_result(answer)
        self._waiting.clear()

    def _answer(self, channel: int, next_sequence_number: int) -> None:
        if next_sequence_number <= self._consumed.get(channel, 0):
            return
        self._consumed[channel] = next_sequence_number
        waiting = self._waiting.get(channel)
        while waiting and waiting[0][0] <= next_sequence_number:
            future = heapq.heappop(waiting)[2]
            if not future.done():
                future.set_result(DeliveryAnswer.CONSUMED)
