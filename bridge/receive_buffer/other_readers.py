"""Watches the actors that a receive buffer needs, and the registration of the job's other readers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import ray

from penstock.actors.shared.actor_calls import ANSWER, NoAnswerError, RepeatedCall, while_unavailable
from penstock.actors.shared.registry import NAMESPACE, has_master
from penstock.bridge.receive_buffer.messages import (
    NO_PROGRAM,
    UNREACHABLE_PROGRAM,
    actor_exists,
    rendezvous_name,
)

logger = logging.getLogger(__name__)

#: Watch rounds until all readers of a job must have registered.
LOOKS: Final = 150
#: Seconds for the rendezvous to answer.
_PATIENCE: Final = 60.0


async def is_there(name: str) -> bool:
    """Whether an actor of this name is alive; `True` when Ray does not say."""
    return await _looked_up(actor_exists, name)


async def has_job_master(job_id: str) -> bool:
    """Whether a job has a JobMaster; `True` when Ray does not say."""
    return await _looked_up(has_master, job_id)


async def _looked_up(look: Callable[[str], bool], name: str) -> bool:
    try:
        return await asyncio.to_thread(look, name)
    except Exception as error:  # the error says nothing about the actor; the next check may
        logger.warning("can't look for %s: %s", name, error)
        return True


class OtherReaders:
    """Watches the registration of a job's readers at the rendezvous of a transfer.

    Readers that were finished in a snapshot do not register, and without them nothing is transferred.
    """

    def __init__(self, transfer: str, job_id: str, of: int) -> None:
        self._rendezvous = rendezvous_name(transfer)
        self._job_id = job_id
        self._of = of
        self._looks = 0
        self._have_come = False

    async def are_missing(self) -> bool:
        """Whether readers are missing that must have registered by now; called in every watch round.

        Asks the rendezvous once in many rounds, until all readers have registered. An unanswered question is
        repeated after the same number of rounds.
        """
        self._looks += 1
        if self._have_come or self._looks % LOOKS:
            return False
        try:
            rendezvous = ray.get_actor(self._rendezvous, namespace=NAMESPACE)
            self._have_come = await asyncio.wait_for(
                rendezvous.has_all.remote(self._job_id, self._of), _PATIENCE
            )
        except (TimeoutError, ValueError, ray.exceptions.RayActorError) as error:
            logger.warning(
                "can't ask %s for the readers of job %s: %r", self._rendezvous, self._job_id, error
            )
            return False
        return not self._have_come


#: Seconds for Ray to reach the rendezvous again.
_AWAY: Final = ANSWER


async def registered(register: Callable[[], Any], away: float = _AWAY) -> str | None:
    """Register a receive buffer; repeats the call while Ray can't reach the rendezvous.

    The rendezvous recognises a repeated registration by the buffer's incarnation.

    Args:
        away: Seconds for which Ray may fail to reach the rendezvous.

    Returns:
        Reason why no rows will arrive; `None` after a registration.
    """
    try:
        return await RepeatedCall[str | None](register, "the rendezvous", while_unavailable(away)).awaited()
    except NoAnswerError:
        return UNREACHABLE_PROGRAM
    except (ValueError, ray.exceptions.RayActorError):
        return NO_PROGRAM
