"""`HandOver`: serves the jobs that read one DataFrame, in a thread of the program that has it.

The thread waits at the desk until all readers of a job have come, and then hands the rows over. What that
means differs: a DataFrame is one Spark job, a streaming DataFrame is a query that runs as long as the job.
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
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import ray

from penstock.actors.shared.answers import ANSWER, NoAnswerError
from penstock.actors.shared.names import NAMESPACE
from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable
from penstock.bridge.receive_buffer.actor_names import depot_name
from penstock.bridge.receive_buffer.failure_texts import OTHER_DEPOT
from penstock.bridge.receive_buffer.messages import EpochStage
from penstock.bridge.session.session import is_alive
from penstock.bridge.transfer.push_partition import SUMMARY, HandOverError, PushOrder
from penstock.bridge.transfer.query_position import amidst, begins_later, left_out, went_back
from penstock.bridge.transfer.rendezvous import Order, open_desk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

#: Seconds between two looks whether the program and its session are there. Nothing waits inside of Ray
#: here: a thread that is in a call when the program leaves its cluster would take the program down.
_POLL: Final = 1.0
#: Seconds that a call waits at the desk for an order.
_ORDER: Final = 10.0
#: Seconds for the end of the program to be seen after a failure that comes of it.
_GRACE: Final = 2.0
#: Seconds for a look at the depots, and for a last word to them.
_LOOK: Final = 10.0

program_ends: Final = threading.Event()
atexit.register(program_ends.set)


@dataclass(frozen=True, slots=True)
class Depots:
    """The depots of one job.

    Attributes:
        job_id: The job.
        names: Their names, by index.
        handles: Their actors, by index.
        address: Of the Ray cluster.
        schema: The Arrow schema of the rows, serialised.
    """

    job_id: str
    names: tuple[str, ...]
    handles: tuple[Any, ...]
    address: str
    schema: bytes

    def hand_over(self, df: DataFrame, epoch: int) -> bool:
        """Push all rows of a DataFrame as one epoch, and close it.

        Returns:
            False when it had been closed before, in one depot at least, and the DataFrame was not computed.

        Raises:
            HandOverError: What came is not what Spark counted.
            MisplacedQueryError: The job does not end where this epoch begins.
            Exception: Spark's, when its job fails.
        """
        stages: list[str] = self._ask([partial(depot.stage.remote, epoch) for depot in self.handles])
        self._check_place(epoch, stages)
        if EpochStage.CLOSED.value in stages:
            self._close(epoch)
            return False
        run = secrets.token_hex(4)
        if not all(self._ask([partial(depot.begin.remote, epoch, run) for depot in self.handles])):
            return False
        push = PushOrder(self.address, self.names, self.schema, epoch, run)
        summaries = df.mapInArrow(push, SUMMARY).collect()
        expected: list[dict[int, tuple[int, int]]] = [{} for _ in self.names]
        for each in summaries:
            expected[each.depot][each.partition] = (each.frames, each.rows)
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
            raise left_out(epoch, min(self._ask([depot.newest.remote for depot in self.handles])))
        if {EpochStage.CLOSED.value, EpochStage.OPEN.value} <= set(stages):
            raise amidst(epoch)  # in one job those that have not closed it have prepared it
        if EpochStage.AHEAD.value in stages:
            logger.warning("%s", begins_later(self.job_id, epoch))

    def _close(self, epoch: int) -> None:
        """All depots have prepared an epoch; some may have closed it already."""
        _raise_problems(self._ask([partial(depot.close.remote, epoch) for depot in self.handles]))

    def are_there(self) -> bool:
        """Whether all of them live; they end with their job.

        Only a dead one is gone. One that is silent, or that Ray can't reach, counts as alive: the next look
        may say more, and whoever waits for it is told by its own call.
        """
        try:
            self._ask([depot.statistics.remote for depot in self.handles], _LOOK)
        except NoAnswerError as error:
            logger.warning("can't see whether the depots of job %s are there: %s", self.job_id, error)
        except ray.exceptions.RayActorError:
            return False
        return True

    def finish(self) -> None:
        """Tell the readers that no rows follow.

        Raises:
            NoAnswerError: A depot can't be told.
            ray.exceptions.RayActorError: A depot is gone.
        """
        self._ask([depot.finish.remote for depot in self.handles])

    def fail(self, reason: str) -> None:
        """Tell the readers that the rest of the rows will not come; a depot that is gone needs no word."""
        calls = [RepeatedCall[None](partial(d.fail.remote, reason), self._who) for d in self.handles]
        deadline = time.monotonic() + _LOOK
        for call in calls:
            if not program_ends.is_set() and not call.wait(deadline - time.monotonic()):
                logger.warning("a depot of job %s can't be told: %s", self.job_id, reason)

    def _ask(self, calls: Sequence[Callable[[], Any]], seconds: float = ANSWER) -> list[Any]:
        """Answers to calls that may be made again, as all calls of a depot here may."""
        asked = [RepeatedCall[Any](call, self._who) for call in calls]
        deadline = time.monotonic() + seconds
        return [call.answer(max(0.0, deadline - time.monotonic())) for call in asked]

    @property
    def _who(self) -> str:
        return f"the depots of job {self.job_id}"


def _raise_problems(answers: Sequence[str | None]) -> None:
    problems = [problem for problem in answers if problem is not None]
    if problems:
        raise HandOverError("; ".join(problems))


class Serve(Protocol):
    """Hands rows over to the depots of one job; what it raises ends that job, and no other."""

    def __call__(self, depots: Depots) -> None:
        """Do it, to the end or to a failure that the depots are told."""
        ...


class HandOver:
    """Takes the orders of jobs, one after the other, as long as the session lives.

    Until then it costs the program a thread and the cluster a process of about 80 MB, the desk, also when its
    jobs have ended: another one may come. At rest that is a call every ten seconds, and a look at the session
    each second.

    Args:
        session: The session of the DataFrame; without it nothing can be served.
        schema: The Arrow schema of the rows.
        serve: What to do for a job.
        one_job: Serve the first job that asks, and no other.
    """

    def __init__(
        self, session: SparkSession, schema: pa.Schema, serve: Serve, *, one_job: bool = False
    ) -> None:
        self.id = secrets.token_hex(6)
        self._session = session
        self._schema: bytes = schema.serialize().to_pybytes()
        self._serve = serve
        self._desk = open_desk(self.id, one_job=one_job)
        self._address: str = ray.get_runtime_context().gcs_address
        self._thread = threading.Thread(target=self._run, name=f"hand-over-{self.id}", daemon=True)

    def start(self) -> None:
        """Begin to take orders."""
        self._thread.start()

    def _run(self) -> None:
        taken = 0
        call: RepeatedCall[Order | None] | None = None
        try:
            while not program_ends.is_set() and ray.is_initialized():
                if not is_alive(self._session):
                    ray.kill(self._desk)
                    return
                call = self._next_order(taken) if call is None else call
                if not call.wait(_POLL):
                    continue
                order, call = call.result(), None
                if order is not None:
                    taken += 1
                    self._take(order)
        except Exception as error:
            # Mostly Ray or Spark went away because the program ends, which may show a moment later.
            if program_ends.wait(_GRACE) or not ray.is_initialized():
                logger.debug("hand-over %s ends: %s", self.id, error)
                return
            logger.exception("hand-over %s takes no more orders", self.id)
            ray.kill(self._desk)  # by that the depots see that nobody serves them any more

    def _next_order(self, taken: int) -> RepeatedCall[Order | None]:
        call = partial(self._desk.order.remote, taken, _ORDER)
        return RepeatedCall[Order | None](call, "the desk of a hand-over", while_unavailable(ANSWER))

    def _take(self, order: Order) -> None:
        try:
            depots = self._depots(order)
        except ValueError:
            logger.info("job %s has ended before its rows were asked for", order.job_id)
            return
        if len(set(order.epochs)) > 1:
            depots.fail(OTHER_DEPOT)
            return
        try:
            self._serve(depots)
        except Exception as error:
            logger.exception("the hand-over to job %s has failed", order.job_id)
            depots.fail(f"the hand-over has failed: {type(error).__name__}: {error}")

    def _depots(self, order: Order) -> Depots:
        names = tuple(depot_name(order.job_id, self.id, i) for i in range(len(order.epochs)))
        handles: Sequence[Any] = [ray.get_actor(name, namespace=NAMESPACE) for name in names]
        return Depots(order.job_id, names, tuple(handles), self._address, self._schema)
