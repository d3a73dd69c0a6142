"""The epoch that is being transferred: what has come of each partition, and whether that is all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class PushedPartition:
    """The accepted frames of one partition.

    Attributes:
        digests: Digests of the frames, by number.
        attempts: Spark's ids of the task attempts that have pushed.
    """

    digests: list[bytes] = field(default_factory=list)
    rows: int = 0
    attempts: set[int] = field(default_factory=set)


@dataclass(slots=True)
class OpenEpoch:
    """The epoch that is being transferred.

    Attributes:
        run: Names this try to transfer it.
        begin: Frames that the receive buffer had accepted before it.
        partitions: What has come, by partition.
        is_prepared: All of it has come, and nothing more is accepted.
    """

    number: int
    run: str
    begin: int
    partitions: dict[int, PushedPartition] = field(default_factory=dict)
    is_prepared: bool = False

    def difference(self, expected: Mapping[int, tuple[int, int]]) -> str | None:
        """Compare with the frames and rows that Spark counted in each partition; `None` if all match."""
        there = self.partitions
        for index, (frames, rows) in sorted(expected.items()):
            partition = there.get(index, PushedPartition())
            if (len(partition.digests), partition.rows) != (frames, rows):
                return (
                    f"partition {index} ended with {frames} frame(s) of {rows} row(s) in the attempt that "
                    f"Spark took, and {len(partition.digests)} of {partition.rows} row(s) were transferred"
                )
        unexpected = sorted(i for i, partition in there.items() if partition.digests and i not in expected)
        if unexpected:
            return f"rows of partition(s) {unexpected} came that Spark does not know of at the end"
        return None


def given_up(epoch: int) -> str:
    """The message about an epoch that another run has replaced."""
    return f"epoch {epoch} has been abandoned"
