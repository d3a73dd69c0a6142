"""Reports of a subtask to its JobMaster; none may be lost.

A report is a call whose answer is watched. It is repeated when it is lost while the JobMaster lives, or while
it is restarted. The JobMaster ignores reports that it already has, and those of an old attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.actor_calls import RepeatedCall, while_unavailable
from penstock.actors.shared.node_processes import end_process, on_node, processor_times
from penstock.actors.subtask.remote_channels import RemoteChannels
from penstock.runtime.execution.failure_causes import cause_of
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place, Raised, Reply
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.job.job_state import (
    Acknowledged,
    Declined,
    EventForCoordinator,
    ReachedEndOfData,
    SubtaskReport,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot

logger = logging.getLogger(__name__)

#: Reports are repeated as long as the attempt lasts.
_repeat = while_unavailable()


#: Reasons that lie in this process, so that errors point to its log.
_CAUSED_HERE: Final = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED,
        CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED,
    }
)


class MasterLink:
    """The `SubtaskGateway` of one attempt of one subtask.

    Calls come in the task thread, `report` and `close` in any thread; `loop` sends.

    Args:
        consumed: Called with a channel and its highest consumed number.

    Attributes:
        channels: Set before the subtask steps.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        master: ActorHandle[Any],
        role: Role,
        consumed: Callable[[int, int], None],
    ) -> None:
        self._loop = loop
        self._master = master
        self._role = role
        self._closed = False
        self._sending: set[asyncio.Task[None]] = set()
        self.consumed = consumed
        self.channels: RemoteChannels | None = None

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        if self.channels is None:
            msg = f"{self._role.subtask} sent a frame before its attempt was started"
            raise RuntimeError(msg)
        self.channels.send(channel, first_sequence_number, elements)

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        self.report(Acknowledged(self._role.subtask, checkpoint_id, snapshot, metrics))

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        if reason in _CAUSED_HERE:
            logger.warning("%s gives checkpoint %d up: %s", self._role.subtask, checkpoint_id, detail)
        self.report(Declined(self._role.subtask, checkpoint_id, reason, detail))

    def operator_event(self, operator_id: str, event: Any) -> None:
        self.report(EventForCoordinator(self._role.subtask, operator_id, event))

    def end_of_data(self) -> None:
        self.report(ReachedEndOfData(self._role.subtask))

    def report(self, report: SubtaskReport) -> None:
        """Send a report; returns at once."""
        self._loop.call_soon_threadsafe(self._begin, report)

    def close(self) -> None:
        """Stop repeating reports and sending frames: the attempt is over."""
        self._closed = True
        if self.channels is not None:
            self.channels.close()

    def _begin(self, report: SubtaskReport) -> None:
        task = self._loop.create_task(self._send(report))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, report: SubtaskReport) -> None:
        def make() -> Any:
            return self._master.report.remote(self._role, report)

        try:
            await RepeatedCall[None](make, "the JobMaster", self._patience).awaited()
        except ray.exceptions.ActorUnavailableError:
            pass  # the attempt is over
        except ray.exceptions.RayActorError as error:
            logger.warning("the JobMaster is gone, a report was not delivered: %s", error)
        except Exception:
            # The report made the JobMaster fail, and it handles that itself; repeating would not help.
            logger.exception("the JobMaster could not take a %s", type(report).__name__)

    def _patience(self, error: BaseException) -> float | None:
        return None if self._closed else _repeat(error)


T = TypeVar("T")


class RayMaster:
    """Asks and ends the JobMaster of one job (the `GuardedMaster` port); everything runs on the event loop.

    Attributes:
        handle: The JobMaster; `None` before it has deployed anything here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.handle: ActorHandle[Any] | None = None
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def ask_master(self, reply: Reply[None]) -> None:
        """Call `answers`; before the first deployment there is no JobMaster to call."""
        handle: Any = self.handle
        if handle is None:
            self._loop.call_soon(reply, Away())
        else:
            self._spawn(_reply(handle.answers.remote(), reply))

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        self._spawn(_reply(_processor_time(place), reply))

    def end_master(self, place: Place, why: str) -> None:
        logger.error("pid %d on node %s is killed: %s", place.pid, place.node_id[:8], why)
        self._spawn(_end(place))

    def fell_silent(self, place: Place, silence: Silence) -> None:
        logger.warning("the JobMaster (pid %d on node %s): %s", place.pid, place.node_id[:8], silence)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _processor_time(place: Place) -> float:
    times = await on_node(place.node_id, processor_times, [place])
    if place not in times:
        msg = f"there is no process {place.pid} any more"
        raise ProcessLookupError(msg)
    return times[place]


async def _end(place: Place) -> None:
    try:
        if not await on_node(place.node_id, end_process, place):
            logger.warning("the JobMaster (pid %d) has ended before it was killed", place.pid)
    except ray.exceptions.RayError as error:
        logger.warning("the JobMaster (pid %d) can't be killed: %s", place.pid, error)


async def _reply(call: Awaitable[T], reply: Reply[T]) -> None:
    answer: T | CallFailure
    try:
        answer = await call
    except ray.exceptions.ActorUnavailableError:
        answer = Away()
    except ray.exceptions.RayActorError as error:
        answer = Died(str(error))
    except Exception as error:  # the node's, or the call's own
        answer = Raised(cause_of(error))
    reply(answer)
