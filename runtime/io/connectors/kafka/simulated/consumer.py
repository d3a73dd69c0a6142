"""`SimulatedConsumer`: the calls of confluent-kafka's `Consumer`, without assignment by a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    Message,
    TopicPartition,
)

from penstock.runtime.io.connectors.kafka.simulated.admin import list_topics
from penstock.runtime.io.connectors.kafka.simulated.broker import BrokerError, Place
from penstock.runtime.io.connectors.kafka.simulated.connection import Connection, error_of, failure
from penstock.runtime.io.connectors.kafka.simulated.log import PartitionEntry, PartitionLog
from penstock.runtime.testing.simulation.world.external import Fate

#: Timeout of a call that sets none, in seconds.
_FOR_EVER: Final = 300.0
#: Kafka's type of a timestamp that the producer has set.
_CREATE_TIME: Final = 1


@dataclass(slots=True)
class _Position:
    """The next offset of an assigned partition.

    Attributes:
        next_offset: A logical offset, such as `OFFSET_END`, until the first fetch resolves it.
        shown_end: Offset of the end that was reported last; -1 for none.
    """

    next_offset: int
    is_paused: bool = False
    shown_end: int = -1


class SimulatedConsumer:
    """A consumer of one process.

    Args:
        wait: Called with the seconds that a call waits when there are no records.
    """

    def __init__(
        self, connection: Connection, settings: Mapping[str, Any], wait: Callable[[float], None]
    ) -> None:
        self._connection = connection
        self._broker = connection.broker
        self._wait = wait
        self._group = str(settings.get("group.id", ""))
        self._is_committed = settings.get("isolation.level", "read_committed") == "read_committed"
        self._reset = str(settings.get("auto.offset.reset", "latest"))
        self._shows_ends = bool(settings.get("enable.partition.eof"))
        self._on_commit = settings.get("on_commit")
        self._positions: dict[Place, _Position] = {}
        self._reports: list[Callable[[], None]] = []
        self._is_closed = False

    # -- assignment ---------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions = {}
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._positions[place.topic, place.partition] = _Position(place.offset)

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            del self._positions[place.topic, place.partition]

    def seek(self, partition: TopicPartition) -> None:
        place = partition.topic, partition.partition
        if place not in self._positions:
            raise failure(KafkaError._STATE)
        self._positions[place] = replace(self._positions[place], next_offset=partition.offset, shown_end=-1)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._positions[place.topic, place.partition].is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._positions[place.topic, place.partition].is_paused = False

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        known = self._positions
        return [
            TopicPartition(each.topic, each.partition, known[each.topic, each.partition].next_offset)
            for each in partitions
        ]

    # -- records ------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Take records, partition by partition; the first partition is chosen at random."""
        if self._is_closed:
            msg = "Consumer closed"
            raise RuntimeError(msg)
        while self._reports:
            self._reports.pop()()
        found: list[Message] = []
        run = self._connection.run
        places = [place for place, position in self._positions.items() if not position.is_paused]
        first = run.draws.below(len(places)) if places else 0
        if not run.is_away and run.fate() is Fate.ANSWERED:
            for place in places[first:] + places[:first]:
                found += self._fetch(place, num_messages - len(found))
                if len(found) >= num_messages:
                    break
        if not found and timeout:
            self._wait(_FOR_EVER if timeout < 0 else timeout)
        return found

    def _fetch(self, place: Place, most: int) -> list[Message]:
        position = self._positions[place]
        if self._broker.leaders.of(place) is None:
            return []  # librdkafka looks for the new leader
        try:
            log = self._broker.log(place)
        except BrokerError as error:
            return [self._error(place, error_of(error.code), -1)] if most > 0 else []
        problem = self._resolve(place, position, log)
        if problem is not None:
            return [problem]
        found: list[Message] = []
        end = log.readable_end(is_committed=self._is_committed)
        for entry in log.read(position.next_offset, is_committed=self._is_committed):
            if len(found) >= most:
                self._note(place, position)
                return found
            found.append(_message(place, entry))
            position.next_offset = entry.offset + 1
        position.next_offset = max(position.next_offset, end)
        self._note(place, position)
        if self._shows_ends and position.shown_end != end and len(found) < most:
            position.shown_end = end
            found.append(self._error(place, KafkaError(KafkaError._PARTITION_EOF), end))
        return found

    def _note(self, place: Place, position: _Position) -> None:
        read_to = self._broker.read_to
        read_to[place] = max(read_to.get(place, 0), position.next_offset)

    def _resolve(self, place: Place, position: _Position, log: PartitionLog) -> Message | None:
        """Turn a logical offset, or an offset outside of the log, into a real one.

        Returns an error message for an offset outside of the log, unless `auto.offset.reset` is `earliest` or
        `latest`.
        """
        if position.next_offset in (OFFSET_BEGINNING, OFFSET_END):
            is_end = position.next_offset == OFFSET_END
            position.next_offset = log.readable_end(is_committed=self._is_committed) if is_end else log.start
            return None
        if position.next_offset == OFFSET_INVALID:
            position.next_offset = self._broker.groups.get(self._group, {}).get(place, OFFSET_INVALID)
        if log.start <= position.next_offset <= log.end:
            return None
        if self._reset in ("earliest", "latest"):
            is_end = self._reset == "latest"
            position.next_offset = log.readable_end(is_committed=self._is_committed) if is_end else log.start
            return None
        offset = position.next_offset
        text = f"fetch failed due to requested offset {offset} not available on the broker"
        return self._error(place, KafkaError(KafkaError._AUTO_OFFSET_RESET, text), offset)

    def _error(self, place: Place, error: KafkaError, offset: int) -> Message:
        return Message(topic=place[0], partition=place[1], offset=offset, error=error)

    # -- offsets and metadata -----------------------------------------------------------------------------

    def commit(
        self, offsets: Sequence[TopicPartition] = (), asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit offsets to the group; an asynchronous commit reports its outcome to `on_commit`."""
        group = self._broker.groups.setdefault(self._group, {})
        given = {(each.topic, each.partition): each.offset for each in offsets}

        def commit() -> None:
            self._connection.coordinator()
            group.update(given)

        if not asynchronous:
            self._connection.call(commit, _FOR_EVER)
            return list(offsets)
        error: KafkaError | None = None
        try:
            commit()
        except BrokerError as refused:
            error = error_of(refused.code)
        on_commit = self._on_commit
        if on_commit is not None:
            self._reports.append(lambda: on_commit(error, list(offsets)))
        return None

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = _FOR_EVER
    ) -> list[TopicPartition]:
        known = self._broker.groups.get(self._group, {})
        return self._connection.call(
            lambda: [
                TopicPartition(each.topic, each.partition, known.get((each.topic, each.partition), -1001))
                for each in partitions
            ],
            timeout,
        )

    def list_topics(self, topic: str | None = None, timeout: float = _FOR_EVER) -> Any:
        return self._connection.call(lambda: list_topics(self._broker, topic), timeout)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = _FOR_EVER, cached: bool = False
    ) -> tuple[int, int]:
        def ends() -> tuple[int, int]:
            self._broker.check_leader((partition.topic, partition.partition))
            log = self._broker.log((partition.topic, partition.partition))
            return log.start, log.readable_end(is_committed=self._is_committed)

        return self._connection.call(ends, timeout)

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = _FOR_EVER
    ) -> list[TopicPartition]:
        def find(each: TopicPartition) -> TopicPartition:
            log = self._broker.log((each.topic, each.partition))
            if each.offset == OFFSET_END:
                return TopicPartition(
                    each.topic, each.partition, log.readable_end(is_committed=self._is_committed)
                )
            found = log.offset_for_time(each.offset, is_committed=self._is_committed)
            return TopicPartition(each.topic, each.partition, OFFSET_END if found is None else found.offset)

        return self._connection.call(lambda: [find(each) for each in partitions], timeout)

    def consumer_group_metadata(self) -> str:
        """The group, for `send_offsets_to_transaction` of the simulated producer."""
        return self._group

    def close(self) -> None:
        self._is_closed = True
        self._positions = {}


def _message(place: Place, entry: PartitionEntry) -> Message:
    return Message(
        topic=place[0],
        partition=place[1],
        offset=entry.offset,
        key=entry.key,
        value=entry.value,
        headers=list(entry.headers) or None,
        timestamp=(_CREATE_TIME, entry.timestamp),
    )
