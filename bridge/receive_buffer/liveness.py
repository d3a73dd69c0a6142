"""What a depot looks for again and again: the actors that it needs, and the other readers of its job."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import ray

from penstock.actors.shared.names import NAMESPACE
from penstock.bridge.receive_buffer.actor_names import actor_exists, desk_name

logger = logging.getLogger(__name__)

#: Looks of a waiting reader until all readers of its job must have come.
LOOKS: Final = 150
#: Seconds for the desk to answer.
_PATIENCE: Final = 60.0


async def is_there(name: str) -> bool:
    """Whether an actor of this name lives; when that can't be found out it counts as alive."""
    try:
        return await asyncio.to_thread(actor_exists, name)
    except Exception as error:  # whatever it is, it says nothing about that actor; the next look may
        logger.warning("can't look for %s: %s", name, error)
        return True


class OtherReaders:
    """Whether all readers of a job have come to the desk of a hand-over.

    Readers that had ended in a snapshot do not come again, and without them nothing is handed over.

    Args:
        hand_over: Id of the hand-over.
        job_id: The job.
        of: How many readers it has.
    """

    def __init__(self, hand_over: str, job_id: str, of: int) -> None:
        self._desk = desk_name(hand_over)
        self._job_id = job_id
        self._of = of
        self._looks = 0
        self._have_come = False

    async def are_missing(self) -> bool:
        """A look of a reader that waits: whether others that must have come by now have not.

        The desk is asked at one look of many, until it has said once that all are there. A desk that gives no
        answer says nothing: it is asked again, as many looks later.
        """
        self._looks += 1
        if self._have_come or self._looks % LOOKS:
            return False
        try:
            desk = ray.get_actor(self._desk, namespace=NAMESPACE)
            self._have_come = await asyncio.wait_for(desk.has_all.remote(self._job_id, self._of), _PATIENCE)
        except (TimeoutError, ValueError, ray.exceptions.RayActorError) as error:
            logger.warning("can't ask %s for the readers of job %s: %r", self._desk, self._job_id, error)
            return False
        return not self._have_come
