"""Errors about a streaming query that does not continue where its job ends.

Spark numbers micro-batches without gaps and never repeats one that it has committed. So a number that does
not follow the job's newest one means that the job and the checkpoint location do not belong together.
"""

from __future__ import annotations

from penstock.bridge.receive_buffer.errors import TransferError


class QueryPositionError(TransferError):
    """The query continues at another micro-batch than the job; a restart does not help."""


def went_back(epoch: int) -> QueryPositionError:
    """The query gives a micro-batch although the job has later ones."""
    return QueryPositionError(
        f"the query gives micro-batch {epoch}, and the job has later ones: it has lost its checkpoint "
        "location, or has another one than when the job's snapshot was taken"
    )


def left_out(epoch: int, newest: int) -> QueryPositionError:
    """The query gives a micro-batch, and the job lacks some before it.

    Args:
        epoch: The micro-batch.
        newest: The last one that the job has, mostly from its snapshot; -1 for none.

    Example:
        >>> print(str(left_out(2, -1)).partition(":")[0])
        the query continues with micro-batch 2, and the job's snapshot ends before micro-batch 0
    """
    end = f"after micro-batch {newest}" if newest >= 0 else "before micro-batch 0"
    return QueryPositionError(
        f"the query continues with micro-batch {epoch}, and the job's snapshot ends {end}: Spark has "
        f"committed {_between(newest + 1, epoch - 1)}, and will not give the rows again. Start the job with "
        "restore_from= a newer snapshot (the last checkpoint of the job that they were committed for); or, "
        "to read everything again, without a snapshot and with another checkpoint_location"
    )


def amidst(epoch: int) -> QueryPositionError:
    """Some readers in the job's snapshot are past the end of a micro-batch that others have not begun."""
    return QueryPositionError(
        f"the job's snapshot was taken inside micro-batch {epoch}: some readers are past its end, others "
        "before its beginning. Start the job with restore_from= another snapshot: the checkpoint that "
        "the end of a micro-batch induces is never inside one"
    )


def begins_later(job_id: str, epoch: int) -> str:
    """The message about a job without a snapshot whose first micro-batch is not number 0.

    Example:
        >>> print(begins_later("totals", 1).partition(":")[0])
        job totals was started without a snapshot of its query, and begins with micro-batch 1
    """
    return (
        f"job {job_id} was started without a snapshot of its query, and begins with micro-batch {epoch}: "
        f"Spark has committed {_between(0, epoch - 1)}, whose rows are not in the state of this job. If they "
        "are to be, start it with restore_from= the last checkpoint of the job that they were committed for; "
        "or, to read everything again, with another checkpoint_location"
    )


def _between(first: int, last: int) -> str:
    return f"micro-batch {first}" if first == last else f"micro-batches {first} to {last}"
