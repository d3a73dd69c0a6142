"""The sending end of remote channels: frames as actor calls, credits as their returns.

A frame is sent from the task thread with a plain remote call; its answer arrives in one of Ray's threads
and is posted to the task's mailbox, so nothing here waits and nothing is awaited per record.

A call can be lost while its receiver lives (a broken connection): the same frame with the same numbers is
sent again, and the receiver drops what it already has. A receiver that died ends the channel silently: the
JobMaster sees the death itself and restarts the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.background import Post
from penstock.actors.subtask.deliveries import DeliveryAnswer
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.subtask_id import SubtaskId

#: Seconds before a frame is sent again.
RESEND_DELAY = 0.2

_CONSUMED, _STALE = DeliveryAnswer.CONSUMED.value, DeliveryAnswer.STALE.value


@dataclass(frozen=True, slots=True)
class RemoteChannelStatistics:
    """Counters of all outgoing channels of a subtask.

    Attributes:
        frames: Frames sent, without repetitions.
        resent: Frames sent again after a call was lost.
        ended: Channels whose receiver is gone or has moved on.
    """

    frames: int
    resent: int
    ended: int


class RemoteChannels:
    """Sends the frames of one attempt of one subtask.

    Args:
        attempt: The attempt; travels in every call.
        peers: Receiving actors by subtask.
        post: Brings a callable into the task thread.
        frame_consumed: Told, in the task thread, that a frame was consumed.
    """

    def __init__(
        self,
        attempt: int,
        peers: Mapping[SubtaskId, ActorHandle[Any]],
        post: Post,
        frame_consumed: Callable[[OutputChannelSpec, int], None],
    ) -> None:
        self._attempt = attempt
        self._peers = peers
        self._post = post
        self._frame_consumed = frame_consumed
        self._ended: set[OutputChannelSpec] = set()
        self._frames = self._resent = 0
        self._closed = False

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        """Send a frame; called in the task thread."""
        self._frames += 1
        self._call(channel, first_sequence_number, elements)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True

    def statistics(self) -> RemoteChannelStatistics:
        """Counters."""
        return RemoteChannelStatistics(self._frames, self._resent, len(self._ended))

    def _call(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        if self._closed or channel in self._ended:
            return
        receiver: Any = self._peers[channel.receiver]
        call = receiver.deliver.remote(self._attempt, channel.channel, first, elements)
        answer: Future[int] = call.future()

        def answered(future: Future[int]) -> None:
            error = future.exception()
            if error is None and future.result() == _CONSUMED:
                self._post(lambda: self._frame_consumed(channel, first))
            elif error is None and future.result() == _STALE:
                self._post(lambda: self._ended.add(channel))
            elif error is None or isinstance(error, ray.exceptions.ActorUnavailableError):
                self._resend_later(channel, first, elements)
            elif isinstance(error, ray.exceptions.RayActorError):
                self._post(lambda: self._ended.add(channel))
            else:
                self._post(lambda: _raise(error))

        answer.add_done_callback(answered)

    def _resend_later(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        def resend() -> None:
            self._resent += 1
            self._call(channel, first, elements)

        timer = threading.Timer(RESEND_DELAY, lambda: self._post(resend))
        timer.daemon = True
        timer.start()


def _raise(error: BaseException) -> None:
    raise error
