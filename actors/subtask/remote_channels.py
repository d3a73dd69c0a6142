"""The sending end of remote channels: frames as actor calls, credits as their returns.

The task thread sends a frame with a plain remote call. The answer arrives in one of Ray's threads and is
posted to the task's mailbox, so nothing here waits.

A call can be lost while its receiver lives, by a broken connection. The same frame with the same numbers is
then sent again, and the receiver drops duplicates. A receiver that died ends the channel: either it has
finished, or the JobMaster sees the death itself and restarts the job.

Ray copies an argument of up to 100 kB into the call. A larger one goes through the object store. That takes
messages to the raylet at either end, and more processor time than the rest of the call. So a frame that is
larger is cut into several arguments. One of many megabytes stays whole: the object store shares its memory
with receivers on the same machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, TypeAlias, cast

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.system_ports import Post
from penstock.runtime.execution.deliveries import DeliveryAnswer, SenderStep, step_after
from penstock.runtime.execution.processes import Away, Died
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.ids import SubtaskId

#: Maximum bytes of an argument that Ray copies into the call, less Ray's own overhead.
_ARGUMENT_BYTES: Final = 96_000
#: Maximum bytes of a frame that is cut.
_CUT_BYTES: Final = 1_000_000


#: The first argument of a frame: its elements, or their sizes when their bytes follow in pieces.
FirstArgument: TypeAlias = list[bytes] | list[int]


def arguments_of(elements: list[bytes]) -> list[FirstArgument | bytes]:
    """The arguments for a frame: its elements; or their sizes, then their bytes in pieces.

    Example:
        >>> arguments_of([b"one", b"two"])
        [[b'one', b'two']]
        >>> [len(argument) for argument in arguments_of([b"x" * 100_000, b"y"])]
        [2, 96000, 4001]
    """
    size = sum(map(len, elements))
    if not _ARGUMENT_BYTES < size <= _CUT_BYTES:
        return [elements]
    joined = b"".join(elements)
    pieces = (joined[start : start + _ARGUMENT_BYTES] for start in range(0, size, _ARGUMENT_BYTES))
    return [[len(element) for element in elements], *pieces]


def elements_of(first: FirstArgument, pieces: Sequence[bytes]) -> list[bytes]:
    """Reassemble the elements of a frame.

    Example:
        >>> sizes, *pieces = arguments_of([b"x" * 100_000, b"y"])
        >>> [len(element) for element in elements_of(sizes, pieces)]
        [100000, 1]
    """
    if not pieces:
        return cast("list[bytes]", first)
    joined = b"".join(pieces)
    ends = list(accumulate(cast("list[int]", first)))
    return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]


#: Seconds before a frame is sent again.
RESEND_DELAY = 0.2


@dataclass(frozen=True, slots=True)
class RemotePeer:
    """The receiver of a channel.

    Attributes:
        role: Expected role; its token and attempt are in every call.
    """

    handle: ActorHandle[Any]
    role: Role


class RemoteChannels:
    """Sends the frames of one attempt of one subtask.

    Args:
        post: Schedules a callable in the task thread.
        frame_consumed: Called in the task thread when a frame was consumed.
        receiver_gone: Called in the task thread when the receiver of a channel has ended.
    """

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

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        self._call(channel, first_sequence_number, elements)

    def close(self) -> None:
        self._closed = True

    def _call(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
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
            self._call(channel, first, elements)

        timer = threading.Timer(RESEND_DELAY, lambda: self._post(resend))
        timer.daemon = True
        timer.start()


def _failure(error: BaseException) -> Died | Away:
    return Away() if isinstance(error, ray.exceptions.ActorUnavailableError) else Died(str(error))


def _raise(error: BaseException) -> None:
    raise error
