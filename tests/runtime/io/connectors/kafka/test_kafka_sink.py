"""A sink writes to topics of a real broker: committed reads see a transaction once, after its commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from kafka.net.sasl.oauth import SaslMechanismOAuth
from kafka.partitioner.default import murmur2
from registry_server import running_registry
from serving.kafka import Broker
from topics import Topic

from penstock import Checkpointing, ConfigurationError, StreamEnvironment
from penstock.connectors import SinkContext
from penstock.formats import Avro, Json, SchemaRegistry
from penstock.operators import ArrowBatch, RowBatch
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConnectorError, LostOutputError
from penstock.runtime.graph.executor import check_job
from penstock.runtime.io.connectors.kafka.transaction_requests import client_settings, end_transaction
from penstock.runtime.io.connectors.kafka.transactions import KafkaCommittable, TransactionalIds
from penstock.runtime.snapshot.completed_checkpoint import permit_of_ended_input
from penstock.testing import ManualClock, SourceHarness

PERMIT = permit_of_ended_input(1)


@pytest.fixture(params=["light", "model"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """The light broker, and the model of the simulation."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    """A topic of one partition: an open transaction holds back all reads of it."""
    return make_topic()


@contextmanager
def writer(topic: Topic, attempt: int = 1, subtask: int = 0, **settings: Any) -> Iterator[Any]:
    context = SinkContext(topic.name, "job", "out", subtask, 2, attempt, ManualClock())
    opened = topic.sink(**settings).writer(context)
    yield opened
    opened.close()


def rows(*numbers: int) -> RowBatch:
    return RowBatch([*numbers])


def prepared(opened: Any, *numbers: int) -> Any:
    opened.write(rows(*numbers))
    return opened.prepare_commit()


def test_records_are_hidden_until_the_commit(topic: Topic) -> None:
    with writer(topic) as opened:
        committables = prepared(opened, 1, 2)
        assert topic.values() == []
        assert topic.values("read_uncommitted") == [1, 2]
        opened.commit(committables, PERMIT)
        assert topic.values() == [1, 2]


def test_a_checkpoint_without_records_has_nothing_to_commit(topic: Topic) -> None:
    with writer(topic) as opened:
        assert list(opened.prepare_commit()) == []
        opened.write(rows())
        assert list(opened.prepare_commit()) == []


def test_the_next_transaction_begins_before_the_last_one_is_committed(topic: Topic) -> None:
    with writer(topic) as opened:
        first, second = prepared(opened, 1), prepared(opened, 2)
        opened.commit([*first, *second], PERMIT)
        opened.commit(prepared(opened, 3), PERMIT)
    assert topic.values() == [1, 2, 3]


def test_any_process_commits_what_a_dead_writer_has_flushed(topic: Topic) -> None:
    with writer(topic) as opened:
        committables = prepared(opened, 1)
        opened.write(rows(2))
    with writer(topic, attempt=2, subtask=1) as other:
        other.commit(committables, PERMIT)
    assert topic.values() == [1]


def test_a_commit_that_is_repeated_changes_nothing(topic: Topic) -> None:
    with writer(topic) as opened:
        committables = prepared(opened, 1)
        for _ in range(3):
            opened.commit(committables, PERMIT)
        assert topic.values() == [1]


def test_an_old_committable_does_not_commit_a_later_transaction_of_its_id(topic: Topic) -> None:
    """As after a restore from an older savepoint: the id has been used again, and its transaction is open."""
    with writer(topic) as opened:
        old = prepared(opened, 0)
        opened.commit(old, PERMIT)
        later: list[KafkaCommittable] = []
        while not any(each.transactional_id == old[0].transactional_id for each in later):
            later += prepared(opened, len(later) + 1)
            opened.commit(later[:-1], PERMIT)
        with writer(topic, attempt=2) as restored:
            restored.commit(old, PERMIT)
        assert topic.values() == list(range(len(later)))
        opened.commit(later, PERMIT)
        assert topic.values() == list(range(len(later) + 1))


def test_an_aborted_transaction_of_a_reused_id_is_not_taken_for_a_lost_one(topic: Topic) -> None:
    with writer(topic) as opened:
        old = prepared(opened, 0)
        opened.commit(old, PERMIT)
        for number in range(1, 4):
            opened.commit(prepared(opened, number), PERMIT)
        opened.write(rows(9))
    with writer(topic, attempt=2) as restored:
        restored.commit(old, PERMIT)
    assert topic.values() == [0, 1, 2, 3]


def test_an_attempt_aborts_what_earlier_ones_left_open_and_nothing_else(topic: Topic) -> None:
    with writer(topic, attempt=1) as dead:
        prepared(dead, 1)
        with writer(topic, attempt=2) as opened:
            opened.write(rows(2))
            opened.remove_leftovers(PERMIT)
            topic.put([3])
            opened.commit(opened.prepare_commit(), PERMIT)
            assert topic.values() == [2, 3]
    other = Topic(topic.broker, f"{topic.name}-other", 1, {})
    with writer(other) as running:
        committables = prepared(running, 4)
        with writer(topic, attempt=9) as opened:
            opened.remove_leftovers(PERMIT)
        running.commit(committables, PERMIT)
    assert other.values() == [4]


@contextmanager
def writer_of(topic: Topic, job: str, **settings: Any) -> Iterator[Any]:
    context = SinkContext(job, "job", "out", 0, 1, 1, ManualClock())
    opened = topic.sink(**settings).writer(context)
    yield opened
    opened.close()


def test_a_job_that_starts_from_a_checkpoint_of_another_one_commits_what_that_one_flushed(
    topic: Topic,
) -> None:
    """Both have the user's prefix, and the attempts of both begin at 1."""
    settings = {"transactional_id_prefix": f"p-{topic.name}"}
    with writer_of(topic, "first-1f", **settings) as first:
        flushed, lost = prepared(first, 1), prepared(first, 2)
        with writer_of(topic, "second-2e", **settings) as second:
            committed = prepared(second, 3)
            second.commit([*flushed, *committed], PERMIT)
            second.remove_leftovers(PERMIT)
            topic.put([4])
            assert topic.values() == [1, 3, 4]
            assert lost


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_sink_never_takes_the_ids_of_another_sink_of_its_job_for_leftovers(is_shared: bool) -> None:
    ids = TransactionalIds("p", "job-1f", "out", is_shared)
    for other in ("late-out", "out-1", "out.2"):
        of_other = TransactionalIds("p", "job-1f", other, is_shared).make(1, 0, 1)
        assert not ids.is_leftover(of_other, 9)
        assert ids.attempt_of(of_other) is None
    earlier_job = TransactionalIds("p", "job-0a", "out").make(7, 0, 1)
    assert ids.is_leftover(earlier_job, 1) is is_shared
    assert ids.is_leftover(ids.make(1, 3, 1), 2)
    assert not ids.is_leftover(ids.make(2, 3, 1), 2)


