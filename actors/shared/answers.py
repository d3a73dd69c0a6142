"""Waits for the answer of an actor; the error of a timeout names the actor."""

from __future__ import annotations

from typing import Any, Final

import ray

from penstock.runtime.errors import PenstockError

#: Seconds for an answer that needs no waiting.
ANSWER: Final = 60.0


class NoAnswerError(PenstockError, TimeoutError):
    """A living actor did not answer in time; the message names it, and where to look."""


def answer_of(call: Any, who: str, seconds: float = ANSWER) -> Any:
    """The answer of a call.

    Args:
        call: The reference that the actor's call returned.
        who: The actor and the question, for the message.
        seconds: Upper limit.

    Raises:
        NoAnswerError: It has taken longer.
        ray.exceptions.RayActorError: The actor is gone.
    """
    try:
        return ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise no_answer(who, seconds) from error


def no_answer(who: str, seconds: float) -> NoAnswerError:
    """The error for an actor that has not answered."""
    return NoAnswerError(
        f"{who}: no answer for {seconds:g} s, although the process lives. Its node is overloaded or out "
        "of memory (`ray status`, `ray list nodes`), or it is stuck (`ray stack`)"
    )
