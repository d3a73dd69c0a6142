"""`JobBuffers`: the receive buffers of one job, as the program with the Spark session calls them."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import ray

from penstock.actors.shared.answers import ANSWER, NoAnswerError
from penstock.actors.shared.repeated_call import RepeatedCall
from penstock.bridge.receive_buffer.errors import TransferError
from penstock.bridge.receive_buffer.messages import EpochStage
from penstock.bridge.transfer.program_end import program_ends
from penstock.bridge.transfer.push_partition import SUMMARY, PushPartition
from penstock.bridge.transfer.query_position import amidst, begins_later, left_out, went_back

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

#: Seconds for a look at the receive buffers, and for telling them of a failure.
_LOOK: Final = 10.0


@dataclass(frozen=True, slots=True)
class JobBuffers:
    """The receive buffers of one job.

    Attributes:
        names: Names of the receive buffers, by index.
        handles: Their actors, by index.
        address: Address of the Ray cluster.
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
            TransferError: What came is not what Spark counted.
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

        Only a dead one counts as gone. One that does not answer, or that Ray can't reach, counts as alive.
        The next check may find out more, and a call that waits for it gets its own error.
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
        """Tell the readers that no rows follow.

        Raises:
            NoAnswerError: A receive buffer can't be told.
            ray.exceptions.RayActorError: A receive buffer is gone.
        """
        self._ask([buffer.finish.remote for buffer in self.handles])

    def fail(self, reason: str) -> None:
        """Tell the readers why the remaining rows will not come; dead receive buffers are skipped."""
        calls = [RepeatedCall[None](partial(d.fail.remote, reason), self._who) for d in self.handles]
        deadline = time.monotonic() + _LOOK
        for call in calls:
            if not program_ends.is_set() and not call.wait(deadline - time.monotonic()):
                logger.warning("a receive buffer of job %s can't be told: %s", self.job_id, reason)

    def _ask(self, calls: Sequence[Callable[[], Any]], seconds: float = ANSWER) -> list[Any]:
        """Answers to calls that may be repeated, as all calls of a receive buffer here may."""
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
