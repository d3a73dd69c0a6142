"""How a depot tells the desk of its hand-over that it wants rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import ray

from penstock.bridge.calls.answers import ANSWER
from penstock.bridge.calls.repeated_call import PAUSE
from penstock.bridge.receive_buffer.failure_texts import NO_PROGRAM, UNREACHABLE_PROGRAM

#: Seconds for Ray to reach the desk again.
_AWAY: Final = ANSWER


async def announced(announce: Callable[[], Awaitable[str | None]], away: float = _AWAY) -> str | None:
    """Announce a depot, and again while Ray can't reach the desk: it knows each depot by its stamp.

    Args:
        announce: Finds the desk and calls it.
        away: Seconds for which Ray may not reach it.

    Returns:
        Why no rows will come, or `None`.
    """
    deadline = time.monotonic() + away
    while True:
        try:
            return await announce()
        except ray.exceptions.ActorUnavailableError:
            if time.monotonic() >= deadline:
                return UNREACHABLE_PROGRAM
            await asyncio.sleep(PAUSE)
        except (ValueError, ray.exceptions.RayActorError):
            return NO_PROGRAM