def test_a_transaction_near_its_timeout_fails_the_checkpoint_so_that_nothing_is_lost(topic: Topic) -> None:
    clock = ManualClock()
    context = SinkContext(topic.name, "job", "out", 0, 1, 1, clock)
    opened = topic.sink(transaction_timeout=60).writer(context)
    opened.write(rows(1))
    clock.advance_to(clock.monotonic() + 55)
    with pytest.raises(ConnectorError, match="has been open for 55 s, but the broker aborts it after 60 s"):
        opened.prepare_commit()
    opened.close()


def test_the_end_of_a_job_aborts_a_later_transaction_of_a_covered_id(topic: Topic) -> None:
    with writer(topic) as opened:
        found: list[KafkaCommittable] = []
        while len({each.transactional_id for each in found}) == len(found):
            found += prepared(opened, len(found))
            opened.commit(found[-1:], PERMIT)
        reused = [each for each in found if each.transactional_id == found[-1].transactional_id]
        again: list[KafkaCommittable] = []
        while not again or again[-1].transactional_id != reused[0].transactional_id:
            again += prepared(opened, 100 + len(again))
            opened.commit(again[:-1], PERMIT)
        topic.sink().remove_uncovered(topic.name, "out", reused)
        topic.put([999])
        assert 999 in topic.values(), "an open transaction holds it back"


def test_the_end_of_a_job_aborts_what_no_snapshot_covers(topic: Topic) -> None:
    with writer(topic) as opened:
        covered, uncovered = prepared(opened, 1), prepared(opened, 2)
        topic.sink().remove_uncovered(topic.name, "out", covered)
        with writer(topic, attempt=2) as restored:
            restored.commit(covered, PERMIT)
        topic.put([3])
        assert topic.values() == [1, 3]
        assert uncovered


