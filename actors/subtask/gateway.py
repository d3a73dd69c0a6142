"""Outgoing calls of a subtask: frames to other subtasks, and reports to its JobMaster.

**Frames.** The task thread sends a frame with a plain remote call. The answer arrives in one of Ray's threads
and is posted to the task's mailbox, so no call here blocks. A broken connection can lose a call while its
receiver lives. The same frame is then sent again with the same numbers, and the receiver drops duplicates.
The death of a receiver ends the channel: either the receiver has finished, or the JobMaster notices its death
and restarts the job.

Ray copies an argument of up to 100 kB into the call. A larger argument goes through the object store, which
costs more than the rest of the call. So a larger frame is cut into several arguments. A frame of more than a
megabyte stays whole: the object store shares its memory with receivers on the same machine.

**Reports.** No report may be lost. A report without an answer is repeated while the JobMaster lives or
restarts. The JobMaster ignores repeated and outdated reports.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from pickle import PickleBuffer
from typing import Any, Final, TypeAlias, TypeVar, cast

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.actor_calls import RepeatedCall, ray_text, while_unavailable
from penstock.actors.shared.node_processes import end_process, on_node, processor_times
from penstock.actors.shared.system_ports import Post, spawn
from penstock.runtime.execution.failure_causes import cause_of
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    DeliveryAnswer,
    Died,
    Place,
    Raised,
    Reply,
    SenderStep,
    step_after,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.job.job_state import (
    Acknowledged,
    Declined,
    EventForCoordinator,
    ReachedEndOfData,
    SubtaskReport,
    Warned,
)
from penstock.runtime.record.element_codec import EncodedElement
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId

#: Maximum bytes of an argument that Ray copies into the call, less Ray's own overhead.
_ARGUMENT_BYTES: Final = 96_000
#: Maximum bytes of a frame that is cut into arguments; a larger frame stays whole.
_CUT_BYTES: Final = 1_000_000


#: An element as it is sent. Ray copies a `PickleBuffer` once into its store, where the receiver maps it. Ray
#: copies bytes two more times.
SentElement: TypeAlias = bytes | PickleBuffer

#: The first argument of a frame: its elements, or the sizes of its elements if their bytes follow in pieces.
FirstArgument: TypeAlias = list[SentElement] | list[int]


def arguments_of(elements: list[bytes]) -> list[FirstArgument | bytes]:
    """Return a frame's elements, or their sizes followed by their bytes in pieces.

    Example:
        >>> sizes, *pieces = arguments_of([b"x" * 100_000, b"y"])
        >>> sizes, [len(piece) for piece in pieces]
        ([100000, 1], [96000, 4001])
    """
    size = sum(map(len, elements))
    if size <= _ARGUMENT_BYTES:
        return [list[SentElement](elements)]
    if size > _CUT_BYTES:
        return [[PickleBuffer(each) if len(each) > _ARGUMENT_BYTES else each for each in elements]]
    joined = b"".join(elements)
    pieces = (joined[start : start + _ARGUMENT_BYTES] for start in range(0, size, _ARGUMENT_BYTES))
    return [[len(element) for element in elements], *pieces]


def elements_of(first: FirstArgument, pieces: Sequence[bytes]) -> list[EncodedElement]:
    if not pieces:
        whole = cast("list[SentElement]", first)
        return [each if isinstance(each, bytes) else memoryview(each).cast("B") for each in whole]
    joined = b"".join(pieces)
    ends = list(accumulate(cast("list[int]", first)))
    return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]


#: Seconds before a frame is sent again.
RESEND_DELAY = 0.2


@dataclass(frozen=True, slots=True)
class RemotePeer:
    """The receiver of a channel; every call carries its role's token and attempt."""

    handle: ActorHandle[Any]
    role: Role


class RemoteChannels:
    """Sends the frames of one attempt; callbacks run in the task thread, through `post`."""

    def __init__(
        self,
        peers: Mapping[SubtaskId, RemotePeer],
        post: Post,
        frame_consumed: Callable[[OutputChannelSpec, int], None],
        receiver_gone: Callable[[OutputChannelSpec], None],
    ) -> None:
        self._peers = peers
        self._post = post
        self._frame_consumed = frame_consumed
        self._receiver_gone = receiver_gone
        self._ended: set[OutputChannelSpec] = set()
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        if self._closed or channel in self._ended:
            return
        peer = self._peers[channel.receiver]
        receiver: Any = peer.handle
        call = receiver.deliver.remote(
            peer.role.token, peer.role.attempt, channel.channel, first, *arguments_of(elements)
        )
        answer: Future[int] = call.future()

        def answered(future: Future[int]) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, ray.exceptions.RayActorError):
                self._post(lambda: _raise(error))
                return
            match step_after(DeliveryAnswer(future.result()) if error is None else _failure(error)):
                case SenderStep.TAKE_CREDIT:
                    self._post(lambda: self._frame_consumed(channel, first))
                case SenderStep.END_CHANNEL:
                    self._post(lambda: self._end(channel))
                case SenderStep.SEND_AGAIN:
                    self._resend_later(channel, first, elements)

        answer.add_done_callback(answered)

    def _end(self, channel: OutputChannelSpec) -> None:
        if channel not in self._ended:
            self._ended.add(channel)
            self._receiver_gone(channel)

    def _resend_later(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        def resend() -> None:
            self.send(channel, first, elements)

        timer = threading.Timer(RESEND_DELAY, lambda: self._post(resend))
        timer.daemon = True
        timer.start()


def _failure(error: BaseException) -> Died | Away:
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return Away()
    return Died(ray_text(error))


def _raise(error: BaseException) -> None:
    raise error


logger = logging.getLogger(__name__)

#: Reports are repeated as long as the attempt lasts.
_repeat = while_unavailable()


#: Decline reasons that arise in this process, which therefore logs them.
_CAUSED_HERE: Final = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED,
        CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED,
    }
)


