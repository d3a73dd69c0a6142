"""A source reads topics of a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka.admin import AdminClient
from topics import PATIENCE, Topic

from penstock import ConfigurationError
from penstock.formats import CsvLines, Json, Text
from penstock.kafka import KafkaSource, OffsetsInitializer
from penstock.runtime.errors import ConnectorError, OperatorError
from penstock.runtime.io.connectors.errors import UnreadableInputError
from penstock.runtime.io.connectors.kafka import fetcher
from penstock.runtime.io.connectors.kafka.enumerator import owner
from penstock.runtime.trust.data import read_schema
from penstock.testing import SourceHarness

NUMBERS = Json(pa.schema([("n", pa.int64())]))


def numbered(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def numbers_of(records: list[Any]) -> list[int]:
    return [record["n"] for record in records]


def read(source: KafkaSource[Any]) -> list[Any]:
    with SourceHarness(source) as harness:
        return harness.read_all()


def polled(harness: SourceHarness, count: int, max_rows: int = 100) -> list[Any]:
    """Poll until so many records have come."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        found += harness.poll(max_rows)
        assert time.monotonic() < deadline, f"only {found} came"
    return found


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_each_record_of_each_partition_is_read_once(topic: Topic, batch_format: Any) -> None:
    for partition in range(3):
        topic.put(numbered(*range(partition, 300, 3)), partition)
    found = read(topic.source(batch_format=batch_format, value_format=NUMBERS))
    assert sorted(numbers_of(found)) == list(range(300))
    for partition in range(3):
        assert [n for n in numbers_of(found) if n % 3 == partition] == list(range(partition, 300, 3))


def test_a_restored_source_continues_with_the_next_record_at_any_parallelism(topic: Topic) -> None:
    for partition in range(3):
        topic.put(numbered(*range(partition, 30, 3)), partition)
    with SourceHarness(topic.source()) as harness:
        first = polled(harness, 12, max_rows=4)
        snapshot = harness.snapshot()
    rest: list[Any] = []
    for subtask in range(2):
        with SourceHarness(topic.source(), restored=[snapshot], subtask=subtask, parallelism=2) as harness:
            rest += harness.read_all()
    assert rest
    assert sorted(numbers_of(first + rest)) == list(range(30))


