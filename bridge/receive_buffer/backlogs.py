"""`DepotLoads`: how much waits in each depot of a hand-over, for the one that deals partitions out."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import ray

from penstock.actors.shared.names import NAMESPACE

#: Seconds for a depot to answer.
_PATIENCE: Final = 2.0


class DepotLoads:
    """Asks the depots of these names.

    Args:
        names: By index.

    Actor context: the event loop of a depot.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._handles: dict[int, Any] = {}

    async def ask(self, here: int, load: int) -> list[int]:
        """Bytes that wait in each depot.

        Args:
            here: Index of the depot that asks.
            load: What waits in that.
        """
        loads = [load] * len(self._names)
        others = [index for index in range(len(self._names)) if index != here]
        for index, answer in zip(others, await asyncio.gather(*map(self._of, others)), strict=True):
            loads[index] = answer
        return loads

    async def _of(self, index: int) -> int:
        try:
            if index not in self._handles:
                self._handles[index] = ray.get_actor(self._names[index], namespace=NAMESPACE)
            load: int = await asyncio.wait_for(self._handles[index].load.remote(), _PATIENCE)
        except TimeoutError:
            return sys.maxsize  # it has more to do than it can say
        except (ValueError, ray.exceptions.RayActorError):
            return 0  # it is dead: whoever pushes there is told
        return load
