"""The sending end of remote channels, with receivers whose connections break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from unsteady import DEAD, Unsteady

from penstock.actors.subtask.frame_arguments import FirstArgument, elements_of
from penstock.actors.subtask.remote_channels import RemoteChannels, RemotePeer
from penstock.runtime.execution.deliveries import DeliveryAnswer
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.subtask_id import SubtaskId

RECEIVER = SubtaskId("sink", 0)
CHANNEL = OutputChannelSpec(RECEIVER, 0)


class Receiver:
    """Consumes frames, or says that they are stale."""

    def __init__(self, answer: DeliveryAnswer = DeliveryAnswer.CONSUMED) -> None:
        self._answer = answer
        self.elements: list[bytes] = []

    def deliver(
        self, token: str, attempt: int, channel: int, first: int, frame: FirstArgument, *pieces: bytes
    ) -> int:
        self.elements += elements_of(frame, pieces)
        return self._answer.value


class Sender:
    """A task thread that does at once what is posted."""

    def __init__(self, receiver: Unsteady) -> None:
        self.receiver = receiver
        self.heard: list[object] = []
        peer = RemotePeer(cast("Any", receiver), Role("job", RECEIVER, 1, "token"))
        self.channels = RemoteChannels(
            {RECEIVER: peer}, self._post, lambda channel, first: self.heard.append(first), self.heard.append
        )

    def _post(self, mail: Callable[[], None]) -> None:
        mail()


def test_a_receiver_that_died_is_gone_also_when_it_had_consumed_the_frame() -> None:
    sender = Sender(Unsteady(Receiver(), {"deliver": 1}, arrives=True, error=DEAD))
    sender.channels.send(CHANNEL, 0, [b"end"])
    assert sender.heard == [CHANNEL]


def test_a_receiver_that_is_gone_is_sent_nothing_more_and_told_of_once() -> None:
    sender = Sender(Unsteady(Receiver(DeliveryAnswer.STALE), {}))
    for first in range(3):
        sender.channels.send(CHANNEL, first, [b"row"])
    assert sender.heard == [CHANNEL]
    assert len(sender.receiver.calls) == 1


@pytest.mark.parametrize("first", [0, 7])
def test_a_consumed_frame_gives_its_credit_back(first: int) -> None:
    sender = Sender(Unsteady(Receiver(), {}))
    sender.channels.send(CHANNEL, first, [b"row"])
    assert sender.heard == [first]


def test_a_large_frame_arrives_with_its_elements() -> None:
    receiver = Receiver()
    elements = [b"x" * 250_000, b"y", b"z" * 100_000]
    Sender(Unsteady(receiver, {})).channels.send(CHANNEL, 0, elements)
    assert receiver.elements == elements