def test_a_bounded_source_ends_where_the_topic_ended_when_the_job_began(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic()
    topic.put(numbered(1, 2))
    source = topic.source()
    splits = source.splits(1)
    topic.put(numbered(3))
    assert [(split.next_offset, split.stopping_offset) for split in splits] == [(0, 2)]
    with SourceHarness(topic.source(bounded=OffsetsInitializer.offsets({(topic.name, 0): 2}))) as harness:
        assert numbers_of(harness.read_all()) == [1, 2]
        assert harness.is_finished


def test_a_bounded_source_ends_behind_the_mark_of_a_transaction(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    topic.put_in_transaction(numbered(1), "commit_transaction")
    topic.put_in_transaction(numbered(2), "abort_transaction")
    assert numbers_of(read(topic.source())) == [1]


def test_committed_reads_leave_out_aborted_records_and_wait_for_open_ones(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic()
    topic.put_in_transaction(numbered(1), "commit_transaction")
    producer = topic.put_in_transaction(numbered(2))
    topic.put(numbered(3))
    assert numbers_of(read(topic.source())) == [1]
    assert numbers_of(read(topic.source(isolation_level="read_uncommitted"))) == [1, 2, 3]
    producer.abort_transaction()
    assert numbers_of(read(topic.source())) == [1, 3]


def test_fields_of_the_message_stand_beside_those_of_the_value(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    topic.put(numbered(1), key=b"k", headers=[("h", b"x")], timestamp=1_700_000_000_123)
    metadata = ("topic", "partition", "offset", "timestamp", "headers", "key")
    (row,) = read(topic.source(metadata=metadata))
    assert row == {
        "n": 1,
        "topic": topic.name,
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_123_000,
        "headers": [{"name": "h", "value": b"x"}],
        "key": b"k",
    }
    (column,) = read(topic.source(metadata=metadata, batch_format="arrow", value_format=NUMBERS))
    assert column | {"timestamp": row["timestamp"]} == row
    assert column["timestamp"] == datetime.fromtimestamp(1_700_000_000.123, UTC)


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_field_of_the_message_replaces_one_of_the_value(
    make_topic: Callable[..., Topic], batch_format: Any
) -> None:
    topic = make_topic()
    topic.put([{"n": 7, "offset": "mine"}])
    schema = Json(pa.schema([("offset", pa.string()), ("n", pa.int64())]))
    (record,) = read(topic.source(metadata=("offset",), batch_format=batch_format, value_format=schema))
    assert record == {"n": 7, "offset": 0}


def test_a_value_that_is_no_dict_becomes_a_field_beside_the_metadata(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic()
    topic.put([7])
    assert read(topic.source(metadata=("offset",))) == [{"value": 7, "offset": 0}]


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_value_that_can_not_be_decoded_fails_is_skipped_or_becomes_a_dead_letter(
    make_topic: Callable[..., Topic], batch_format: Any
) -> None:
    topic = make_topic()
    topic.put([{"n": 1}, b"{oops", {"n": 2}])
    settings = {"batch_format": batch_format, "value_format": NUMBERS}
    with pytest.raises(OperatorError, match=rf"{topic.name}\[0\]@1: .*oops"):
        read(topic.source(**settings))
    assert numbers_of(read(topic.source(on_error="skip", **settings))) == [1, 2]
    with SourceHarness(topic.source(on_error="dead_letter", **settings)) as harness:
        assert numbers_of(harness.read_all()) == [1, 2]
        (letter,) = harness.dead_letters
    assert (letter.record, letter.origin) == (b"{oops", f"{topic.name}[0]@1")


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_poll_of_many_chunks_gives_each_record_once_and_knows_where_a_bad_one_is(
    topic: Topic, batch_format: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "CHUNK", 4)
    for partition in (0, 1):
        topic.put([*numbered(*range(50)), b"{oops", *numbered(50)], partition)
    settings = {"batch_format": batch_format, "value_format": NUMBERS, "on_error": "dead_letter"}
    with SourceHarness(topic.source(**settings)) as harness:
        assert sorted(numbers_of(harness.read_all())) == sorted([*range(51), *range(51)])
        origins = sorted(letter.origin for letter in harness.dead_letters)
    assert origins == [f"{topic.name}[0]@50", f"{topic.name}[1]@50"]


# -- keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_keys_are_decoded_to_a_field_by_a_format_of_their_own(
    make_topic: Callable[..., Topic], batch_format: Any
) -> None:
    topic = make_topic()
    for key in (b'{"id": 7}', None):
        topic.put(numbered(1), key=key)
    settings: dict[str, Any] = {"batch_format": batch_format, "value_format": NUMBERS}
    ids = Json(pa.schema([("id", pa.int64())]))
    assert read(topic.source(key_format=ids, **settings)) == [
        {"n": 1, "key": {"id": 7}},
        {"n": 1, "key": None},
    ]
    found = read(topic.source(key_format=Text(), key_field="n", metadata=("key",), **settings))
    assert found == [{"n": '{"id": 7}', "key": b'{"id": 7}'}, {"n": None, "key": None}]


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_a_message_is_a_bad_record_if_its_key_or_its_value_can_not_be_decoded(
    make_topic: Callable[..., Topic], batch_format: Any
) -> None:
    topic = make_topic()
    for key, value in ((b"1", {"n": 1}), (b"oops", {"n": 2}), (b"3", b"{oops"), (b"4", {"n": 4})):
        topic.put([value], key=key)
    keys = CsvLines(["id"], pa.schema([("id", pa.int64())]))
    settings = {"batch_format": batch_format, "value_format": NUMBERS, "key_format": keys}
    with SourceHarness(topic.source(on_error="dead_letter", **settings)) as harness:
        assert harness.read_all() == [{"n": 1, "key": {"id": 1}}, {"n": 4, "key": {"id": 4}}]
        letters = harness.dead_letters
    assert [letter.origin for letter in letters] == [f"{topic.name}[0]@1", f"{topic.name}[0]@2"]
    assert [letter.record for letter in letters] == [b'{"n": 2}', b"{oops"]
    assert [letter.error.startswith("its key: ") for letter in letters] == [True, False]


# -- where to start -------------------------------------------------------------------------------------


def test_a_source_starts_at_either_end_at_a_moment_or_at_given_offsets(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic()
    for number in range(5):
        topic.put(numbered(number), timestamp=1_700_000_000_000 + number * 1000)
    start = datetime.fromtimestamp(1_700_000_002.5, UTC)
    late = datetime.fromtimestamp(1_700_000_009, UTC)
    for starting, expected in (
        (OffsetsInitializer.earliest(), [0, 1, 2, 3, 4]),
        (OffsetsInitializer.latest(), []),
        (OffsetsInitializer.timestamp(start), [3, 4]),
        (OffsetsInitializer.timestamp(late), []),
        (OffsetsInitializer.offsets({(topic.name, 0): 4}), [4]),
        (OffsetsInitializer.offsets({}, reset="earliest"), [0, 1, 2, 3, 4]),
    ):
        assert numbers_of(read(topic.source(starting_offsets=starting))) == expected, starting


def test_a_completed_checkpoint_commits_its_offsets_to_the_group(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    group = f"group-of-{topic.name}"
    topic.put(numbered(0, 1, 2, 3))
    reader = topic.source(group_id=group, bounded=None).reader(context_of(topic), topic.source().splits(1))
    found: list[Any] = []
    while not found:
        found += getattr(reader.poll(3).batch, "rows", ())
    reader.snapshot_taken(1)
    assert topic.committed(group) == {}
    reader.notify_checkpoint_complete(1)
    reader.close()
    assert topic.committed(group) == {0: len(found)}
    from_group = OffsetsInitializer.committed_offsets()
    rest = read(topic.source(group_id=group, starting_offsets=from_group))
    assert numbers_of(found + rest) == [0, 1, 2, 3]


def test_the_offsets_of_partitions_that_have_ended_are_committed_too(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic()
    group = f"group-of-{topic.name}"
    topic.put(numbered(0, 1))
    reader = topic.source(group_id=group).reader(context_of(topic), topic.source().splits(1))
    while not reader.poll(10).finished:
        pass
    reader.snapshot_taken(1)
    reader.notify_checkpoint_complete(1)
    reader.close()
    assert topic.committed(group) == {0: 2}


def test_a_partition_without_the_offset_to_start_at_is_named(topic: Topic) -> None:
    source = topic.source(group_id="nobody", starting_offsets=OffsetsInitializer.committed_offsets())
    with pytest.raises(Exception, match=rf"partition 0 of topic '{topic.name}' has no offset to start at"):
        source.splits(1)


def test_a_record_that_retention_has_deleted_fails_the_job_unless_it_may_be_lost(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic()
    topic.put(numbered(1, 2))
    beyond = OffsetsInitializer.offsets({(topic.name, 0): 99})
    source = topic.source(bounded=None, starting_offsets=beyond)
    with SourceHarness(source) as harness, pytest.raises(OperatorError, match="offset_reset='earliest'"):
        polled(harness, 1)
    with SourceHarness(
        topic.source(bounded=None, starting_offsets=beyond, offset_reset="earliest")
    ) as harness:
        assert numbers_of(polled(harness, 2)) == [1, 2]
    with SourceHarness(topic.source(bounded=None, starting_offsets=beyond, offset_reset="latest")) as harness:
        found: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while not found and time.monotonic() < deadline:
            topic.put(numbered(3))
            found += harness.poll(100)
    assert set(numbers_of(found)) == {3}


# -- partitions -----------------------------------------------------------------------------------------


def context_of(topic: Topic) -> Any:
    from penstock.connectors import ConnectorContext
    from penstock.testing import ManualClock

    return ConnectorContext("job-1", "job", "read", 0, 1, 1, ManualClock())


class Readers:
    """The context of an enumerator; background work runs when the test says so."""

    operator_id = "read"

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.assigned: list[tuple[int, str]] = []
        self.schemas: list[bytes] = []
        self.ended: list[int] = []
        self.waiting: list[Any] = []

    def assign(self, subtask: int, splits: Any) -> None:
        self.assigned += [(subtask, f"{split.partition}@{split.next_offset}") for split in splits]
        self.schemas += [split.schema for split in splits]

    def signal_no_more_splits(self, subtask: int) -> None:
        self.ended.append(subtask)

    def run_in_background(self, work: Any, on_result: Any, on_error: Any = None) -> None:
        self.waiting.append((work, on_result, on_error))

    def look(self) -> None:
        work, on_result, on_error = self.waiting.pop(0)
        try:
            found = work()
        except Exception as error:  # as in a job
            if on_error is None:
                raise
            on_error(error)
        else:
            on_result(found)


def test_partitions_that_are_added_are_read_from_their_first_record(make_topic: Callable[..., Topic]) -> None:
    topic, readers = make_topic(2), Readers(2)
    topic.put(numbered(1))
    settings: dict[str, Any] = {"bounded": None, "discover_every": 0.001}
    source = topic.source(starting_offsets=OffsetsInitializer.latest(), **settings)
    enumerator = source.enumerator(readers, None)
    enumerator.start()
    readers.look()
    first, second = (owner((topic.name, partition), 2) for partition in (0, 1))
    assert sorted(readers.assigned) == sorted([(first, "0@1"), (second, "1@0")])
    topic.add_partitions(3)
    topic.put(numbered(2), partition=2)
    restored = source.enumerator(readers, enumerator.snapshot())
    for each in (enumerator, restored):
        readers.waiting.clear()
        readers.assigned.clear()
        each._look(0.0)
        readers.look()
        assert readers.assigned == [(owner((topic.name, 2), 2), "2@0")]
    assert readers.ended == []


def test_a_running_reader_reads_partitions_that_it_gets_later(topic: Topic) -> None:
    for partition in range(2):
        topic.put(numbered(partition), partition)
    first, second, _ = topic.source().splits(1)
    reader = topic.source(bounded=None).reader(context_of(topic), [first])
    reader.add_splits([second])
    assert len(reader.snapshot()) == 2
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < 2 and time.monotonic() < deadline:
        found += numbers_of(list(getattr(reader.poll(10).batch, "rows", ())))
    reader.close()
    assert sorted(found) == [0, 1]


def test_readers_of_a_bounded_source_get_no_more_splits(topic: Topic) -> None:
    readers = Readers(2)
    enumerator = topic.source().enumerator(readers, None)
    enumerator.start()
    readers.look()
    assert readers.ended == [0, 1]
    assert readers.waiting == []


def test_a_restored_bounded_source_looks_for_no_partitions(topic: Topic) -> None:
    readers = Readers(2)
    source = topic.source()
    first = source.enumerator(readers, None)
    first.start()
    readers.look()
    restored = source.enumerator(readers, first.snapshot())
    restored.start()
    assert readers.waiting == []
    restored.handle_split_request(1)
    assert readers.ended == [0, 1, 1]


def test_a_look_for_partitions_that_fails_is_repeated(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    readers = Readers(1)
    source = topic.source(bounded=None, discover_every=0.001)
    enumerator = source.enumerator(readers, None)
    enumerator.start()
    readers.look()
    monkeypatch.setattr("penstock.runtime.io.connectors.kafka.partitions.REQUEST_TIMEOUT", 0.2)
    topic.broker.pause()
    try:
        readers.look()
    finally:
        topic.broker.resume()
    assert "the search for new partitions failed" in caplog.text
    assert len(readers.waiting) == 1


def test_the_first_look_for_partitions_is_tried_three_times(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = Readers(1)
    enumerator = topic.source().enumerator(readers, None)
    enumerator.start()
    monkeypatch.setattr("penstock.runtime.io.connectors.kafka.partitions.REQUEST_TIMEOUT", 0.2)
    topic.broker.pause()
    try:
        readers.look()
        readers.look()
        with pytest.raises(ConnectorError, match="the topics can't be listed"):
            readers.look()
    finally:
        topic.broker.resume()
    assert readers.waiting == []


def test_the_first_look_is_repeated_while_a_topic_has_no_leader(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_topics = AdminClient.list_topics

    def without_leader(self: AdminClient, *arguments: Any, **named: Any) -> Any:
        found = list_topics(self, *arguments, **named)
        found.topics[topic.name].error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return found

    readers = Readers(1)
    topic.source().enumerator(readers, None).start()
    with monkeypatch.context() as patch:
        patch.setattr(AdminClient, "list_topics", without_leader)
        readers.look()
    readers.look()
    assert readers.waiting == []
    assert readers.ended == [0]


def test_the_first_look_for_a_topic_that_is_missing_fails_at_once(topic: Topic) -> None:
    readers = Readers(1)
    KafkaSource(topic.bootstrap, "nowhere").enumerator(readers, None).start()
    with pytest.raises(ConnectorError, match="has no topic 'nowhere'"):
        readers.look()


def test_a_paused_partition_gives_nothing_until_it_is_resumed(topic: Topic) -> None:
    for partition in range(2):
        topic.put(numbered(partition), partition)
    reader = topic.source(bounded=None).reader(context_of(topic), topic.source().splits(1))
    reader.pause_splits(frozenset({(topic.name, 0)}))
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while not found and time.monotonic() < deadline:
        found += numbers_of(list(getattr(reader.poll(10).batch, "rows", ())))
    for _ in range(20):
        found += numbers_of(list(getattr(reader.poll(10).batch, "rows", ())))
    assert found == [1]
    reader.pause_splits(frozenset())
    while len(found) < 2 and time.monotonic() < deadline:
        found += numbers_of(list(getattr(reader.poll(10).batch, "rows", ())))
    reader.close()
    assert found == [1, 0]


def test_a_failure_is_not_hidden_by_a_paused_partition_that_waits_for_the_one_that_failed(
    topic: Topic,
) -> None:
    topic.put(numbered(1))
    source = topic.source(bounded=None)
    reader = source.reader(context_of(topic), source.splits(1))
    deadline = time.monotonic() + PATIENCE
    while not reader._fetcher._ready and time.monotonic() < deadline:
        time.sleep(0.005)
    reader.pause_splits(frozenset({(topic.name, 0)}))
    topic.put([b"no JSON"], partition=1)

    def polled_until_it_fails() -> None:
        while time.monotonic() < deadline:
            reader.poll(10)

    with pytest.raises(UnreadableInputError, match="the value is not JSON"):
        polled_until_it_fails()
    reader.close()


# -- settings -------------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_named(topic: Topic) -> None:
    with pytest.raises(Exception, match="has no topic 'nowhere': create it first"):
        KafkaSource(topic.bootstrap, "nowhere").splits(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topics": ()}, "give either topics or topic_pattern"),
        ({"topics": "a", "topic_pattern": "b"}, "give either topics or topic_pattern"),
        ({"topics": ("a", "a")}, "names a topic twice"),
        ({"topic_pattern": "("}, "is not a regular expression"),
        ({"topics": "a", "metadata": ("when",)}, "metadata='when' is not allowed"),
        ({"topics": "a", "metadata": ("key",), "key_format": Json()}, "both make the field 'key'"),
        ({"topics": "a", "key_format": Json("infer")}, "key_format=.* no sample is read here"),
        ({"topics": "a", "isolation_level": "dirty"}, "isolation_level='dirty' is not allowed"),
        ({"topics": "a", "starting_offsets": OffsetsInitializer.committed_offsets()}, "needs group_id="),
        ({"topics": "a", "properties": {"group.id": "g"}}, "properties can't set 'group.id'"),
        ({"topics": "a", "bootstrap_servers": ""}, "write 'host:9092,host:9092'"),
        ({"topics": "a", "discover_every": 0}, "discover_every"),
    ],
)
def test_settings_that_can_not_be_meant_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        KafkaSource(**{"bootstrap_servers": "localhost:1", **settings})


def test_no_text_shows_a_password(topic: Topic) -> None:
    secret = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "hunter2"}
    source = KafkaSource(topic.bootstrap, topic.name, properties=secret | {"security.protocol": "nonsense"})
    assert "hunter2" not in repr(source)
    with pytest.raises(ConfigurationError, match="settings of the Kafka client are refused") as refused:
        source.splits(1)
    assert "hunter2" not in str(refused.value)


INFERRED = Json("infer", sample=4)


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_json_learns_its_schema_from_the_first_records(topic: Topic, batch_format: Any) -> None:
    topic.put([{"n": 1, "at": "2026-11-29"}, {"n": 2.5}], 0)
    topic.put([{"n": 3, "note": None}, b"oops"], 1)
    topic.put([{"n": "x"}, {"n": 4, "more": 1}, {"n": 5}], 1)
    source = topic.source(
        value_format=INFERRED, batch_format=batch_format, on_error="dead_letter", bounded=None
    )
    with SourceHarness(source) as harness:
        found = polled(harness, 4)
        letters = harness.dead_letters
    assert sorted(found, key=lambda record: record["n"]) == [
        {"n": 1.0, "at": "2026-11-29", "note": None},
        {"n": 2.5, "at": None, "note": None},
        {"n": 3.0, "at": None, "note": None},
        {"n": 5.0, "at": None, "note": None},
    ]
    assert all(type(record["n"]) is float for record in found)
    assert [(letter.origin, letter.record) for letter in letters] == [
        (f"{topic.name}[1]@1", b"oops"),
        (f"{topic.name}[1]@2", b'{"n": "x"}'),
        (f"{topic.name}[1]@3", b'{"n": 4, "more": 1}'),
    ]
    assert "field 'more' is not one of the columns" in letters[2].error


def test_json_learns_its_schema_while_a_partition_moves(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT]

    class Moving(Consumer):
        def consume(self, *arguments: Any, **named: Any) -> list[Message]:
            if codes:
                return [Message(topic=topic.name, partition=0, error=KafkaError(codes.pop()))]
            return super().consume(*arguments, **named)

    topic.put(numbered(1, 2))
    monkeypatch.setattr("confluent_kafka.Consumer", Moving)
    [split, *_] = topic.source(value_format=INFERRED).splits(1)
    assert read_schema(split.schema) == pa.schema({"n": pa.int64()})


def test_a_learned_schema_is_part_of_a_snapshot(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    topic.put(numbered(1, 2))
    # Records before the start are read for the schema, too.
    source = topic.source(value_format=INFERRED, bounded=None, starting_offsets=OffsetsInitializer.latest())
    with SourceHarness(source) as harness:
        topic.put(numbered(3))
        assert polled(harness, 1) == numbered(3)
        snapshot = harness.snapshot()
    topic.put([{"n": 4.5}, {"n": 5}])
    restored = topic.source(value_format=INFERRED, bounded=None, on_error="skip")
    with SourceHarness(restored, restored=[snapshot]) as harness:
        assert polled(harness, 1) == numbered(5)
    given = topic.source(value_format=Json(pa.schema([("n", pa.float64())])), bounded=None)
    with SourceHarness(given, restored=[snapshot]) as harness:
        assert polled(harness, 2) == [{"n": 4.5}, {"n": 5.0}]


def test_a_topic_without_records_has_no_schema_to_learn(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    with pytest.raises(ConnectorError, match="the topics have no records yet"):
        topic.source(value_format=INFERRED).splits(1)
    topic.put([b"oops", [1]])
    with pytest.raises(ConnectorError, match="none of the first 2 values is an object"):
        topic.source(value_format=INFERRED).splits(1)


def test_a_snapshot_without_a_learned_schema_is_refused(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    topic.put(numbered(1))
    with SourceHarness(topic.source(bounded=None)) as harness:
        polled(harness, 1)
        snapshot = harness.snapshot()
    topic.put(numbered(2))
    with (
        SourceHarness(topic.source(value_format=INFERRED, bounded=None), restored=[snapshot]) as harness,
        pytest.raises((ConnectorError, OperatorError), match="the snapshot has no learned schema"),
    ):
        polled(harness, 1)


def test_a_partition_that_is_added_has_the_learned_schema(make_topic: Callable[..., Topic]) -> None:
    topic, readers = make_topic(), Readers(1)
    topic.put(numbered(1))
    source = topic.source(value_format=INFERRED, bounded=None, discover_every=0.001)
    enumerator = source.enumerator(readers, None)
    enumerator.start()
    readers.look()
    topic.add_partitions(2)
    topic.put([{"other": 1.5}], partition=1)
    for each in (enumerator, source.enumerator(readers, enumerator.snapshot())):
        readers.waiting.clear()
        each._look(0.0)
        readers.look()
    learned, *later = readers.schemas
    assert read_schema(learned) == pa.schema({"n": pa.int64()})
    assert later == [learned, learned]


def test_the_first_topic_of_a_pattern_may_come_after_the_start(make_topic: Callable[..., Topic]) -> None:
    readers, name = Readers(1), f"late-{time.time_ns()}"
    source: Any = KafkaSource(
        make_topic().bootstrap, topic_pattern=f"{name}.*", value_format=INFERRED, discover_every=0.001
    )
    enumerator = source.enumerator(readers, None)
    enumerator.start()
    readers.look()
    assert readers.schemas == []
    Topic(make_topic().broker, name, 1, {}).put(numbered(1))
    while not readers.schemas:
        readers.look()
    assert read_schema(readers.schemas[0]) == pa.schema({"n": pa.int64()})
