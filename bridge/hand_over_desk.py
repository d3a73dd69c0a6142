"""The desk of a hand-over: depots ask for rows, and the program with the Spark session takes the orders.

It is an actor of that program, so it ends with it; depots see by that that nobody can serve them any more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import ray

from penstock.actors.names import NAMESPACE
from penstock.bridge.depot_names import desk_name


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
    """Gathers what the depots of each job ask for."""

    def __init__(self) -> None:
        self._come: dict[str, dict[int, int]] = {}
        self._orders: deque[Order] = deque()

    def announce(self, job_id: str, index: int, of: int, epoch: int = -1) -> bool:
        """A depot waits for rows; the order is complete with the last one of its job.

        Returns:
            False when one of this index has come before: its rows went to a depot that is gone.
        """
        come = self._come.setdefault(job_id, {})
        if index in come:
            return False
        come[index] = epoch
        if len(come) == of:
            self._orders.append(Order(job_id, tuple(come[i] for i in range(of))))
        return True

    def has_all(self, job_id: str, of: int) -> bool:
        """Whether all depots of a job have come."""
        return len(self._come.get(job_id, {})) == of

    def next_order(self) -> Order | None:
        """The next order, if there is one."""
        return self._orders.popleft() if self._orders else None


def open_desk(hand_over: str) -> Any:
    """Start the desk of a hand-over."""
    actor: Any = ray.remote(HandOverDesk)
    return actor.options(name=desk_name(hand_over), namespace=NAMESPACE, num_cpus=0).remote()
