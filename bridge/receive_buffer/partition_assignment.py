"""`PartitionAssignment`: assigns the partitions of a DataFrame to readers, each when its Spark task begins.

A partition goes to the reader with the least to do, so neither a skewed partition nor a slow reader holds the
others up. This is the split enumerator of a transfer. It lives in the first receive buffer and not in the
JobMaster, because it must live exactly as long as the rows. A new JobMaster would not know where half of a
partition lies, and might send the rest to another reader.

Every attempt of a partition must get the same answer, also when Spark runs a micro-batch again that some
receive buffers have closed. So an epoch's answers are kept until the next epoch begins.

Threads: none of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Final

import ray

from penstock.actors.shared.registry import NAMESPACE


class PartitionAssignment:
    """Knows the receive buffer of each partition of the newest epoch.

    Example:
        >>> assignment = PartitionAssignment(2)
        >>> [assignment.assign(0, partition, [0, 0]) for partition in (0, 1, 0)]
        [0, 1, 0]
        >>> assignment.done(0, 1)
        >>> assignment.assign(0, 2, [0, 0])
        1
    """

    def __init__(self, buffers: int) -> None:
        self._epoch = -1
        self._buffer_of: dict[int, int] = {}
        self._counts = [0] * buffers
        #: Partitions whose tasks are pushing, by receive buffer.
        self._pushing: list[set[int]] = [set() for _ in range(buffers)]

    def assign(self, epoch: int, partition: int, backlogs: Sequence[int]) -> int:
        """The index of the receive buffer that takes a partition; `backlogs` are bytes that wait in each."""
        if epoch < self._epoch:
            # A slow copy of a task whose epoch is closed everywhere; the receive buffers drop its frames.
            return partition % len(self._counts)
        if epoch > self._epoch:
            self._begin(epoch)
        buffer = self._buffer_of.get(partition)
        if buffer is None:
            buffer = min(
                range(len(self._counts)),
                key=lambda i: (len(self._pushing[i]), backlogs[i], self._counts[i], i),
            )
            self._buffer_of[partition] = buffer
            self._counts[buffer] += 1
            self._pushing[buffer].add(partition)
        return buffer

    def assigned(self, epoch: int, partition: int) -> int | None:
        return self._buffer_of.get(partition) if epoch == self._epoch else None

    def done(self, epoch: int, partition: int) -> None:
        if epoch == self._epoch and partition in self._buffer_of:
            self._pushing[self._buffer_of[partition]].discard(partition)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._buffer_of.clear()
        for pushing in self._pushing:
            pushing.clear()


#: Seconds for a receive buffer to answer.
_PATIENCE: Final = 2.0


class BufferBacklogs:
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._handles: dict[int, Any] = {}

    async def ask(self, here: int, backlog: int) -> list[int]:
        """Return the waiting bytes of each receive buffer, by index; the buffer `here` has `backlog`."""
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
