"""`SimulatedProducer`: confluent-kafka's `Producer`, connected to the model of a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import KafkaError, Message, TopicPartition
from kafka.partitioner.default import murmur2

from penstock.runtime.io.connectors.kafka.simulated.admin import list_topics
from penstock.runtime.io.connectors.kafka.simulated.broker import BrokerError
from penstock.runtime.io.connectors.kafka.simulated.connection import Connection, error_of, failure
from penstock.runtime.io.connectors.kafka.simulated.log import Headers
from penstock.runtime.testing.simulation.world.external import Fate

#: `message.max.bytes` of librdkafka.
_LARGEST: Final = 1_000_000
#: Timeout of a call that sets none, in seconds.
_FOR_EVER: Final = 300.0
#: Seconds until records are sent again to a partition that had no leader.
_RETRY: Final = 0.05


@dataclass(slots=True)
class _Sent:
    """A record in the client's queue."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp: int | None
    on_delivery: Callable[[KafkaError | None, Any], None] | None


class SimulatedProducer:
    """An idempotent or transactional producer; a process that dies loses its queue."""

    def __init__(self, connection: Connection, settings: Mapping[str, Any]) -> None:
        self._connection = connection
        self._broker = connection.broker
        self._id: str | None = settings.get("transactional.id")
        self._timeout = int(settings.get("transaction.timeout.ms", 60_000)) / 1000
        self._largest = int(settings.get("message.max.bytes", _LARGEST))
        self._on_delivery = settings.get("on_delivery")
        self._only_errors = bool(settings.get("delivery.report.only.error"))
        self._producer = (-1, -1)
        self._is_open = False
        self._has_sent = False
        self._queue: deque[_Sent] = deque()
        self._reports: deque[Callable[[], None]] = deque()
        self._turn = 0

    def __len__(self) -> int:
        return len(self._queue)

    def init_transactions(self, timeout: float = _FOR_EVER) -> None:
        name = self._transactional_id()

        def init() -> tuple[int, int]:
            self._connection.coordinator()
            return self._broker.init_producer_id(name, self._timeout)

        self._connection.run.reached()
        self._producer = self._connection.call(init, _bounded(timeout))

    def begin_transaction(self) -> None:
        if self._producer == (-1, -1) or self._is_open:
            raise failure(KafkaError._STATE)
        self._is_open, self._has_sent = True, False

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = None,
    ) -> None:
        if self._id is not None and not self._is_open:
            raise failure(KafkaError._STATE)
        data, name = _bytes(value), _bytes(key)
        if len(data or b"") + len(name or b"") > self._largest:
            raise failure(KafkaError.MSG_SIZE_TOO_LARGE)
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())
        given = [(header, _bytes(content)) for header, content in pairs]
        reports = on_delivery or self._on_delivery
        self._queue.append(_Sent(topic, partition, data, name, given, timestamp or None, reports))

    def poll(self, timeout: float = 0) -> int:
        """Send what a background thread may have sent by now, and report deliveries."""
        draws = self._connection.run.draws
        if self._queue and draws.chance(0.5):
            self._send(draws.between(1, len(self._queue)))
        return self._report()

    def flush(self, timeout: float = _FOR_EVER) -> int:
        run = self._connection.run
        deadline = run.clock.monotonic() + _bounded(timeout)
        while self._queue:
            run.reached()
            fate = run.fate()
            if fate is not Fate.ANSWERED:
                run.struck(fate.value)
            if fate in (Fate.HANGS, Fate.HANGS_DONE):
                run.spend(max(0.0, deadline - run.clock.monotonic()))
            elif fate is not Fate.ANSWERED:
                run.spend(run.slowness() if fate is Fate.SLOW else 0.1)
            if fate.is_done:
                # If an answer is lost, the client sends again; sequence numbers prevent duplicates.
                self._send(len(self._queue))
                if self._queue:  # a partition has no leader
                    run.spend(_RETRY)
            if run.clock.monotonic() >= deadline:
                break
        self._report()
        return len(self._queue)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        self._queue.clear()

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: Any, timeout: float = _FOR_EVER
    ) -> None:
        offsets = {(place.topic, place.partition): place.offset for place in positions}
        name = self._transactional_id()
        group = str(group_metadata)
        add = self._broker.add_offsets
        self._connection.call(lambda: add(name, self._producer, group, offsets), _bounded(timeout))
        self._has_sent = True

    def commit_transaction(self, timeout: float = _FOR_EVER) -> None:
        self.flush(timeout)
        self._end(timeout, commit=True)

    def abort_transaction(self, timeout: float = _FOR_EVER) -> None:
        self.purge()
        self._end(timeout, commit=False)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return self._connection.call(lambda: list_topics(self._broker, topic), _bounded(timeout))

    def _end(self, timeout: float, *, commit: bool) -> None:
        if not self._is_open:
            raise failure(KafkaError._STATE)
        name, end = self._transactional_id(), self._broker.end_transaction

        def request() -> None:
            self._connection.coordinator()
            end(name, *self._producer, commit=commit)

        if self._has_sent:
            self._connection.run.reached()
            self._connection.call(request, _bounded(timeout))
        self._is_open = False

    def _transactional_id(self) -> str:
        if self._id is None:
            raise failure(KafkaError._NOT_CONFIGURED)
        return self._id

    def _send(self, count: int) -> None:
        """Send the first records; those of a partition without a leader stay in the queue."""
        kept: list[_Sent] = []
        for _ in range(count):
            sent = self._queue.popleft()
            place = sent.topic, self._partition(sent)
            if self._broker.leaders.of(place) is None:
                kept.append(replace(sent, partition=place[1]))
                continue
            try:
                offset = self._broker.append(
                    place,
                    sent.value,
                    sent.key,
                    sent.headers,
                    sent.timestamp,
                    transactional_id=self._id,
                    producer=self._producer,
                )
            except BrokerError as error:
                self._reported(sent, place, error_of(error.code), -1)
            else:
                self._has_sent = True
                if not self._only_errors:
                    self._reported(sent, place, None, offset)
        self._queue.extendleft(reversed(kept))

    def _reported(self, sent: _Sent, place: tuple[str, int], error: KafkaError | None, offset: int) -> None:
        on_delivery = sent.on_delivery
        if on_delivery is not None:
            message = Message(
                topic=place[0], partition=place[1], offset=offset, key=sent.key, value=sent.value, error=error
            )
            self._reports.append(lambda: on_delivery(error, message))

    def _report(self) -> int:
        count = len(self._reports)
        while self._reports:
            self._reports.popleft()()
        return count

    def _partition(self, sent: _Sent) -> int:
        topic = self._broker.topics.get(sent.topic)
        if sent.partition >= 0 or topic is None:
            return max(0, sent.partition)
        if sent.key is not None:
            digest: int = murmur2(sent.key)
            return (digest & 0x7FFFFFFF) % len(topic.partitions)
        self._turn += 1
        return self._turn % len(topic.partitions)


def _bounded(timeout: float) -> float:
    return _FOR_EVER if timeout < 0 else timeout


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
