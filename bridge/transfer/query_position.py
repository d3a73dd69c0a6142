"""What is said when a query does not go on where its job ends.

Spark numbers micro-batches without gaps and never gives one again that it has committed. So a number that
does not follow the job's newest one means that job and checkpoint location do not belong together.
"""

from __future__ import annotations

from penstock.bridge.transfer.push_partition import HandOverError


class MisplacedQueryError(HandOverError):
    """The query goes on at another place than the job; to run it again changes nothing."""


def went_back(epoch: int) -> MisplacedQueryError:
    """The query gives a micro-batch, and the job has later ones."""
    return MisplacedQueryError(
        f"the query hands over micro-batch {epoch}, and the job has later ones: it has lost its checkpoint "
        "location, or was given another one than the job's snapshot was taken with"
    )


def left_out(epoch: int, newest: int) -> MisplacedQueryError:
    """The query gives a micro-batch, and the job lacks some before it.

    Args:
        epoch: The micro-batch.
        newest: The last one that the job has, mostly by its snapshot; -1 for none.

    Example:
        >>> print(str(left_out(2, -1)).partition(":")[0])
        the query goes on with micro-batch 2, and the job's snapshot ends before micro-batch 0
    """
    end = f"behind micro-batch {newest}" if newest >= 0 else "before micro-batch 0"
    return MisplacedQueryError(
        f"the query goes on with micro-batch {epoch}, and the job's snapshot ends {end}: Spark has committed "
        f"{_between(newest + 1, epoch - 1)}, and will not give the rows again. Start the job with "
        "restore_from= a newer snapshot (the last checkpoint of the job that they were committed for); or, "
        "to read everything again, without a snapshot and with another checkpoint_location"
    )


def amidst(epoch: int) -> MisplacedQueryError:
    """Some readers of the job's snapshot have passed the end of a micro-batch that others have not begun."""
    return MisplacedQueryError(
        f"the job's snapshot was taken amidst micro-batch {epoch}: some readers are behind its end, others "
        "before its beginning. Start the job with restore_from= another snapshot: the checkpoint that "
        "the end of a micro-batch induces is never amidst one"
    )


def begins_later(job_id: str, epoch: int) -> str:
    """A job that was started without a snapshot gets a micro-batch as its first one, and it is not number 0.

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
