"""The rendezvous of a transfer: readers register here, and the program with the session learns of it.

It is an actor that the program owns, so it ends with the program. Receive buffers then see that nobody can
serve them any more.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray

from penstock.actors.shared.names import NAMESPACE
from penstock.bridge.receive_buffer.actor_names import rendezvous_name
from penstock.bridge.receive_buffer.errors import DIED, ONE_JOB


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """All readers of a job have registered and want rows.

    Attributes:
        job_id: The job that reads the rows.
        epochs: For each receive buffer, the micro-batch after which its reader continues; -1 for none.
    """

    job_id: str
    epochs: tuple[int, ...]


class Rendezvous:
    """Gathers the registrations of each job's receive buffers.

    Args:
        one_job: The first job that registers gets rows; every other job is refused.
    """

    def __init__(self, one_job: bool = False) -> None:
        self._one_job = one_job
        #: By job and receive buffer: its incarnation, and the micro-batch after which its reader continues.
        self._registered: dict[str, dict[int, tuple[str, int]]] = {}
        self._requests: list[TransferRequest] = []
        self._changed = asyncio.Event()

    async def register(self, job_id: str, index: int, of: int, instance: str, epoch: int = -1) -> str | None:
        """Register a receive buffer; its job's request is complete with the last one. May be repeated.

        Args:
            job_id: The job that reads the rows.
            index: Index of the receive buffer.
            of: Number of receive buffers of the job.
            instance: Incarnation of the receive buffer.
            epoch: The micro-batch after which its reader continues; -1 for none.

        Returns:
            Why no rows will come, or `None`.
        """
        if self._one_job and self._registered and job_id not in self._registered:
            return ONE_JOB.format(*self._registered)
        known = self._registered.setdefault(job_id, {})
        if index in known:
            # The rows of another incarnation went to a process that is gone.
            return None if known[index][0] == instance else DIED
        known[index] = (instance, epoch)
        if len(known) == of:
            self._requests.append(TransferRequest(job_id, tuple(known[i][1] for i in range(of))))
            self._changed.set()
            self._changed = asyncio.Event()
        return None

    async def has_all(self, job_id: str, of: int) -> bool:
        """Whether all receive buffers of a job have registered."""
        return len(self._registered.get(job_id, {})) == of

    async def request(self, number: int, patience: float) -> TransferRequest | None:
        """One request, by its number from 0; may be asked for repeatedly.

        Args:
            number: Number of requests before it.
            patience: Seconds to wait for it.

        Returns:
            The request, or `None` if it has not come by then.
        """
        deadline = time.monotonic() + patience
        while number >= len(self._requests):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return self._requests[number]


def start_rendezvous(transfer: str, *, one_job: bool) -> Any:
    """Start the rendezvous of a transfer."""
    actor: Any = ray.remote(Rendezvous)
    return actor.options(name=rendezvous_name(transfer), namespace=NAMESPACE, num_cpus=0).remote(one_job)