def test_a_writer_that_is_closed_aborts_its_open_transaction(topic: Topic) -> None:
    with writer(topic) as opened:
        opened.write(rows(1))
    topic.put([2])
    assert topic.values() == [2]


def test_a_transaction_that_the_broker_has_aborted_fails_loudly_unless_it_may_be_missing(
    strict_topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    with writer(strict_topic) as opened:
        (lost,) = prepared(opened, 1)
    end_transaction(
        strict_topic.broker.client(), lost.transactional_id, lost.producer_id, lost.epoch, commit=False
    )
    what = rf"transaction '{lost.transactional_id}' of 1 records, flushed at .*at its timeout or by hand"
    with writer(strict_topic, attempt=2) as restored, pytest.raises(LostOutputError, match=what):
        restored.commit([lost], PERMIT)
    with writer(strict_topic, attempt=3, allow_missing=True) as restored:
        restored.commit([lost], PERMIT)
    assert "its records are lost" in caplog.text


def test_the_id_of_a_lost_transaction_is_not_used_again(strict_topic: Topic) -> None:
    with writer(strict_topic, allow_missing=True) as opened:
        (lost,) = prepared(opened, 1)
        end_transaction(
            strict_topic.broker.client(), lost.transactional_id, lost.producer_id, lost.epoch, commit=False
        )
        opened.commit([lost], PERMIT)
        later = [prepared(opened, number)[0].transactional_id for number in (2, 3, 4)]
    assert lost.transactional_id not in later


def test_a_transaction_that_the_broker_has_forgotten_is_lost(strict_topic: Topic) -> None:
    never = KafkaCommittable("never", 1 << 40, 3, 12, 0.0)
    with writer(strict_topic) as opened, pytest.raises(LostOutputError, match="the broker has forgotten it"):
        opened.commit([never], PERMIT)


# -- messages -------------------------------------------------------------------------------------------


def test_key_headers_timestamp_partition_and_topic_come_from_the_record(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic(3)
    other = Topic(topic.broker, f"{topic.name}-b", 3, {})
    sink: dict[str, Any] = {
        "key": "k",
        "headers": lambda row: {"h": str(row["n"])},
        "timestamp": lambda row: 1_700_000_000_123_456,
        "partition": lambda row: row["n"] % 3,
    }
    with writer(topic, delivery_guarantee="at_least_once", **sink) as opened:
        opened.write(RowBatch([{"n": 4, "k": "a"}, {"n": 5, "k": 7}, {"n": 6, "k": None}]))
        assert list(opened.prepare_commit()) == []
    messages = sorted(topic.messages(), key=lambda message: message.value())
    assert [message.value() for message in messages] == [
        b'{"n":4,"k":"a"}',
        b'{"n":5,"k":7}',
        b'{"n":6,"k":null}',
    ]
    assert [message.key() for message in messages] == [b"a", b"7", None]
    assert [message.partition() for message in messages] == [1, 2, 0]
    assert messages[0].headers() == [("h", b"4")]
    assert messages[0].timestamp()[1] == 1_700_000_000_123
    by_record = topic.sink()
    object.__setattr__(by_record, "topic", lambda row: other.name if row["n"] else topic.name)
    context = SinkContext(topic.name, "job", "out", 0, 1, 1, ManualClock())
    opened = by_record.writer(context)
    opened.write(RowBatch([{"n": 0}, {"n": 1}]))
    opened.commit(opened.prepare_commit(), PERMIT)
    opened.close()
    assert [message.value() for message in other.messages()] == [b'{"n":1}']


@pytest.mark.parametrize("broker", ["light"], indirect=True)
def test_a_format_of_a_registry_has_the_subject_of_the_topic(topic: Topic) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}
    with running_registry() as server:
        registry = SchemaRegistry(server.url)
        written = Avro(schema, registry=registry, register=True)
        keys: dict[str, Any] = {"key": lambda row: {"n": 7}, "key_format": written}
        with writer(topic, delivery_guarantee="at_least_once", value_format=written, **keys) as opened:
            opened.write(RowBatch([{"n": 1}]))
            opened.prepare_commit()
        assert server.answer("GET", "/subjects", None) == [f"{topic.name}-key", f"{topic.name}-value"]
        read = Avro(registry=registry)
        for batch_format in ("rows", "arrow"):
            source = topic.source(value_format=read, key_format=read, batch_format=batch_format)
            with SourceHarness(source) as harness:
                assert harness.read_all() == [{"n": 1, "key": {"n": 7}}]


def test_requests_about_transactions_take_the_tokens_of_oauth_cb() -> None:
    settings = client_settings({"security.protocol": "sasl_ssl", "oauth_cb": lambda config: ("secret", 1e12)})
    assert settings["security_protocol"] == "SASL_SSL"
    mechanism = SaslMechanismOAuth(**settings)
    assert mechanism.auth_bytes() == b"n,,\x01auth=Bearer secret\x01\x01"


def test_columns_are_written_with_a_column_as_the_key(topic: Topic) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2], "k": ["a", None]})
    with writer(topic, key="k", delivery_guarantee="at_least_once") as opened:
        opened.write(ArrowBatch(batch))
        opened.prepare_commit()
    found = {message.value(): message.key() for message in topic.messages()}
    assert found == {b'{"n":1,"k":"a"}': b"a", b'{"n":2,"k":null}': None}


