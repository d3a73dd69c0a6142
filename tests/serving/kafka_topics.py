"""Topics of a Kafka broker in tests: made, written, and read to their ends, also by Kafka's own consumer."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from penstock.runtime.io.connectors.kafka.transaction_requests import list_transactions
from serving import apache_kafka
from serving.kafka_clients import admin, consumer, producer
from serving.kafka_security import Settings

Isolation = Literal["read_committed", "read_uncommitted"]

#: Seconds for anything on a busy machine.
_PATIENCE: Final = 120.0
#: Seconds between two looks at a position.
_INTERVAL: Final = 0.02
_BETWEEN_HEADERS: Final = "\x1e"
#: How the console consumer prints a record. The deserialiser makes bytes printable, as Python's literals do.
_PRINTED: Final = (
    *(f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key", "value")),
    *(
        f"{part}.deserializer=org.apache.kafka.common.serialization.BytesDeserializer"
        for part in ("headers", "key", "value")
    ),
    f"headers.separator={_BETWEEN_HEADERS}",
)


@dataclass(frozen=True)
class Record:
    """A record that is written, or one that was read.

    Attributes:
        headers: In their order; a name may occur twice.
        timestamp: Milliseconds since the epoch; `None` lets the client choose.
        partition: `None` lets the partitioner choose.
        offset: Only of a record that was read.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None
    offset: int | None = None


def create_topic(settings: Settings, topic: str, partitions: int = 1, **config: str) -> None:
    """Make a topic that keeps its records for ever.

    Args:
        config: Settings of the topic, with `_` for each `.`.
    """
    kept = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in config.items()}}
    client = admin(settings)
    client.create_topics([NewTopic(topic, partitions, config=kept)])[topic].result(_PATIENCE)


def produce(settings: Settings, topic: str, records: Iterable[Record]) -> None:
    """Write records, and wait until the broker has all of them."""
    send(producer(settings), topic, records)


def send(sender: Producer, topic: str, records: Iterable[Record]) -> None:
    """Write records through an own producer, such as one with a transaction, and wait for the broker.

    Raises:
        AssertionError: The broker refused a record, or did not acknowledge all within two minutes.
    """
    failures: list[str] = []

    def acknowledged(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    for record in records:
        optional: dict[str, Any] = {"timestamp": record.timestamp, "partition": record.partition}
        given = {name: value for name, value in optional.items() if value is not None}
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        sender.produce(topic, record.value, record.key, headers=headers, on_delivery=acknowledged, **given)
    left = sender.flush(_PATIENCE)
    assert not failures, failures[0]
    assert left == 0, f"{left} records for {topic} were not acknowledged"


def read(settings: Settings, topic: str, isolation: Isolation = "read_committed") -> list[Record]:
    """Read a topic from its beginning to its end, in the order of partitions and offsets.

    The end of `read_committed` is the first record of an open transaction. A transaction whose end was
    answered is not open: the call waits for its markers.
    """
    if isolation == "read_committed":
        _wait_for_markers(settings)
    reader = consumer(
        {
            **settings,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        # The consumer then knows the leaders. Otherwise it waits half a second before it asks for an offset.
        left = set(_partitions(reader, topic))
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        found: list[Record] = []
        deadline = time.monotonic() + _PATIENCE
        while left:
            message = reader.poll(1.0)
            assert time.monotonic() < deadline, f"partitions {left} of {topic} have no end"
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(_record(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, str(error)
                left.discard(message.partition())
    finally:
        reader.close()
    return _sorted(found)


def end_offsets(settings: Settings, topic: str, isolation: Isolation = "read_committed") -> dict[int, int]:
    """The offset behind the last record, by partition; as in `read`, an ended transaction is not open."""
    if isolation == "read_committed":
        _wait_for_markers(settings)
    client = admin(settings)
    latest = {TopicPartition(topic, p): OffsetSpec.latest() for p in _partitions(client, topic)}
    level = IsolationLevel[isolation.upper()]
    answers = client.list_offsets(latest, isolation_level=level, request_timeout=30)
    return {asked.partition: answer.result(_PATIENCE).offset for asked, answer in answers.items()}


def read_with_java(
    bootstrap: str, topic: str, folder: Path, isolation: Isolation = "read_committed"
) -> list[Record]:
    """Read a topic with Kafka's own consumer in Java, as `read` does.

    It commits its position to a group of its own. It is stopped when the position has reached the end.

    Args:
        bootstrap: The address of a listener without security.
        folder: For its output.
    """
    ends = end_offsets({"bootstrap.servers": bootstrap}, topic, isolation)
    group = f"java-{uuid.uuid4()}"
    command = apache_kafka.command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--isolation-level", isolation, "--command-property", "auto.commit.interval.ms=50"),
        *(word for each in (*_PRINTED, f"null.literal={group}") for word in ("--formatter-property", each)),
    )
    output, log = folder / f"{group}.txt", folder / f"{group}.log"
    with output.open("wb") as written, log.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=said)
        try:
            _wait_until_read(bootstrap, group, topic, ends, process, log)
            process.terminate()
            process.wait(_PATIENCE)
        finally:
            process.kill()
            process.wait()
    # A separator of headers would be the end of a line for `splitlines`.
    return _sorted(_from_line(line, null=group) for line in output.read_text().split("\n") if line)


def _wait_for_markers(settings: Settings) -> None:
    """Wait until each transaction whose end was answered has also ended in its partitions."""
    deadline = time.monotonic() + _PATIENCE
    while found := list_transactions(settings, states=["PrepareCommit", "PrepareAbort"]):
        assert time.monotonic() < deadline, f"transactions without markers: {found}"
        time.sleep(_INTERVAL)


def _wait_until_read(
    bootstrap: str,
    group: str,
    topic: str,
    ends: Mapping[int, int],
    process: subprocess.Popen[bytes],
    log: Path,
) -> None:
    """Wait until a group has committed its position at the end of each partition that is not empty."""
    group_of_java = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(topic, partition) for partition, end in ends.items() if end > 0]
    deadline = time.monotonic() + _PATIENCE
    try:
        while any(found.offset < ends[found.partition] for found in group_of_java.committed(asked)):
            assert process.poll() is None, f"Kafka's consumer has ended: {log.read_text()}"
            assert time.monotonic() < deadline, f"Kafka's consumer does not reach the end: {log.read_text()}"
            time.sleep(_INTERVAL)
    finally:
        group_of_java.close()


def _partitions(client: AdminClient | Consumer, topic: str) -> list[int]:
    found = client.list_topics(topic, timeout=_PATIENCE).topics[topic]
    assert found.error is None, f"{topic}: {found.error}"
    return sorted(found.partitions)


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Record(
        message.value(),
        message.key(),
        tuple(headers),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.partition(),
        message.offset(),
    )


def _from_line(line: str, null: str) -> Record:
    """Read a line of the console consumer, as `_PRINTED` and a literal for `None` make it."""

    def from_text(text: str) -> bytes | None:
        return None if text == null else text.encode().decode("unicode_escape").encode("latin-1")

    timestamp, partition, offset, headers, key, value = line.split("\t")
    pairs = () if headers == "NO_HEADERS" else headers.split(_BETWEEN_HEADERS)
    return Record(
        from_text(value),
        from_text(key),
        tuple((name, from_text(text)) for name, _, text in (pair.partition(":") for pair in pairs)),
        int(timestamp.removeprefix("CreateTime:")),
        int(partition.removeprefix("Partition:")),
        int(offset.removeprefix("Offset:")),
    )


def _sorted(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))