class MasterLink:
    """The `SubtaskGateway` of one attempt.

    Any thread may call `report` and `close`; the task thread calls the rest. Reports are sent on the event
    loop, frames in the task thread.

    Attributes:
        channels: The channels, set before the first step.
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
            logger.warning("%s declines checkpoint %d: %s", self._role.subtask, checkpoint_id, detail)
        self.report(Declined(self._role.subtask, checkpoint_id, reason, detail))

    def operator_event(self, operator_id: str, event: Any) -> None:
        self.report(EventForCoordinator(self._role.subtask, operator_id, event))

    def warn(self, operator_id: str, text: str) -> None:
        self.report(Warned(self._role.subtask, operator_id, text))

    def end_of_data(self) -> None:
        self.report(ReachedEndOfData(self._role.subtask))

    def report(self, report: SubtaskReport) -> None:
        """Send a report; returns at once."""
        self._loop.call_soon_threadsafe(lambda: spawn(self._loop, self._send(report)))

    def close(self) -> None:
        """Stop repeating reports and sending frames: the attempt is over."""
        self._closed = True
        if self.channels is not None:
            self.channels.close()

    async def _send(self, report: SubtaskReport) -> None:
        def make() -> Any:
            return self._master.report.remote(self._role, report)

        try:
            await RepeatedCall[None](make, "the JobMaster", self._patience).awaited()
        except ray.exceptions.ActorUnavailableError:
            pass  # the attempt is over
        except ray.exceptions.RayActorError as error:
            logger.warning("the JobMaster has died, so a report was not delivered: %s", error)
        except Exception:
            # The JobMaster failed on this report, and handles its own failure. A repeat would fail, too.
            logger.exception("the JobMaster could not process a %s", type(report).__name__)

    def _patience(self, error: BaseException) -> float | None:
        return None if self._closed else _repeat(error)


T = TypeVar("T")


async def settled(call: Awaitable[T]) -> T | CallFailure:
    """Await the call of an actor; return its answer, or a `CallFailure` for any error."""
    try:
        return await call
    except ray.exceptions.RayActorError as error:
        return _failure(error)
    except Exception as error:  # raised by the called method
        return Raised(cause_of(error))


class RayMaster:
    """The `GuardedMaster` of a process; `handle` is `None` before the first deployment of each role."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.handle: ActorHandle[Any] | None = None
        self._loop = loop

    def ask_master(self, reply: Reply[None]) -> None:
        """Call the JobMaster's method `answers`; before the first deployment no JobMaster is known."""
        handle: Any = self.handle
        if handle is None:
            self._loop.call_soon(reply, Away())
        else:
            spawn(self._loop, _reply(handle.answers.remote(), reply))

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        spawn(self._loop, _reply(_processor_time(place), reply))

    def end_master(self, place: Place, why: str) -> None:
        logger.error("pid %d on node %s is killed: %s", place.pid, place.node_id[:8], why)
        spawn(self._loop, _end(place))

    def fell_silent(self, place: Place, silence: Silence) -> None:
        logger.warning("the JobMaster (pid %d on node %s): %s", place.pid, place.node_id[:8], silence)


async def _processor_time(place: Place) -> float:
    times = await on_node(place.node_id, processor_times, [place])
    if place not in times:
        msg = f"process {place.pid} no longer exists"
        raise ProcessLookupError(msg)
    return times[place]


async def _end(place: Place) -> None:
    try:
        if not await on_node(place.node_id, end_process, place):
            logger.warning("the JobMaster (pid %d) has ended before it was killed", place.pid)
    except ray.exceptions.RayError as error:
        logger.warning("the JobMaster (pid %d) can't be killed: %s", place.pid, error)


async def _reply(call: Awaitable[T], reply: Reply[T]) -> None:
    reply(await settled(call))
