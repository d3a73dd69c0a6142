"""The desk of a hand-over: depots ask for rows, and the program with the Spark session takes the orders.

It is an actor of that program, so it ends with it; depots see by that that nobody can serve them any more.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray

from penstock.actors.shared.names import NAMESPACE
from penstock.bridge.receive_buffer.actor_names import desk_name
from penstock.bridge.receive_buffer.failure_texts import LOST, ONE_JOB


@dataclass(frozen=True, slots=True)
class Order:
    """All readers of a job have come and want rows.

    Attributes:
        job_id: The job.
        epochs: For each depot the rows go to, the micro-batch behind which its reader goes on; -1 for none.
    """

    job_id: str
    epochs: tuple[int, ...]


class HandOverDesk:
    """Gathers what the depots of each job ask for.

    Args:
        one_job: The first job that comes gets rows, and every other one is refused.
    """

    def __init__(self, one_job: bool = False) -> None:
        self._one_job = one_job
        #: For each job: the stamps of its depots, and the micro-batches behind which their readers go on.
        self._come: dict[str, dict[int, tuple[str, int]]] = {}
        self._orders: list[Order] = []
        self._changed = asyncio.Event()

    async def announce(self, job_id: str, index: int, of: int, stamp: str, epoch: int = -1) -> str | None:
        """A depot waits for rows; the order is complete with the last one of its job.

        The same depot may say so again.

        Args:
            job_id: The job.
            index: Which of its depots.
            of: How many there are.
            stamp: Tells the depot from another one that comes in its place.
            epoch: The micro-batch behind which its reader goes on; -1 for none.

        Returns:
            Why no rows will come, or `None`.
        """
        if self._one_job and self._come and job_id not in self._come:
            return ONE_JOB.format(*self._come)
        come = self._come.setdefault(job_id, {})
        if index in come:
            # The rows of one with another stamp went to a depot that is gone.
            return None if come[index][0] == stamp else LOST
        come[index] = (stamp, epoch)
        if len(come) == of:
            self._orders.append(Order(job_id, tuple(come[i][1] for i in range(of))))
            self._changed.set()
            self._changed = asyncio.Event()
        return None

    async def has_all(self, job_id: str, of: int) -> bool:
        """Whether all depots of a job have come."""
        return len(self._come.get(job_id, {})) == of

    async def order(self, number: int, patience: float) -> Order | None:
        """One order, by its number from 0; may be asked for again.

        Args:
            number: How many came before it.
            patience: Seconds to wait for it.

        Returns:
            The order, or `None` when it has not come by then.
        """
        deadline = time.monotonic() + patience
        while number >= len(self._orders):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return self._orders[number]


def open_desk(hand_over: str, *, one_job: bool) -> Any:
    """Start the desk of a hand-over."""
    actor: Any = ray.remote(HandOverDesk)
    return actor.options(name=desk_name(hand_over), namespace=NAMESPACE, num_cpus=0).remote(one_job)
