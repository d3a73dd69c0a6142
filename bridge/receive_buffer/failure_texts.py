"""What a job is told when the rows between Spark and it are lost, and what to do then."""

from __future__ import annotations

from typing import Final

from penstock.runtime.errors import PenstockError

#: Nobody can hand the rest over.
NO_PROGRAM: Final = (
    "the program with the Spark session ended, or stopped it, before all partitions were handed over; keep "
    "both until bridge.wait_for_hand_over(job) returns, and start the job again"
)
#: The desk of that program could not be reached for long, and Ray does not call it dead.
UNREACHABLE_PROGRAM: Final = (
    "Ray could not reach the program with the Spark session for a minute; look at the nodes and at the "
    "network (`ray status`, `ray list nodes`), and start the job again"
)
#: A position that means nothing here.
OTHER_DEPOT: Final = (
    "the position in the checkpoint is one in rows that are not kept any more: their process died, or they "
    "belonged to the job that the savepoint is of. Start the job without it"
)
#: One query, and rows that are for another job.
ONE_JOB: Final = "this streaming DataFrame is read by job {}; make another one for each job"
#: A new depot in the place of one that had rows.
LOST: Final = (
    "the process that held the rows between Spark and the job died, and rows that it held are in no "
    "checkpoint; start the job again"
)
#: A depot that does not answer any more.
DIED: Final = (
    "the process that holds the rows between Spark and the job died, and rows that it held are in no "
    "checkpoint; start the job again"
)
#: A depot that Ray could not reach for long, and does not call dead.
UNREACHABLE: Final = (
    "Ray could not reach the process that holds the rows between Spark and the job for a minute; look at its "
    "node and at the network (`ray status`, `ray list nodes`), and start the job again"
)


class HandOverFailedError(PenstockError):
    """A hand-over can't be finished; the message says why."""


def different_rows(partition: int) -> str:
    """What is said when a partition that was computed again is another one."""
    return (
        f"partition {partition} gave other rows when Spark computed it again, so its rows can't be told "
        "apart from those that were handed over. Make the DataFrame deterministic (sortWithinPartitions "
        "after a shuffle, seeds for rand), or store it first with df.localCheckpoint() or as Parquet"
    )
