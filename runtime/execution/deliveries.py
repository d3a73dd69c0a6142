"""`Deliveries`: when a receiver answers the `deliver` calls of its senders, and with what.

A `deliver` call carries a frame of one channel. Its return is the sender's credit, so the call waits here
until the subtask has consumed everything below the call's last number. Calls come in any order, and more than
once when a connection broke. What was consumed is never handed to the subtask again by this class: it says of
each call whether its elements are still wanted.

A call of another role or of an older attempt never gets here (`RoleHolder`): it is answered `STALE`, which is
no credit. When the attempt ends, all calls are answered alike: as consumed when it has finished, because
nothing after the end is missing; else as stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import Enum
from itertools import count

from penstock.runtime.execution.processes import Away, Died


class DeliveryAnswer(Enum):
    """The receiver's answer to a `deliver` call; its value travels, because Ray would pickle a member.

    Attributes:
        CONSUMED: Everything was consumed: the credits are back.
        STALE: The receiver does not hold the role, or has moved on to a newer attempt: stop sending.
        NOT_YET: The receiver has not been deployed for this attempt: send again a little later.
    """

    CONSUMED = 0
    STALE = 1
    NOT_YET = 2


class SenderStep(Enum):
    """The sender's step after a `deliver` call.

    Attributes:
        SEND_AGAIN: The same elements with the same numbers, a little later; the receiver drops duplicates.
        END_CHANNEL: Nothing more is sent, and a sender that leaves does not wait for this receiver. It has
            finished, or the JobMaster sees its death itself.
    """

    TAKE_CREDIT = "take the credit"
    SEND_AGAIN = "send again"
    END_CHANNEL = "end the channel"


def step_after(answer: DeliveryAnswer | Died | Away) -> SenderStep:
    """The sender's step after a `deliver` call with this outcome.

    Example:
        >>> step_after(DeliveryAnswer.STALE), step_after(Away())
        (<SenderStep.END_CHANNEL: 'end the channel'>, <SenderStep.SEND_AGAIN: 'send again'>)
    """
    match answer:
        case DeliveryAnswer.CONSUMED:
            return SenderStep.TAKE_CREDIT
        case DeliveryAnswer.NOT_YET | Away():
            return SenderStep.SEND_AGAIN
        case DeliveryAnswer.STALE | Died():
            return SenderStep.END_CHANNEL


class Deliveries:
    """Waiting `deliver` calls of one attempt, by channel; single-threaded."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, int, Callable[[DeliveryAnswer], None]]]] = {}
        self._consumed: dict[int, int] = {}
        self._order = count()
        self._closed_with: DeliveryAnswer | None = None

    def wait(self, channel: int, next_sequence_number: int, answer: Callable[[DeliveryAnswer], None]) -> bool:
        """Answer when everything below this number is consumed; false if that happened at once."""
        if self._closed_with is not None:
            answer(self._closed_with)
        elif self._consumed.get(channel, 0) >= next_sequence_number:
            answer(DeliveryAnswer.CONSUMED)
        else:
            entry = (next_sequence_number, next(self._order), answer)
            heapq.heappush(self._waiting.setdefault(channel, []), entry)
            return True
        return False

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        if next_sequence_number <= self._consumed.get(channel, 0):
            return
        self._consumed[channel] = next_sequence_number
        waiting = self._waiting.get(channel)
        while waiting and waiting[0][0] <= next_sequence_number:
            heapq.heappop(waiting)[2](DeliveryAnswer.CONSUMED)

    def close(self, answer: DeliveryAnswer) -> None:
        """Answer every call, now and from now on, the same way."""
        self._closed_with = answer
        waiting, self._waiting = self._waiting, {}
        for calls in waiting.values():
            for _, _, tell in calls:
                tell(answer)
