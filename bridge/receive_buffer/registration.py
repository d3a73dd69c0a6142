"""Registers a receive buffer at the rendezvous of its transfer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ray

from penstock.actors.shared.answers import ANSWER, NoAnswerError
from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable
from penstock.bridge.receive_buffer.errors import NO_PROGRAM, UNREACHABLE_PROGRAM

#: Seconds for Ray to reach the rendezvous again.
_AWAY: Final = ANSWER


async def registered(register: Callable[[], Any], away: float = _AWAY) -> str | None:
    """Register a receive buffer; repeats the call while Ray can't reach the rendezvous.

    The rendezvous recognises a repeated registration by the buffer's incarnation.

    Args:
        register: Finds the rendezvous and calls it.
        away: Seconds for which Ray may not reach it.

    Returns:
        Why no rows will come, or `None`.
    """
    try:
        return await RepeatedCall[str | None](register, "the rendezvous", while_unavailable(away)).awaited()
    except NoAnswerError:
        return UNREACHABLE_PROGRAM
    except (ValueError, ray.exceptions.RayActorError):
        return NO_PROGRAM
