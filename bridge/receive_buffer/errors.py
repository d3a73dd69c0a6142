"""Errors for rows that are lost between Spark and a job, with advice for the user."""

from __future__ import annotations

from typing import Final

from penstock.runtime.errors import PenstockError

#: The program that would transfer the rest is gone.
NO_PROGRAM: Final = (
    "the program with the Spark session ended, or stopped it, before all partitions were transferred; keep "
    "both until wait_for_transfer(job) returns, and start the job again"
)
#: Ray could not reach that program's rendezvous for long, and does not report it dead.
UNREACHABLE_PROGRAM: Final = (
    "Ray could not reach the program with the Spark session for a minute; look at the nodes and at the "
    "network (`ray status`, `ray list nodes`), and start the job again"
)
#: The position belongs to another incarnation of the receive buffer.
OTHER_BUFFER: Final = (
    "the checkpoint's position refers to rows that are no longer held: their process died, or they belonged "
    "to the job that wrote the savepoint. Start the job without it"
)
#: A streaming DataFrame serves one job.
ONE_JOB: Final = "this streaming DataFrame is read by job {}; make another one for each job"
#: The receive buffer is gone.
DIED: Final = (
    "the process that holds the rows between Spark and the job died, and rows that it held are in no "
    "checkpoint; start the job again"
)
#: Ray could not reach the receive buffer for long, and does not report it dead.
UNREACHABLE: Final = (
    "Ray could not reach the process that holds the rows between Spark and the job for a minute; look at its "
    "node and at the network (`ray status`, `ray list nodes`), and start the job again"
)


class TransferError(PenstockError):
    """Rows can't be transferred; the message says why and what to do."""


def different_rows(partition: int) -> str:
    """The message about a partition that gave other rows when Spark computed it again."""
    return (
        f"partition {partition} gave other rows when Spark computed it again, so its rows can't be told "
        "apart from those that were transferred. Make the DataFrame deterministic (sortWithinPartitions "
        "after a shuffle, seeds for rand), or store it first with df.localCheckpoint() or as Parquet"
    )