@pytest.mark.parametrize("is_arrow", [False, True])
def test_keys_are_encoded_by_a_format_of_their_own(topic: Topic, is_arrow: bool) -> None:
    table = pa.RecordBatch.from_pylist([{"n": 1, "k": {"id": 7}}, {"n": 2, "k": None}])
    batch = ArrowBatch(table) if is_arrow else RowBatch(table.to_pylist())
    with writer(topic, key="k", key_format=Json(), delivery_guarantee="at_least_once") as opened:
        opened.write(batch)
        opened.prepare_commit()
    assert sorted(message.key() or b"" for message in topic.messages()) == [b"", b'{"id":7}']


def test_a_key_goes_to_the_partition_to_which_the_producer_in_java_sends_it(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic(7)
    with writer(topic, key=str, delivery_guarantee="at_least_once") as opened:
        opened.write(rows(*range(50)))
        opened.prepare_commit()
    found = {message.key(): message.partition() for message in topic.messages()}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in found}
    assert len(found) == 50


@pytest.mark.parametrize("delivery_guarantee", ["exactly_once", "at_least_once"])
def test_a_record_that_is_too_large_is_named_with_its_topic(topic: Topic, delivery_guarantee: Any) -> None:
    small = {"message.max.bytes": 2000}
    what = rf"a value of 5002 bytes can't be sent to topic '{topic.name}'.*too large"
    settings: dict[str, Any] = {"delivery_guarantee": delivery_guarantee, "properties": small}
    with writer(topic, **settings) as opened, pytest.raises(ConnectorError, match=what):
        opened.write(RowBatch(["x" * 5000]))


# -- settings -------------------------------------------------------------------------------------------


def test_a_timeout_that_a_checkpoint_exceeds_is_refused_when_the_job_is_submitted(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    env = StreamEnvironment("job", config=JobConfig(checkpointing=Checkpointing(every=60, timeout=60)))
    env.from_collection("numbers", [1]).sink("out", topic.sink(transaction_timeout=30))
    with pytest.raises(
        ConfigurationError, match=r"test_kafka_sink.py:\d+.*sink 'out': transaction_timeout is 30 s"
    ):
        check_job(env.build(), env.config)
    with caplog.at_level(logging.WARNING):
        topic.sink(transaction_timeout=100).check_job_config(env.config)
    assert "transaction_timeout is 100 s" in caplog.text
    topic.sink(transaction_timeout=30, delivery_guarantee="at_least_once").check_job_config(env.config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topic": ""}, "topic='' is not allowed"),
        ({"key_format": Json()}, "key_format needs key="),
        ({"delivery_guarantee": "twice"}, "delivery_guarantee='twice' is not allowed"),
        ({"transaction_timeout": 0}, "transaction_timeout"),
        ({"properties": {"transactional.id": "x"}}, "use transactional_id_prefix="),
        ({"properties": {"transaction.timeout.ms": 5}}, "use transaction_timeout="),
        ({"properties": {"ssl.cipher.suites": "x"}}, "can't be used for requests about transactions"),
    ],
)
def test_settings_that_can_not_be_meant_are_refused(settings: dict[str, Any], message: str) -> None:
    from penstock.kafka import KafkaSink

    with pytest.raises(ConfigurationError, match=message):
        KafkaSink(**{"bootstrap_servers": "localhost:1", "topic": "t", **settings})
