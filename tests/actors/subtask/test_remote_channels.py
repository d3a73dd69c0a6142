"""The sending end of remote channels, with receivers whose connections break."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from unsteady import DEAD, Unsteady

from penstock.actors.subtask import gateway
from penstock.actors.subtask.gateway import FirstArgument, RemoteChannels, RemotePeer, elements_of
from penstock.runtime.execution.processes import DeliveryAnswer
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.ids import SubtaskId

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
    """A task thread that runs posted mail at once."""

    def __init__(self, receiver: Unsteady, on_news: Callable[[], None] = lambda: None) -> None:
        self.receiver = receiver
        self.heard: list[object] = []
        self.is_held = False
        self.held: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._on_news = on_news
        peer = RemotePeer(cast("Any", receiver), Role("job", RECEIVER, 1, "token"))
        self.channels = RemoteChannels(
            {RECEIVER: peer}, self._post, lambda channel, first: self._hear(first), self._hear
        )

    def raised(self, act: Callable[[], None]) -> None:
        """Call a function, then run the mail that it has posted."""
        self.is_held = True
        act()
        self.held.get(timeout=15)()

    def _hear(self, news: object) -> None:
        self.heard.append(news)
        self._on_news()

    def _post(self, mail: Callable[[], None]) -> None:
        if self.is_held:
            self.held.put(mail)
        else:
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


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "only its answer is lost"])
def test_a_frame_is_sent_again_with_its_number_when_the_connection_breaks(
    monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """A broken connection says nothing of the receiver: the channel continues."""
    monkeypatch.setattr(gateway, "RESEND_DELAY", 0.001)
    told, receiver = threading.Event(), Receiver()
    sender = Sender(Unsteady(receiver, {"deliver": 2}, arrives=arrives), told.set)
    sender.channels.send(CHANNEL, 5, [b"row"])
    assert told.wait(15), "neither consumed nor gone"
    assert sender.heard == [5]
    assert [call[4] for call in sender.receiver.calls] == [5, 5, 5]
    assert set(receiver.elements) == {b"row"}


def test_a_frame_that_waits_to_be_sent_again_is_dropped_with_the_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "RESEND_DELAY", 0.001)
    sender = Sender(Unsteady(Receiver(), {"deliver": 1}))
    sender.is_held = True
    sender.channels.send(CHANNEL, 0, [b"row"])
    mail = sender.held.get(timeout=15)
    sender.channels.close()
    mail()
    assert (sender.heard, len(sender.receiver.calls)) == ([], 1)


def test_a_connection_that_is_back_is_used_within_a_second_and_not_asked_without_pause() -> None:
    assert 0 < gateway.RESEND_DELAY < 1


def test_a_frame_that_waits_to_be_sent_again_does_not_keep_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "RESEND_DELAY", 300)
    before = threading.enumerate()
    Sender(Unsteady(Receiver(), {"deliver": 1})).channels.send(CHANNEL, 0, [b"row"])
    [timer] = [t for t in threading.enumerate() if isinstance(t, threading.Timer) and t not in before]
    assert timer.daemon
    timer.cancel()


def test_an_error_of_the_receiver_is_an_error_of_the_sender() -> None:
    """Such an error does not mean that the receiver has died: the attempt fails with it."""
    sender = Sender(Unsteady(Receiver(), {"deliver": 1}, error=ValueError("a bug of the receiver")))
    with pytest.raises(ValueError, match="a bug of the receiver"):
        sender.raised(lambda: sender.channels.send(CHANNEL, 0, [b"row"]))
    assert sender.held.empty()
    assert sender.heard == []


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
