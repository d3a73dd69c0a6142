"""What a depot looks for again and again: the actors that it needs, and the other readers of its job."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import ray

from penstock.actors.names import NAMESPACE
from penstock.bridge.depot_names import actor_exists, desk_name

logger = logging.getLogger(__name__)

#: Seconds for the desk to answer.
_PATIENCE: Final = 60.0


async def is_there(name: str) -> bool:
    """Whether an actor of this name lives; when that can't be found out it counts as alive."""
    try:
        return await asyncio.to_thread(actor_exists, name)
    except Exception as error:  # whatever it is, it says nothing about that actor; the next look may
        logger.warning("can't look for %s: %s", name, error)
        return True


async def have_all_come(hand_over: str, job_id: str, of: int) -> bool:
    """Whether all readers of a job have come to the desk of a hand-over.

    Readers that had ended in a snapshot do not come again, and without them nothing is handed over.

    Args:
        hand_over: Id of the hand-over.
        job_id: The job.
        of: How many readers it has.
    """
    try:
        desk = ray.get_actor(desk_name(hand_over), namespace=NAMESPACE)
        return bool(await asyncio.wait_for(desk.has_all.remote(job_id, of), _PATIENCE))
    except (TimeoutError, ValueError, ray.exceptions.RayActorError):
        return True  # the next look for the desk says more
