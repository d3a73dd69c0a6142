"""`JobBuffers`: the receive buffers of one job, as the program with the Spark session calls them.

Spark numbers micro-batches without gaps and never repeats one that it has committed. So a number that does
not follow the job's newest one means that the job and the checkpoint location do not belong together.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import ray

from penstock.actors.shared.actor_calls import ANSWER, NoAnswerError, RepeatedCall
from penstock.bridge.receive_buffer.messages import EpochStage, TransferError
from penstock.bridge.transfer.push_partition import SUMMARY, PushPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


program_ends: Final = threading.Event()

atexit.register(program_ends.set)


class QueryPositionError(TransferError):
    """The query continues at another micro-batch than the job; a restart does not help."""


def went_back(epoch: int) -> QueryPositionError:
    """Return the error for a micro-batch although the job has later ones."""
    return QueryPositionError(
        f"the query gives micro-batch {epoch}, and the job has later ones: it has lost its checkpoint "
        "location, or has another one than when the job's snapshot was taken"
    )


def left_out(epoch: int, newest: int) -> QueryPositionError:
    """Return the error for missing micro-batches after `newest`, which is -1 if the job has none."""
    end = f"after micro-batch {newest}" if newest >= 0 else "before micro-batch 0"
    return QueryPositionError(
        f"the query continues with micro-batch {epoch}, and the job's snapshot ends {end}: Spark has "
        f"committed {_between(newest + 1, epoch - 1)}, and will not give the rows again. Start the job with "
        "restore_from= a newer snapshot (the last checkpoint of the job that they were committed for); or, "
        "to read everything again, without a snapshot and with another checkpoint_location"
    )


def amidst(epoch: int) -> QueryPositionError:
    """Return the error for a snapshot in which only some readers have read a micro-batch to its end."""
    return QueryPositionError(
        f"the job's snapshot was taken inside micro-batch {epoch}: some readers are past its end, others "
        "before its beginning. Start the job with restore_from= another snapshot: the checkpoint that "
        "the end of a micro-batch induces is never inside one"
    )


def begins_later(job_id: str, epoch: int) -> str:
    """Error text: a job without a snapshot gets a first micro-batch that is not number 0."""
    return (
        f"job {job_id} was started without a snapshot of its query, and begins with micro-batch {epoch}: "
        f"Spark has committed {_between(0, epoch - 1)}, whose rows are not in the state of this job. If they "
        "are to be, start it with restore_from= the last checkpoint of the job that they were committed for; "
        "or, to read everything again, with another checkpoint_location"
    )


def _between(first: int, last: int) -> str:
    return f"micro-batch {first}" if first == last else f"micro-batches {first} to {last}"


logger = logging.getLogger(__name__)

#: Seconds to check the receive buffers, and to report a failure to them.
_LOOK: Final = 10.0


@dataclass(frozen=True, slots=True)
class JobBuffers:
    """The receive buffers of one job.

    Attributes:
        schema: The Arrow schema of the rows, serialised.
    """

    job_id: str
    names: tuple[str, ...]
    handles: tuple[Any, ...]
    address: str
    schema: bytes

    def transfer(self, df: DataFrame, epoch: int) -> bool:
        """Push all rows of a DataFrame as one epoch, and close it.

        Returns:
            False if a receive buffer had closed the epoch before, so that the DataFrame was not computed.

        Raises:
            TransferError: The received rows differ from Spark's counts.
            QueryPositionError: The epoch does not follow the job's newest one.
            Exception: Spark's, when its job fails.
        """
        stages: list[str] = self._ask([partial(buffer.stage.remote, epoch) for buffer in self.handles])
        self._check_place(epoch, stages)
        if EpochStage.CLOSED.value in stages:
            self._close(epoch)
            return False
        run = secrets.token_hex(4)
        if not all(self._ask([partial(buffer.begin.remote, epoch, run) for buffer in self.handles])):
            return False
        push = PushPartition(self.address, self.names, self.schema, epoch, run)
        # PySpark looks columns up by name there, and finds none with a dot, and two that differ in case.
        by_place = df.toDF(*(f"_{place}" for place in range(len(df.schema))))
        summaries = by_place.mapInArrow(push, SUMMARY).collect()
        expected: list[dict[int, tuple[int, int]]] = [{} for _ in self.names]
        for each in summaries:
            expected[each.buffer][each.partition] = (each.frames, each.rows)
        calls = [
            partial(d.prepare.remote, epoch, run, e) for d, e in zip(self.handles, expected, strict=True)
        ]
        _raise_problems(self._ask(calls))
        self._close(epoch)
        return True

    def _check_place(self, epoch: int, stages: Sequence[str]) -> None:
        if EpochStage.PAST.value in stages:
            raise went_back(epoch)
        if EpochStage.GAP.value in stages:
            raise left_out(epoch, min(self._ask([buffer.newest.remote for buffer in self.handles])))
        if {EpochStage.CLOSED.value, EpochStage.OPEN.value} <= set(stages):
            raise amidst(epoch)  # within one job, buffers that have not closed it have prepared it
        if EpochStage.AHEAD.value in stages:
            logger.warning("%s", begins_later(self.job_id, epoch))

    def _close(self, epoch: int) -> None:
        """Close an epoch that all receive buffers have prepared; some may have closed it already."""
        _raise_problems(self._ask([partial(buffer.close.remote, epoch) for buffer in self.handles]))

    def are_there(self) -> bool:
        """Whether all receive buffers are alive; they end with their job.

        A silent buffer, or one that Ray can't reach, counts as alive: a later call gets its own error.
        """
        try:
            self._ask([buffer.statistics.remote for buffer in self.handles], _LOOK)
        except NoAnswerError as error:
            logger.warning(
                "can't see whether the receive buffers of job %s are there: %s", self.job_id, error
            )
        except ray.exceptions.RayActorError:
            return False
        return True

    def finish(self) -> None:
        """End the readers' input.

        Raises:
            NoAnswerError: A receive buffer does not answer.
            ray.exceptions.RayActorError: A receive buffer has ended.
        """
        self._ask([buffer.finish.remote for buffer in self.handles])

    def fail(self, reason: str) -> None:
        """Give the readers the reason why the remaining rows will not come; skips dead receive buffers."""
        calls = [RepeatedCall[None](partial(d.fail.remote, reason), self._who) for d in self.handles]
        deadline = time.monotonic() + _LOOK
        for call in calls:
            if not program_ends.is_set() and not call.wait(deadline - time.monotonic()):
                logger.warning("a receive buffer of job %s can't be told: %s", self.job_id, reason)

    def _ask(self, calls: Sequence[Callable[[], Any]], seconds: float = ANSWER) -> list[Any]:
        """Answers to calls, which may be repeated, as all calls of a receive buffer here may."""
        asked = [RepeatedCall[Any](call, self._who) for call in calls]
        deadline = time.monotonic() + seconds
        return [call.answer(max(0.0, deadline - time.monotonic())) for call in asked]

    @property
    def _who(self) -> str:
        return f"the receive buffers of job {self.job_id}"


def _raise_problems(answers: Sequence[str | None]) -> None:
    problems = [problem for problem in answers if problem is not None]
    if problems:
        raise TransferError("; ".join(problems))
