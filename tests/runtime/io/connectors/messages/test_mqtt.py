"""A source subscribes at a real MQTT broker: each message comes at least once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from polling import covered, eventually, failure_of, polled
from serving.kafka import free_ports
from serving.mqtt import MOST_IN_FLIGHT, PASSWORD, USER, MqttBroker, mqtt_broker

from penstock import ConfigurationError, JobConfig
from penstock.mqtt import MqttSource
from penstock.runtime.errors import OperatorError
from penstock.testing import SourceHarness


class Topic:
    """A topic and a session of its own."""

    def __init__(self, broker: MqttBroker, protocol: Any) -> None:
        self.broker = broker
        self.name = f"t-{uuid.uuid4().hex}"
        self._protocol = protocol

    def source(self, **settings: Any) -> MqttSource[Any]:
        port = self.broker.port_5 if self._protocol == "5" else self.broker.port
        user = {"username": USER, "password": PASSWORD, "port": port, "protocol": self._protocol}
        return MqttSource("127.0.0.1", f"{self.name}/#", client_id=self.name, **{**user, **settings})

    def subscribed(self, harness: SourceHarness) -> None:
        """Wait until the source has subscribed."""
        eventually(lambda: self.put(-1) or harness.poll(1), "a message comes")
        self.put(-2)
        eventually(lambda: -2 in harness.poll(1), "the last one comes")
        covered(harness)

    def put(self, *values: Any, qos: int = 1) -> None:
        data = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        self.broker.publish(f"{self.name}/a", data, qos)


@pytest.fixture(params=["5", "3.1.1"])
def topic(shared_mqtt: MqttBroker, request: pytest.FixtureRequest) -> Topic:
    return Topic(shared_mqtt, request.param)


def numbers_of(harness: SourceHarness, count: int) -> list[int]:
    """The numbers of so many messages, in their order, without those that only wake up."""
    found: list[int] = []
    while len(found) < count:
        found += [number for number in polled(harness, 1, max_rows=1) if number >= 0]
    return found


def test_messages_are_acknowledged_only_when_a_completed_checkpoint_covers_them(topic: Topic) -> None:
    with SourceHarness(topic.source()) as harness:
        topic.subscribed(harness)
        topic.put(*range(6))
        assert numbers_of(harness, 2) == [0, 1]
        snapshot = covered(harness)
        assert numbers_of(harness, 2) == [2, 3]
        harness.snapshot()
    with SourceHarness(topic.source(), restored=[snapshot], attempt=2) as harness:
        assert numbers_of(harness, 4) == [2, 3, 4, 5]
        covered(harness)
    with SourceHarness(topic.source(), restored=[snapshot], attempt=3) as harness:
        topic.put(6)
        assert numbers_of(harness, 1) == [6]


def test_messages_that_come_while_the_job_does_not_run_are_kept(topic: Topic) -> None:
    with SourceHarness(topic.source()) as harness:
        topic.subscribed(harness)
        snapshot = covered(harness)
    topic.put(1, 2)
    with SourceHarness(topic.source(), restored=[snapshot], attempt=2) as harness:
        assert numbers_of(harness, 2) == [1, 2]


def test_reads_wait_at_the_limit_while_checkpoints_are_late(topic: Topic) -> None:
    """In version 5 it is that of the source, in version 3.1.1 that of the broker."""
    with SourceHarness(topic.source(max_unacknowledged=MOST_IN_FLIGHT)) as harness:
        topic.subscribed(harness)
        topic.put(*range(MOST_IN_FLIGHT + 50))
        found = numbers_of(harness, MOST_IN_FLIGHT)
        late = harness.snapshot()
        assert harness.poll() == []
        harness.complete_checkpoint(late)
        found += numbers_of(harness, 50)
    assert found == list(range(MOST_IN_FLIGHT + 50))


def test_fields_of_the_message_stand_beside_those_of_the_value(topic: Topic) -> None:
    with SourceHarness(topic.source(metadata=("topic", "qos", "retain"))) as harness:
        eventually(lambda: topic.put({"n": 1}) or harness.poll(), "a message comes")
        topic.put({"n": 2})
        rows = eventually(lambda: [row for row in harness.poll() if row["n"] == 2], "the other one comes")
    assert rows == [{"n": 2, "topic": f"{topic.name}/a", "qos": 1, "retain": False}]


def test_reads_continue_when_the_broker_was_killed_and_has_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mqtt_broker(tmp_path) as broker:
        topic = Topic(broker, "5")
        with SourceHarness(topic.source()) as harness:
            topic.subscribed(harness)
            broker.kill()
            broker.start()
            eventually(lambda: topic.put(7) or harness.poll(), "a message comes")
            covered(harness)
    assert "has no session of" in caplog.text


def test_messages_that_no_completed_checkpoint_covers_come_again(topic: Topic) -> None:
    with SourceHarness(topic.source()) as before:
        topic.subscribed(before)
        topic.put(1, 2)
        assert numbers_of(before, 2) == [1, 2]
        before.snapshot()  # it is not completed
    with SourceHarness(topic.source(), attempt=2) as harness:
        assert numbers_of(harness, 2) == [1, 2]


def test_an_acknowledgement_of_an_earlier_connection_is_never_sent(shared_mqtt: MqttBroker) -> None:
    topic = Topic(shared_mqtt, "3.1.1")
    with SourceHarness(topic.source()) as harness:
        topic.subscribed(harness)
        topic.put(1, 2)
        assert numbers_of(harness, 2) == [1, 2]
        late = harness.snapshot()
        shared_mqtt.take_over(topic.name)
        assert numbers_of(harness, 2) == [1, 2]  # with the same packet ids
        harness.complete_checkpoint(late)
    with SourceHarness(topic.source(), attempt=2) as harness:
        assert numbers_of(harness, 2) == [1, 2]


def test_values_that_can_not_be_decoded_become_dead_letters_with_their_topic(topic: Topic) -> None:
    with SourceHarness(topic.source(on_error="dead_letter")) as harness:
        topic.subscribed(harness)
        topic.put(b"{")
        eventually(lambda: harness.poll() or harness.dead_letters, "it is found")
    (letter,) = harness.dead_letters
    assert (letter.record, letter.origin) == (b"{", f"topic '{topic.name}/a'")


def test_a_wrong_password_fails_the_job_and_is_not_shown(topic: Topic) -> None:
    source = topic.source(password="wrong-word", give_up_after=0.1)
    assert "wrong-word" not in failure_of(source) + repr(source)


def test_a_broker_that_stays_away_fails_the_attempt() -> None:
    (port,) = free_ports(1)
    source: Any = MqttSource("127.0.0.1", "t", client_id="c", port=port, give_up_after=0.2)
    with SourceHarness(source) as harness, pytest.raises(OperatorError, match=r"no answer for 0\.2 s"):
        polled(harness, 1)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_of_certificates_that_can_not_be_loaded_is_no_broker_without_an_answer(
    tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    source: Any = MqttSource("localhost", "t", client_id="c", tls=True, ca_file=str(file), give_up_after=0.1)
    assert f"the certificates in '{file}' can't be loaded" in failure_of(source)


def test_a_job_without_checkpoints_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="this job takes none"):
        MqttSource("localhost", "t", client_id="c").check_job_config(JobConfig())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"protocol": "4"}, "protocol='4' is not allowed"),
        ({"topics": ()}, "give one or more names"),
        ({"client_id": ""}, "give one or more names"),
        ({"max_unacknowledged": 70_000}, "use 1 to 65535"),
        ({"metadata": ("offset",)}, "metadata='offset' is not allowed"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: Any, why: str) -> None:
    make: Callable[..., Any] = MqttSource
    with pytest.raises(ConfigurationError, match=why):
        make(**{"host": "localhost", "topics": "t", "client_id": "c", **settings})
