"""`RepeatedCall`: a call of an actor that is made again while Ray can't reach that actor.

Ray says two things of an actor that gives no answer. It died: that is final. Or it is unavailable, mostly
since a connection broke, and may be back in a moment: that says nothing about the actor, and not even whether
it has carried the call out. So only calls that do no harm twice are made in this way.

It can be looked at without waiting, and nothing waits inside of Ray: whoever waits does so in Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent import futures
from math import inf
from typing import Any, Final, Generic, TypeVar

import ray

from penstock.bridge.calls.answers import ANSWER, NoAnswerError, no_answer

T = TypeVar("T")

#: Seconds until a call is made again.
PAUSE: Final = 0.2


class RepeatedCall(Generic[T]):
    """Makes a call, and makes it again while its actor is unavailable.

    Args:
        make: Makes the call, which may reach the actor more than once.
        who: Who is asked, for messages.
        patience: Seconds without a connection after which `result` raises.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        who: str,
        patience: float = inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._who = who
        self._patience = patience
        self._clock = clock
        self._future: futures.Future[T] = make().future()
        self._unavailable_since: float | None = None
        self._again_at: float | None = None

    def is_done(self) -> bool:
        """Whether there is a result; makes the call again when it is time. Never waits."""
        if not self._future.done():
            return False
        if not isinstance(self._future.exception(), ray.exceptions.ActorUnavailableError):
            return True
        now = self._clock()
        if self._unavailable_since is None:
            self._unavailable_since = now
        if now - self._unavailable_since >= self._patience:
            return True
        if self._again_at is None:
            self._again_at = now + PAUSE
        elif now >= self._again_at:
            self._again_at = None
            self._future = self._make().future()
        return False

    def wait(self, seconds: float) -> bool:
        """Wait for a result, and say whether there is one."""
        deadline = self._clock() + seconds
        while not self.is_done():
            left = deadline - self._clock()
            if left <= 0:
                return False
            if self._future.done():  # it has failed, and is to be made again
                time.sleep(min(left, PAUSE))
            else:
                futures.wait([self._future], left)
        return True

    def result(self) -> T:
        """The answer of a call that is done.

        Raises:
            NoAnswerError: Ray could not reach the actor for too long.
            ray.exceptions.RayActorError: The actor is dead.
            Exception: What the actor has raised.
        """
        error = self._future.exception()
        if isinstance(error, ray.exceptions.ActorUnavailableError):
            msg = (
                f"{self._who}: Ray could not reach it for {self._patience:g} s, and does not say that it is "
                "dead. Look at its node and at the network (`ray status`, `ray list nodes`)"
            )
            raise NoAnswerError(msg) from error
        return self._future.result()

    def answer(self, seconds: float = ANSWER) -> T:
        """Wait for the answer.

        Raises:
            NoAnswerError: There is none within these seconds.
            ray.exceptions.RayActorError: The actor is dead.
            Exception: What the actor has raised.
        """
        if not self.wait(seconds):
            raise no_answer(self._who, seconds)
        return self.result()
