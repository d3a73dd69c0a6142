"""`PartitionDealer`: hands the partitions of a DataFrame out to the readers, each when its Spark task begins.

A partition goes to the reader that has the least to do then, so a skewed partition or a slow reader does not
hold the others up. A partition is a split, and this is its coordinator. It lives in the first depot and not
in the JobMaster, because what it knows must last exactly as long as the rows: a new JobMaster that had
forgotten where half of a partition lies would hand the other half to another reader.

It must answer the same for every attempt of a partition, also when Spark runs a micro-batch again of which
some depots have closed their part already. So an epoch's answers are kept until the next epoch begins.

Threads: none of its own.
"""

from __future__ import annotations

from collections.abc import Sequence


class PartitionDealer:
    """Knows which depot each partition of the newest epoch goes to.

    Args:
        depots: How many depots there are.

    Example:
        >>> dealer = PartitionDealer(2)
        >>> [dealer.deal(0, partition, [0, 0]) for partition in (0, 1, 0)]
        [0, 1, 0]
        >>> dealer.done(0, 1)
        >>> dealer.deal(0, 2, [0, 0])
        1
    """

    def __init__(self, depots: int) -> None:
        self._epoch = -1
        self._depot_of: dict[int, int] = {}
        self._dealt = [0] * depots
        #: Partitions whose tasks push, for each depot.
        self._pushing: list[set[int]] = [set() for _ in range(depots)]

    def deal(self, epoch: int, partition: int, loads: Sequence[int]) -> int:
        """Which depot takes this partition.

        Args:
            epoch: Number of the epoch; epochs are dealt one after the other.
            partition: Index of the Spark partition.
            loads: Bytes that wait in each depot.
        """
        if epoch < self._epoch:
            # A slow copy of a task whose epoch is closed everywhere; each depot drops what it brings.
            return partition % len(self._dealt)
        if epoch > self._epoch:
            self._begin(epoch)
        depot = self._depot_of.get(partition)
        if depot is None:
            depot = min(
                range(len(self._dealt)),
                key=lambda i: (len(self._pushing[i]), loads[i], self._dealt[i], i),
            )
            self._depot_of[partition] = depot
            self._dealt[depot] += 1
            self._pushing[depot].add(partition)
        return depot

    def dealt(self, epoch: int, partition: int) -> int | None:
        """Which depot takes a partition that was dealt before; `None` for another one."""
        return self._depot_of.get(partition) if epoch == self._epoch else None

    def done(self, epoch: int, partition: int) -> None:
        """An attempt of this partition has pushed all of it."""
        if epoch == self._epoch and partition in self._depot_of:
            self._pushing[self._depot_of[partition]].discard(partition)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._depot_of.clear()
        for pushing in self._pushing:
            pushing.clear()
