"""A source reads streams of a real NATS server, each message once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nats.js.api import ConsumerInfo, RetentionPolicy, StreamState
from polling import covered, eventually, failure_of, lag_of, polled, read
from serving.nats import PASSWORD, NatsServer, nats_server

from penstock import Checkpointing, ConfigurationError, DiscardSink, JobConfig, StreamEnvironment
from penstock.formats import Json
from penstock.nats import JetStreamSource
from penstock.runtime.errors import OperatorError
from penstock.runtime.graph.executor import check_job
from penstock.runtime.io.connectors.jetstream_receiver import JetStreamReceiver
from penstock.testing import SourceHarness

RETENTIONS = [RetentionPolicy.LIMITS, RetentionPolicy.INTEREST, RetentionPolicy.WORK_QUEUE]


class Stream:
    """A stream of its own, with subjects `NAME.*`."""

    def __init__(self, server: NatsServer, retention: RetentionPolicy = RetentionPolicy.LIMITS) -> None:
        self.server = server
        self.name = f"s-{uuid.uuid4().hex}"
        server.run(lambda js: js.add_stream(name=self.name, subjects=[f"{self.name}.*"], retention=retention))

    def source(self, **settings: Any) -> JetStreamSource[Any]:
        return JetStreamSource(self.server.url, self.name, **{"consumer": self.name, **settings})

    def put(self, *values: Any, subject: str = "a", headers: Any = None) -> None:
        async def publish(js: Any) -> None:
            for value in values:
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                await js.publish(f"{self.name}.{subject}", data, headers=headers)

        self.server.run(publish)

    def purge(self, below: int) -> None:
        self.server.run(lambda js: js.purge_stream(self.name, seq=below))

    def consumers(self) -> list[ConsumerInfo]:
        found: list[ConsumerInfo] = self.server.run(lambda js: js.consumers_info(self.name))
        return found

    def floor(self) -> int:
        """Up to where its only consumer has acknowledged."""
        (consumer,) = self.consumers()
        assert consumer.ack_floor is not None
        return consumer.ack_floor.stream_seq

    def state(self) -> StreamState:
        found: StreamState = self.server.run(lambda js: js.stream_info(self.name)).state
        return found


@pytest.fixture
def stream(shared_nats: NatsServer) -> Stream:
    return Stream(shared_nats)


@pytest.fixture
def make_stream(shared_nats: NatsServer) -> Callable[[RetentionPolicy], Stream]:
    return lambda retention: Stream(shared_nats, retention)


@pytest.fixture
def own_server(tmp_path: Path) -> Any:
    with nats_server(tmp_path / "nats") as started:
        yield started


def numbers(count: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(count)]


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_each_message_is_read_once_in_its_order(stream: Stream, batch_format: Any) -> None:
    stream.put(*numbers(300))
    form = Json(pa.schema([("n", pa.int64())]))
    assert read(stream.source(bounded=True, batch_format=batch_format, value_format=form)) == numbers(300)


def test_fields_of_the_message_stand_beside_those_of_the_value(stream: Stream) -> None:
    stream.put({"n": 1}, headers={"h": "x"})
    fields = ("subject", "sequence", "timestamp", "headers")
    (row,) = read(stream.source(bounded=True, metadata=fields))
    assert abs(row.pop("timestamp") - datetime.now(UTC).timestamp() * 1e6) < 3600e6
    headers = [{"name": "h", "value": "x"}]
    assert row == {"n": 1, "subject": f"{stream.name}.a", "sequence": 1, "headers": headers}


def test_each_filter_is_read_in_order_by_one_subtask(stream: Stream) -> None:
    subjects = [f"{stream.name}.{letter}" for letter in "abc"]
    for number in range(12):
        stream.put(number, subject="abc"[number % 3])
    found: list[Any] = []
    for subtask in range(2):
        source = stream.source(bounded=True, subjects=subjects)
        with SourceHarness(source, subtask=subtask, parallelism=2) as harness:
            mine = polled(harness, 8 if subtask == 0 else 4)
        found += mine
        for rest in range(3):
            assert [n for n in mine if n % 3 == rest] in ([], list(range(rest, 12, 3)))
    assert sorted(found) == list(range(12))


@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_restored_source_continues_behind_the_newest_checkpoint(
    make_stream: Callable[[RetentionPolicy], Stream], retention: RetentionPolicy
) -> None:
    stream = make_stream(retention)
    with SourceHarness(stream.source()) as harness:
        eventually(lambda: harness.poll(1) or stream.consumers(), "there is a consumer")
        stream.put(*range(6))
        assert polled(harness, 2, max_rows=1) == [0, 1]
        snapshot = covered(harness)
        assert polled(harness, 2, max_rows=1) == [2, 3]
        harness.snapshot()
    with SourceHarness(stream.source(), restored=[snapshot]) as harness:
        assert polled(harness, 4) == [2, 3, 4, 5]
        assert len(stream.consumers()) == 1


@pytest.mark.parametrize("retention", RETENTIONS)
def test_messages_are_acknowledged_only_when_a_completed_checkpoint_covers_them(
    make_stream: Callable[[RetentionPolicy], Stream], retention: RetentionPolicy
) -> None:
    stream = make_stream(retention)
    with SourceHarness(stream.source()) as harness:
        eventually(lambda: harness.poll(1) or stream.consumers(), "there is a consumer")
        stream.put(*range(4))
        polled(harness, 2, max_rows=1)
        aborted = harness.snapshot()
        polled(harness, 2, max_rows=1)
        assert (stream.floor(), stream.state().messages) == (0, 4)
        harness.complete_checkpoint(aborted)
        left = 4 if retention == RetentionPolicy.LIMITS else 2
        eventually(lambda: (stream.floor(), stream.state().messages) == (2, left), "two are acknowledged")
        covered(harness)
        eventually(lambda: stream.floor() == 4, "all are acknowledged")


def test_an_older_savepoint_reads_again_what_the_stream_still_has(stream: Stream) -> None:
    stream.put(*range(4))
    with SourceHarness(stream.source()) as harness:
        polled(harness, 1, max_rows=1)
        older = covered(harness)
        polled(harness, 3)
        covered(harness)
        eventually(lambda: stream.floor() == 4, "all are acknowledged")
    with SourceHarness(stream.source(), restored=[older]) as harness:
        assert polled(harness, 3) == [1, 2, 3]


@pytest.mark.parametrize("retention", RETENTIONS[1:])
@pytest.mark.parametrize("subjects", [">", "{}.*"])
def test_an_older_savepoint_of_a_stream_that_deletes_acknowledged_messages_is_an_error(
    make_stream: Callable[[RetentionPolicy], Stream], retention: RetentionPolicy, subjects: str
) -> None:
    stream = make_stream(retention)
    source = stream.source(subjects=subjects.format(stream.name))
    with SourceHarness(source) as harness:
        eventually(lambda: harness.poll(1) or stream.consumers(), "there is a consumer")
        stream.put(*range(4))
        polled(harness, 1, max_rows=1)
        older = covered(harness)
        polled(harness, 3)
        covered(harness)
        eventually(lambda: stream.floor() == 4, "all are acknowledged")
    failure = failure_of(source, restored=[older])
    assert "the job must continue at message 2, but later messages were acknowledged" in failure
    stream.put(4)
    relaxed = stream.source(subjects=subjects.format(stream.name), on_lost="continue")
    with SourceHarness(relaxed, restored=[older]) as harness:
        assert polled(harness, 1) == [4]


def test_messages_of_other_subjects_are_not_taken_for_later_ones(
    make_stream: Callable[[RetentionPolicy], Stream],
) -> None:
    stream = make_stream(RetentionPolicy.WORK_QUEUE)
    source = stream.source(subjects=[f"{stream.name}.a", f"{stream.name}.b"])
    stream.put(1, 2)
    stream.put(3, 4, subject="b")
    with SourceHarness(source) as harness:
        polled(harness, 4)
        snapshot = covered(harness)
        eventually(lambda: stream.state().messages == 0, "all are acknowledged")
        stream.put(5)  # no checkpoint covers it
        assert polled(harness, 1) == [5]
    with SourceHarness(source, restored=[snapshot]) as harness:
        assert polled(harness, 1) == [5]
    with SourceHarness(source, restored=[snapshot]) as harness:
        stream.put(6, subject="b")
        assert sorted(polled(harness, 2)) == [5, 6]


def test_messages_that_limits_have_deleted_are_an_error(stream: Stream) -> None:
    stream.put(*range(6))
    with SourceHarness(stream.source()) as harness:
        polled(harness, 2, max_rows=1)
        snapshot = harness.snapshot()
    stream.purge(below=3)
    with SourceHarness(stream.source(), restored=[snapshot]) as harness:
        assert polled(harness, 4) == [2, 3, 4, 5]
    stream.purge(below=4)
    assert "the stream begins at 4" in failure_of(stream.source(), restored=[snapshot])


def test_messages_that_limits_delete_in_front_of_a_slow_reader_are_an_error(stream: Stream) -> None:
    stream.put(*range(10))
    for on_lost in ("error", "continue"):
        with SourceHarness(stream.source(max_unacknowledged=4, on_lost=on_lost)) as harness:
            begin = stream.state().first_seq
            assert len(polled(harness, 4)) == 4
            stream.purge(below=begin + 5)
            covered(harness)
            if on_lost == "error":
                with pytest.raises(OperatorError, match="message 5, but the stream begins at 6"):
                    polled(harness, 1)
                stream.put(*range(10, 16))
            else:
                assert polled(harness, 4) == [10, 11, 12, 13]


def test_a_single_message_that_was_deleted_is_no_error(stream: Stream) -> None:
    stream.put(*range(4))
    stream.server.run(lambda js: js.delete_msg(stream.name, 3))
    with SourceHarness(stream.source()) as harness:
        assert polled(harness, 3) == [0, 1, 3]


def test_a_stream_that_was_created_again_is_an_error_or_is_read_from_its_beginning(stream: Stream) -> None:
    stream.put(*range(9))
    with SourceHarness(stream.source()) as harness:
        polled(harness, 9)
        snapshot = harness.snapshot()
    stream.server.run(lambda js: js.delete_stream(stream.name))
    stream.server.run(lambda js: js.add_stream(name=stream.name, subjects=[f"{stream.name}.*"]))
    stream.put(3)
    assert "the stream ends before it" in failure_of(stream.source(), restored=[snapshot])
    with SourceHarness(stream.source(on_lost="continue"), restored=[snapshot]) as harness:
        stream.put(4)
        assert polled(harness, 2) == [3, 4]


def test_reads_wait_at_the_limit_of_unacknowledged_messages_while_checkpoints_are_late(
    stream: Stream,
) -> None:
    stream.put(*range(10))
    with SourceHarness(stream.source(max_unacknowledged=4)) as harness:
        assert polled(harness, 4) == [0, 1, 2, 3]
        (consumer,) = stream.consumers()
        assert (consumer.num_ack_pending, consumer.num_pending) == (4, 6)
        late = harness.snapshot()
        assert harness.poll() == []
        harness.complete_checkpoint(late)
        assert polled(harness, 4) == [4, 5, 6, 7]
        covered(harness)
        assert polled(harness, 2) == [8, 9]


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("retention", RETENTIONS)
def test_the_lag_counts_what_was_not_emitted_although_it_was_received(
    make_stream: Callable[[RetentionPolicy], Stream], retention: RetentionPolicy
) -> None:
    stream = make_stream(retention)
    source = stream.source(subjects=[f"{stream.name}.a", f"{stream.name}.b"])
    with SourceHarness(source) as harness:
        eventually(lambda: harness.poll(1) or len(stream.consumers()) == 2, "there are consumers")
        stream.put(*range(20))
        assert polled(harness, 2, max_rows=1) == [0, 1]
        eventually(lambda: lag_of(harness) == {f"{stream.name}.a": 18, f"{stream.name}.b": 0}, "18 are left")
        snapshot = covered(harness)
        stream.put(20)
        eventually(lambda: lag_of(harness)[f"{stream.name}.a"] == 19, "another message has come")
    with SourceHarness(source, restored=[snapshot]) as harness:
        assert len(polled(harness, 9, max_rows=1)) == 9
        eventually(lambda: lag_of(harness).get(f"{stream.name}.a") == 10, "10 are left")


@pytest.mark.parametrize("retention", RETENTIONS)
def test_no_message_is_lost_or_doubled_when_the_server_is_killed(
    own_server: NatsServer, retention: RetentionPolicy
) -> None:
    stream = Stream(own_server, retention)
    with SourceHarness(stream.source()) as harness:
        eventually(lambda: harness.poll(1) or stream.consumers(), "there is a consumer")
        stream.put(*range(6))
        assert polled(harness, 2, max_rows=1) == [0, 1]
        snapshot = covered(harness)
        eventually(lambda: stream.floor() == 2, "two are acknowledged")
        assert polled(harness, 2, max_rows=1) == [2, 3]
        own_server.kill()
        own_server.start()
        stream.put(6)
        assert polled(harness, 3) == [4, 5, 6]
    with SourceHarness(stream.source(), restored=[snapshot]) as harness:
        assert polled(harness, 5) == [2, 3, 4, 5, 6]
        covered(harness)
        eventually(lambda: stream.floor() == 7, "all are acknowledged")


def test_a_reader_that_was_taken_for_dead_takes_no_message_from_its_successor(stream: Stream) -> None:
    with SourceHarness(stream.source()) as zombie:
        eventually(lambda: zombie.poll() or stream.consumers(), "there is a consumer")
        (first,) = stream.consumers()
        snapshot = zombie.snapshot()
        with SourceHarness(stream.source(), restored=[snapshot]) as harness:
            eventually(
                lambda: harness.poll() or [each.name for each in stream.consumers()] != [first.name],
                "the successor has its own",
            )
            stream.put(*range(4))
            assert polled(harness, 4) == [0, 1, 2, 3]
            with pytest.raises(OperatorError, match="was deleted, perhaps by a newer attempt"):
                polled(zombie, 5)


@pytest.mark.parametrize("filtered", [False, True])
def test_a_work_queue_is_read_although_an_earlier_attempt_makes_its_consumer_at_the_same_time(
    make_stream: Callable[[RetentionPolicy], Stream], monkeypatch: pytest.MonkeyPatch, filtered: bool
) -> None:
    stream = make_stream(RetentionPolicy.WORK_QUEUE)
    stream.put(*range(4))
    receiver = JetStreamReceiver
    delete, made = receiver._delete, []

    async def delete_too_early(self: Any, js: Any, consumers: Sequence[ConsumerInfo]) -> None:
        await delete(self, js, consumers)
        if not made:
            made.append(await self._create(js, await js.stream_info(stream.name)))

    monkeypatch.setattr(receiver, "_delete", delete_too_early)
    subjects = {"subjects": [f"{stream.name}.a"]} if filtered else {}
    with SourceHarness(stream.source(**subjects)) as harness:
        assert polled(harness, 4) == [0, 1, 2, 3]
        assert len(made) == 1
        assert made[0] not in [each.name for each in stream.consumers()]


def test_a_message_whose_delivery_is_missing_is_requested_again(stream: Stream) -> None:
    stream.put(*range(10))
    with SourceHarness(stream.source()) as harness:  # its inbox is full after five messages
        taken = eventually(
            lambda: [c.name for c in stream.consumers() if c.num_ack_pending == 5], "it is full"
        )

        async def take(js: Any) -> Any:
            return await (await js.pull_subscribe_bind(taken[0], stream.name)).fetch(3)

        assert [message.data for message in stream.server.run(take)] == [b"5", b"6", b"7"]
        assert polled(harness, 10) == list(range(10))


def test_a_source_starts_at_the_end_or_at_a_time(stream: Stream) -> None:
    stream.put(1)
    with SourceHarness(stream.source(starting_position="latest")) as harness:
        stream.put(2)
        assert polled(harness, 1) == [2]
    second = read(stream.source(bounded=True, metadata=("timestamp",)))[1]["timestamp"]
    for shift, found in ((-10, [2]), (10, [])):
        at = datetime.fromtimestamp((second + shift) / 1e6, UTC)
        assert read(stream.source(starting_position=at, bounded=True)) == found


def test_a_bounded_source_ends_at_the_message_that_was_the_last_even_if_it_is_deleted(
    stream: Stream,
) -> None:
    stream.put(1, 2, 3)
    with SourceHarness(stream.source(bounded=True, max_unacknowledged=2)) as harness:
        stream.put(4)
        assert polled(harness, 2) == [1, 2]
        stream.server.run(lambda js: js.delete_msg(stream.name, 3))
        covered(harness)
        eventually(lambda: harness.poll() or harness.is_finished, "the source ends")


def test_values_that_can_not_be_decoded_become_dead_letters_with_their_place(stream: Stream) -> None:
    stream.put({"n": 1}, b"{")
    with SourceHarness(stream.source(on_error="dead_letter")) as harness:
        assert polled(harness, 1) == [{"n": 1}]
        eventually(lambda: harness.poll() or harness.dead_letters, "the bad one is found")
    (letter,) = harness.dead_letters
    assert (letter.record, letter.origin) == (b"{", f"{stream.name}@2")
    assert f"{stream.name}@2" in failure_of(stream.source())


def test_a_server_that_stays_away_fails_the_attempt_and_its_password_is_not_shown(
    own_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(own_server)
    with SourceHarness(stream.source(give_up_after=0.2)) as harness:
        own_server.kill()
        with pytest.raises(
            OperatorError, match=r"of NATS at nats://\*\*\*@.* gave no answer for 0.2 s"
        ) as found:
            polled(harness, 1)
    assert PASSWORD not in str(found.value) + repr(stream.source()) + caplog.text


def test_a_wrong_password_and_a_missing_stream_fail_the_job(shared_nats: NatsServer) -> None:
    wrong = shared_nats.url.replace(PASSWORD, "wrong-word")
    failure = failure_at_start(JetStreamSource(wrong, "s"))
    assert "can't be read" in failure
    assert "wrong-word" not in failure
    assert "stream not found" in failure_at_start(JetStreamSource(shared_nats.url, "none"))


def failure_at_start(source: Any) -> str:
    with pytest.raises(Exception, match="can't be read") as found:
        source.splits(1)
    return str(found.value)


def test_a_job_without_checkpoints_is_refused() -> None:
    env = StreamEnvironment("j")
    env.from_source("orders", JetStreamSource("nats://localhost", "s")).sink("out", DiscardSink())
    with pytest.raises(ConfigurationError, match="source 'orders': messages are acknowledged when"):
        check_job(env.build(), env.config)
    check_job(env.build(), JobConfig(checkpointing=Checkpointing(every=1)))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"starting_position": "newest"}, "starting_position='newest' is not allowed"),
        ({"metadata": ("offset",)}, "metadata='offset' is not allowed"),
        ({"subjects": ()}, "give one or more names"),
        ({"max_unacknowledged": 0}, "give at least 1"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: dict[str, Any], why: str) -> None:
    make: Callable[..., Any] = JetStreamSource
    servers: Sequence[str] = ("nats://localhost",)
    with pytest.raises(ConfigurationError, match=why):
        make(servers, "s", **settings)
