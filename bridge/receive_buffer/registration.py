"""How a depot tells the desk of its hand-over that it wants rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ray

from penstock.actors.shared.answers import ANSWER, NoAnswerError
from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable
from penstock.bridge.receive_buffer.failure_texts import NO_PROGRAM, UNREACHABLE_PROGRAM

#: Seconds for Ray to reach the desk again.
_AWAY: Final = ANSWER


async def announced(announce: Callable[[], Any], away: float = _AWAY) -> str | None:
    """Announce a depot, and again while Ray can't reach the desk: it knows each depot by its stamp.

    Args:
        announce: Finds the desk and calls it.
        away: Seconds for which Ray may not reach it.

    Returns:
        Why no rows will come, or `None`.
    """
    try:
        return await RepeatedCall[str | None](announce, "the desk", while_unavailable(away)).awaited()
    except NoAnswerError:
        return UNREACHABLE_PROGRAM
    except (ValueError, ray.exceptions.RayActorError):
        return NO_PROGRAM
