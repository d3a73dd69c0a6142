"""Calls to actors with a deadline for the answer, and repetition of calls without an answer.

Ray raises `ActorUnavailableError` for an actor that may soon be reachable again, and another `RayActorError`
for a dead actor. `RetryDeadline` decides when a call is made again. A call may reach the actor more than
once, so it must be idempotent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent import futures
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypeVar

import ray

from penstock.runtime.error_text import cause_text, message_of
from penstock.runtime.errors import PenstockError
from penstock.runtime.execution.deadlines import BETWEEN_CALLS, RetryDeadline

#: Deadline in seconds for an answer that the actor gives without waiting.
ANSWER: Final = 60.0


class NoAnswerError(PenstockError, TimeoutError):
    """An actor that is not known to be dead did not answer in time; the message says what to check."""


def answer_of(call: Any, who: str, seconds: float = ANSWER) -> Any:
    """Wait for the answer of a call; raises `NoAnswerError` after `seconds`, and Ray's errors."""
    try:
        return ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise no_answer(who, seconds) from error


def no_answer(who: str, seconds: float) -> NoAnswerError:
    return NoAnswerError(
        f"{who}: no answer for {seconds:g} s, and Ray has not reported its death. Its node may be overloaded "
        "or out of memory (`ray status`, `ray list nodes`), or it may be stuck (`ray stack`)"
    )


def ray_text(error: BaseException) -> str:
    """The whole message of an error of Ray in one paragraph; an error in a method gives that error's text.

    Leaves out indented lines: they hold ids of the actor, which Penstock's own messages already name.
    """
    if isinstance(error, ray.exceptions.RayTaskError):
        return cause_text(error.cause)
    lines = (line.strip() for line in message_of(error).splitlines() if not line.startswith("\t"))
    return " ".join(filter(None, lines)) or type(error).__name__


T = TypeVar("T")

#: Seconds for which a call that failed with this error is repeated; `None` to raise the error.
Patience: TypeAlias = Callable[[BaseException], float | None]


def while_unavailable(seconds: float = inf) -> Patience:
    """Repeat a call for up to `seconds` while Ray can't reach the actor; other errors are raised."""

    def patience(error: BaseException) -> float | None:
        return seconds if isinstance(error, ray.exceptions.ActorUnavailableError) else None

    return patience


class RepeatedCall(Generic[T]):
    """Makes a call, and repeats it while its actor is unreachable. Its owner may poll, block on or await it.

    Args:
        make: Makes the idempotent call; returns its object reference.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        who: str,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
        absence: RetryDeadline | None = None,
    ) -> None:
        self._make = make
        self._who = who
        self._patience = patience or while_unavailable()
        self._clock = clock
        self._absence = absence or RetryDeadline(BETWEEN_CALLS)
        self._again_at: float | None = None
        self._is_settled = False
        self._gave_up_after: float | None = None
        self._asked_at = 0.0
        self._future: futures.Future[T] = futures.Future()
        self._call()

    @property
    def gave_up(self) -> bool:
        return self._gave_up_after is not None

    @property
    def error(self) -> BaseException | None:
        return self._future.exception() if self._future.done() else None

    def is_done(self) -> bool:
        """Return whether the call has ended, even with an error; repeats it when due. Never waits."""
        if self._is_settled:
            return True
        if not self._future.done():
            return False
        if self._again_at is None:
            self._settle_or_plan()
        elif self._clock() >= self._again_at:
            self._call()
        return self._is_settled

    def wait(self, seconds: float | None) -> bool:
        """Wait up to `seconds` (`None`: for ever) for the call's end, and return whether it has ended."""
        deadline = inf if seconds is None else self._clock() + seconds
        while not self.is_done():
            left = deadline - self._clock()
            if left <= 0:
                return False
            if self._again_at is not None:
                time.sleep(max(0.0, min(left, self._again_at - self._clock())))
            else:
                futures.wait([self._future], None if left == inf else left)
        return True

    async def awaited(self) -> T:
        """Wait for the result on an event loop; raises as `result` does."""
        while not self.is_done():
            if self._again_at is not None:
                await asyncio.sleep(max(0.0, self._again_at - self._clock()))
            else:
                answer = asyncio.wrap_future(self._future)
                await asyncio.wait([answer])
                answer.exception()  # or asyncio reports it as never retrieved; `is_done` handles it
        return self.result()

    def result(self) -> T:
        """Return the answer of a finished call.

        Raises:
            NoAnswerError: Ray could not reach the actor for too long.
            ray.exceptions.RayActorError: The actor is dead.
            Exception: The call raised an error in the actor.
        """
        if self._gave_up_after is not None:
            msg = (
                f"{self._who}: Ray could not reach it for {self._gave_up_after:g} s, and has not reported "
                "its death. Check its node and the network (`ray status`, `ray list nodes`)"
            )
            raise NoAnswerError(msg) from self._future.exception()
        return self._future.result()

    def answer(self, seconds: float = ANSWER) -> T:
        """Wait for the answer; raises as `result` does, and `NoAnswerError` after `seconds`."""
        if not self.wait(seconds):
            raise no_answer(self._who, seconds)
        return self.result()

    def _call(self) -> None:
        self._again_at, self._asked_at = None, self._clock()
        try:
            self._future = self._make().future()
        except Exception as error:  # the actor was not found
            self._future = futures.Future()
            self._future.set_exception(error)

    def _settle_or_plan(self) -> None:
        error = self._future.exception()
        patience = None if error is None else self._patience(error)
        if patience is None:
            self._is_settled = True
            return
        now = self._clock()
        pause = self._absence.failed(self._asked_at, now, patience)
        if pause is None:
            self._is_settled, self._gave_up_after = True, patience
        else:
            self._again_at = now + pause
