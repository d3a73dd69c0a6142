"""Waiting for the answer of an actor, with a deadline whose error names the actor."""

from __future__ import annotations

from typing import Any, Final

import ray

from penstock.runtime.errors import PenstockError

#: Seconds within which an actor answers what needs no waiting.
ANSWER: Final = 60.0


class NoAnswerError(PenstockError, TimeoutError):
    """An actor is alive and has not answered in time; the message says which, and where to look."""


def answer_of(call: Any, who: str, seconds: float = ANSWER) -> Any:
    """The answer of a call.

    Args:
        call: What the call of an actor has given.
        who: Who is asked, and for what, for the message.
        seconds: How long it may take.

    Raises:
        NoAnswerError: It has taken longer.
        ray.exceptions.RayActorError: The actor is gone.
    """
    try:
        return ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise no_answer(who, seconds) from error


def no_answer(who: str, seconds: float) -> NoAnswerError:
    """What is said of an actor that is silent."""
    return NoAnswerError(
        f"{who}: no answer for {seconds:g} s, although the process lives. Its node is overloaded or out "
        "of memory (`ray status`, `ray list nodes`), or it is stuck (`ray stack`)"
    )
