"""`KafkaFetcher`: a thread that polls the consumer of one reader and decodes what it gets.

The task thread never waits for Kafka. The fetcher makes batches, each of one partition, and keeps a few of
them ready. While these are not taken, it does not poll. librdkafka then stops fetching at the limits of its
queue. So memory is bounded, and a slow job slows the reads.

All calls of the consumer are the fetcher's. The reader asks it for everything else: more partitions, pauses,
commits. Requests are carried out between two polls.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.errors import LostInputError
from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster
from penstock.runtime.io.connectors.kafka.partitions import KafkaPartitionSplit, TopicPartition
from penstock.runtime.io.connectors.kafka.records import RecordDeserializer, offset_of
from penstock.runtime.io.formats.json_learning import LearnedDecoder
from penstock.runtime.operators.source import Polled

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

logger = logging.getLogger(__name__)

#: Batches that wait for the task thread.
_MOST_READY: Final = 4
#: Seconds of one wait for records; requests wait as long.
_POLL: Final = 0.05
#: Seconds for the thread to end; it does not outlive the process.
_END: Final = 5.0


@dataclass(slots=True)
class Fetched:
    """Records of one partition in their order.

    Attributes:
        next_offset: Offset of the partition's next record.
        is_last: Whether the partition has been read to its stopping offset.
    """

    partition: TopicPartition
    polled: Polled[Any]
    next_offset: int
    is_last: bool = False


class KafkaFetcher:
    """Fetches the partitions of one reader; methods are the task thread's unless they begin with `_`."""

    def __init__(self, cluster: KafkaCluster, consumer: Consumer, deserializer: RecordDeserializer) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._deserializer = deserializer
        self._stops: dict[TopicPartition, int | None] = {}
        self._change = threading.Condition()
        self._requests: deque[Callable[[], None]] = deque()
        self._ready: deque[Fetched] = deque()
        self._paused: Set[TopicPartition] = frozenset()
        self._error: BaseException | None = None
        self._is_closing = False
        self.max_rows = 1
        self._thread = threading.Thread(target=self._run, name="kafka-fetcher", daemon=True)
        self._thread.start()

    def add(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        """Fetch these partitions, too."""
        self._request(lambda: self._assign(splits))

    def pause(self, paused: Set[TopicPartition]) -> None:
        """Fetch no partition of `paused`, and resume all others; fetched records of these wait."""
        before, self._paused = self._paused, paused
        self._request(lambda: self._pause(before, paused))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to the consumer's group, for those who monitor it."""
        self._request(lambda: self._commit(offsets))

    def take(self) -> Fetched | None:
        """Return the next batch of a partition that is not paused, if one is ready.

        Raises:
            ConnectorError: The consumer has failed; raised when all batches before the failure are taken.
        """
        with self._change:
            for index, fetched in enumerate(self._ready):
                if fetched.partition not in self._paused:
                    del self._ready[index]
                    self._change.notify()
                    return fetched
            if self._error is not None and not self._ready:
                raise self._error
            return None

    def close(self) -> None:
        with self._change:
            self._is_closing = True
            self._change.notify()
        self._thread.join(_END)
        if self._thread.is_alive():
            logger.warning("the consumer of Kafka at %s does not end", self._cluster.bootstrap_servers)

    def _request(self, request: Callable[[], None]) -> None:
        with self._change:
            self._requests.append(request)
            self._change.notify()

    # -- the fetcher's thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._may_poll():
                self._poll()
        except BaseException as error:  # raised again in the task thread, by `take`
            self._error = error
        finally:
            self._consumer.close()
            self._deserializer.close()

    def _may_poll(self) -> bool:
        """Carry out requests until there is room for records; false when the reader is closed."""
        while True:
            with self._change:
                has_room = sum(each.partition not in self._paused for each in self._ready) < _MOST_READY
                if not (self._requests or self._is_closing or (has_room and self._stops)):
                    self._change.wait()
                    continue
                requests, self._requests = self._requests, deque()
                is_closing = self._is_closing
            for request in requests:
                request()
            if is_closing:
                return False
            if has_room and self._stops:
                return True

    def _poll(self) -> None:
        messages = self._consumer.consume(1, _POLL)
        if messages and self.max_rows > 1:
            messages += self._consumer.consume(self.max_rows - 1, 0)
        by_partition: dict[TopicPartition, list[Message]] = {}
        ended: dict[TopicPartition, int] = {}
        for message in messages:
            name = message.topic(), message.partition()
            error = message.error()
            if name not in self._stops:  # fetched before the partition ended, or about no partition
                if error is not None and error.fatal():
                    raise self._cluster.failure(error)
                continue
            if error is not None:
                self._handle_error(error, message, name, ended)
            else:
                by_partition.setdefault(name, []).append(message)
        for name, some in by_partition.items():
            self._fetched(name, some)
        for name, offset in ended.items():
            stop = self._stops.get(name)
            if stop is not None and offset >= stop:
                self._put(Fetched(name, Polled(), stop, is_last=True))

    def _fetched(self, name: TopicPartition, messages: list[Message]) -> None:
        stop = self._stops[name]
        next_offset = offset_of(messages[-1]) + 1
        is_last = False
        if stop is not None and next_offset >= stop:
            next_offset, is_last = stop, True
            messages = [message for message in messages if offset_of(message) < stop]
        self._put(Fetched(name, self._deserializer.polled(messages), next_offset, is_last))

    def _put(self, fetched: Fetched) -> None:
        if fetched.is_last:
            from confluent_kafka import TopicPartition as Place

            self._consumer.incremental_unassign([Place(*fetched.partition)])
            del self._stops[fetched.partition]
        with self._change:
            self._ready.append(fetched)

    def _handle_error(
        self, error: KafkaError, message: Message, name: TopicPartition, ended: dict[TopicPartition, int]
    ) -> None:
        from confluent_kafka import KafkaError as Errors

        if error.code() == Errors._PARTITION_EOF:
            ended[name] = offset_of(message)
            return
        topic, partition = name
        where = f"partition {partition} of topic {topic!r}"
        if error.code() in (Errors._AUTO_OFFSET_RESET, Errors.OFFSET_OUT_OF_RANGE):
            msg = (
                f"{where} has no record at the offset where the job continues ({error.str()}): the topic's "
                "retention has deleted it, or the topic was created again. To continue without the lost "
                "records, set offset_reset='earliest' or offset_reset='latest'"
            )
            raise LostInputError(msg)
        if error.retriable() or error.code() in (
            Errors._TRANSPORT,
            Errors._TIMED_OUT,
            Errors._ALL_BROKERS_DOWN,
            Errors._UNKNOWN_PARTITION,
            Errors.LEADER_NOT_AVAILABLE,
            Errors.NOT_LEADER_FOR_PARTITION,
            Errors.REQUEST_TIMED_OUT,
        ):
            logger.warning("%s: %s", where, error.str())
            return
        what = f"{where} can't be read"
        raise self._cluster.error(what, error)

    def _assign(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Place

        if splits and isinstance(self._deserializer.values, LearnedDecoder):
            self._deserializer.values.use(splits[0].schema)
        try:
            # A consumer that does not know the leaders yet waits half a second before it fetches.
            self._consumer.list_topics(timeout=_POLL * 20)
        except KafkaException as error:
            logger.warning("%s", self._cluster.error("the leaders of partitions are not known yet", error))
        self._stops |= {split.name: split.stopping_offset for split in splits}
        self._consumer.incremental_assign([Place(*split.name, split.next_offset) for split in splits])

    def _pause(self, before: Set[TopicPartition], paused: Set[TopicPartition]) -> None:
        from confluent_kafka import TopicPartition as Place

        self._consumer.pause([Place(*name) for name in paused - before if name in self._stops])
        self._consumer.resume([Place(*name) for name in before - paused if name in self._stops])

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Place

        try:
            self._consumer.commit(offsets=[Place(*name, offset) for name, offset in offsets.items()])
        except KafkaException as error:
            logger.warning(
                "offsets can't be committed to the group: %s", self._cluster.error("commit", error)
            )
