"""`BufferBacklogs`: how many bytes wait in each receive buffer; partitions are assigned by it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import ray

from penstock.actors.shared.names import NAMESPACE

#: Seconds for a receive buffer to answer.
_PATIENCE: Final = 2.0


class BufferBacklogs:
    """Asks the receive buffers of a transfer for their backlogs.

    Args:
        names: Names of the receive buffers, by index.

    Thread: the event loop of a receive buffer's actor.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._handles: dict[int, Any] = {}

    async def ask(self, here: int, backlog: int) -> list[int]:
        """Bytes that wait in each receive buffer, by index.

        Args:
            here: Index of the receive buffer that asks.
            backlog: Its own backlog.
        """
        backlogs = [backlog] * len(self._names)
        others = [index for index in range(len(self._names)) if index != here]
        for index, answer in zip(others, await asyncio.gather(*map(self._of, others)), strict=True):
            backlogs[index] = answer
        return backlogs

    async def _of(self, index: int) -> int:
        try:
            if index not in self._handles:
                self._handles[index] = ray.get_actor(self._names[index], namespace=NAMESPACE)
            backlog: int = await asyncio.wait_for(self._handles[index].backlog.remote(), _PATIENCE)
        except TimeoutError:
            return sys.maxsize  # too busy to answer
        except (ValueError, ray.exceptions.RayActorError):
            return 0  # dead: the task that pushes there gets an error
        return backlog
