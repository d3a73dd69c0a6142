"""`KafkaFetcher`: a thread that polls the consumer of one reader and decodes what it gets.

The task thread never waits for Kafka. The fetcher makes batches, each of one partition, and keeps a few of
them ready. While these are not taken, it does not poll. librdkafka then stops fetching at the limits of its
queue. So memory is bounded, and a slow job slows the reads.

Only the fetcher's thread calls the consumer. The reader sends it requests: more partitions, pauses, commits.
They are carried out between two polls. The thread rests while there is nothing to do.

**Lag.** The fetcher also asks for the ends of the partitions, every two seconds and even while it does not
poll. It asks less often if answers are slow or missing, because no record is read meanwhile. The client
itself learns of an end only when it fetches, and a slow job fetches seldom. At the end of a partition the
position moves past the markers of transactions, which are not records. Otherwise a partition that is read to
its end would have a lag of 1.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.cycle_collector import without_collections
from penstock.runtime.errors import LostInputError
from penstock.runtime.io.connectors.kafka.clients import ENDED
from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster, passes
from penstock.runtime.io.connectors.kafka.consumed import CHUNK, PartitionRun, by_partition, errors_in
from penstock.runtime.io.connectors.kafka.partitions import KafkaPartitionSplit, TopicPartition
from penstock.runtime.io.connectors.kafka.records import offset_of
from penstock.runtime.io.connectors.messages.deserializer import MessageDeserializer
from penstock.runtime.io.formats.json_learning import LearnedDecoder
from penstock.runtime.operators.lag import SourceLag, SplitLag
from penstock.runtime.operators.metrics import Counter
from penstock.runtime.operators.source import Polled

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

logger = logging.getLogger(__name__)

#: The fetcher does not poll while this many batches wait for the task thread.
_MOST_READY: Final = 4
#: Maximum seconds of one wait for records; a request may wait as long.
_POLL: Final = 0.05
#: Seconds between two requests for the ends of partitions.
_LOOK_FOR_ENDS: Final = 2.0
#: Seconds until the first of these requests, so that it does not delay the first records.
_FIRST_LOOK: Final = 0.1
#: Maximum seconds until such a request is answered.
_ANSWER: Final = 1.0
#: Minimum pause after such a request, in multiples of its duration.
_PAUSE: Final = 20.0
#: Seconds for which the answer is valid. After that the end, and with it the lag, is unknown.
_KNOWN_FOR: Final = 60.0
#: Seconds for the thread to end; it does not outlive the process.
_END: Final = 5.0


@dataclass(slots=True)
class Fetched:
    """Records of one partition in their order; without records, the position has moved past markers.

    Attributes:
        next_offset: Offset of the partition's next record.
        is_last: Whether the partition has been read to its stopping offset.
    """

    partition: TopicPartition
    polled: Polled[Any]
    next_offset: int
    is_last: bool = False


class KafkaFetcher:
    """Fetches the partitions of one reader; the task thread calls its public methods."""

    def __init__(
        self,
        cluster: KafkaCluster,
        consumer: Consumer,
        deserializer: MessageDeserializer[Message],
        bytes_in: Counter,
    ) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._deserializer = deserializer
        self._bytes_in = bytes_in
        self._stops: dict[TopicPartition, int | None] = {}
        #: All topics from which messages may come.
        self._topics: set[str] = set()
        #: Offset after the last record that was fetched, by partition.
        self._next: dict[TopicPartition, int] = {}
        #: End of each partition, and the time until which it is known.
        self._ends: Mapping[TopicPartition, tuple[int, float]] = {}
        self._look_at = 0.0
        self._lock = threading.Lock()
        self._requests: deque[Callable[[], None]] = deque()
        self._ready: deque[Fetched] = deque()
        self._paused: Set[TopicPartition] = frozenset()
        self._error: BaseException | None = None
        self._is_closing = False
        self.max_rows = 1
        self._worker = cluster.clients.start_worker(self._step)

    def add(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        """Fetch these partitions, too."""
        self._request(lambda: self._assign(splits))

    def pause(self, paused: Set[TopicPartition]) -> None:
        """Fetch no partition of `paused`, and resume all others; fetched records of paused ones wait."""
        before, self._paused = self._paused, paused
        self._request(lambda: self._pause(before, paused))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to the consumer's group, for monitoring only."""
        self._request(lambda: self._commit(offsets))

    def take(self) -> Fetched | None:
        """Return the next batch of a partition that is not paused, if one is ready.

        Raises:
            ConnectorError: The consumer has failed. Raised when only batches of paused partitions are left:
                these partitions may wait for the ones that have failed.
        """
        with self._lock:
            for index, fetched in enumerate(self._ready):
                if fetched.partition not in self._paused:
                    del self._ready[index]
                    self._worker.wake()
                    return fetched
            if self._error is not None:
                raise self._error
            return None

    def lag(self, splits: Iterable[KafkaPartitionSplit]) -> SourceLag | None:
        """Compare positions with the last known ends; `None` unless all are known. Any thread may call it."""
        ends, found = self._ends, []
        now = self._cluster.clients.monotonic()
        for split in splits:
            end, known_until = ends.get(split.name, (0, -inf))
            if known_until < now:
                return None
            if split.stopping_offset is not None:
                end = min(end, split.stopping_offset)
            name, position = f"{split.topic}[{split.partition}]", split.next_offset
            found.append(SplitLag(name, max(0, end - position), position=position, end=end))
        return SourceLag.of(found)

    def close(self) -> None:
        with self._lock:
            self._is_closing = True
        self._worker.wake()
        if not self._worker.join(_END):
            logger.warning("the consumer of Kafka at %s does not end", self._cluster.bootstrap_servers)

    def _request(self, request: Callable[[], None]) -> None:
        with self._lock:
            self._requests.append(request)
        self._worker.wake()

    # -- the fetcher's thread -----------------------------------------------------------------------------

    def _step(self) -> float:
        try:
            rest = self._work()
        except BaseException as error:  # raised again in the task thread, by `take`
            self._error = error
            rest = ENDED
        if rest == ENDED:
            self._consumer.close()
            self._deserializer.close()
        return rest

    def _work(self) -> float:
        """Carry out requests, and poll once if there is room for records; return the seconds to rest."""
        with self._lock:
            has_room = sum(each.partition not in self._paused for each in self._ready) < _MOST_READY
            requests, self._requests = self._requests, deque()
            is_closing = self._is_closing
        for request in requests:
            request()
        if is_closing:
            return ENDED
        if not self._stops:
            return 0.0 if requests else inf
        until_look = self._look_at - self._cluster.clients.monotonic()
        if until_look <= 0:
            self._look_for_ends()
            return 0.0
        if has_room:
            self._poll()
            return 0.0
        return 0.0 if requests else until_look

    def _look_for_ends(self) -> None:
        """Ask for the partitions' ends at the consumer's isolation level; without an answer, ask later."""
        from confluent_kafka import OFFSET_END, KafkaException
        from confluent_kafka import TopicPartition as Place

        clients = self._cluster.clients
        began = clients.monotonic()
        # A request with the logical offset as its time is answered with that offset.
        asked = [Place(*name, OFFSET_END) for name in self._stops]
        try:
            places = self._consumer.offsets_for_times(asked, timeout=_ANSWER)
        except KafkaException as error:
            logger.info("the lag is not known: %s", self._cluster.error("the ends of partitions", error))
        else:
            until = began + _KNOWN_FOR
            known = {
                (p.topic, p.partition): (p.offset, until) for p in places if p.error is None and p.offset >= 0
            }
            self._ends = {**self._ends, **known}
        now = clients.monotonic()
        self._look_at = now + max(_LOOK_FOR_ENDS, _PAUSE * (now - began))

    def _poll(self) -> None:
        messages = self._consumer.consume(1, _POLL)
        if not messages:
            return
        runs: dict[TopicPartition, PartitionRun] = {}
        ended: dict[TopicPartition, int] = {}
        with without_collections():
            left = self.max_rows
            if left > 1:
                messages += self._consumer.consume(min(left, CHUNK) - 1, 0)
            while messages:
                left -= len(messages)
                self._sort(messages, runs, ended)
                messages.clear()
                if left > 0:
                    messages = self._consumer.consume(min(left, CHUNK), 0)
            for name, run in runs.items():
                self._put_run(name, run)
        for name, offset in ended.items():
            if name not in self._stops:
                continue  # its last record has just been fetched
            stop = self._stops[name]
            if stop is not None and offset >= stop:
                self._put(Fetched(name, Polled(), stop, is_last=True))
            elif offset > self._next[name]:
                self._put(Fetched(name, Polled(), offset))

    def _sort(
        self,
        messages: list[Message],
        runs: dict[TopicPartition, PartitionRun],
        ended: dict[TopicPartition, int],
    ) -> None:
        """Add messages to the runs of their partitions, and the ends of partitions to `ended`."""
        if errors_in(messages):
            messages = self._without_errors(messages, ended)
        if not messages:
            return
        topic = next(iter(self._topics)) if len(self._topics) == 1 else None
        for name, some in by_partition(messages, topic).items():
            if name not in self._stops:
                continue  # left over from a partition that has ended
            run = runs.get(name)
            if run is None:
                runs[name] = run = PartitionRun(name, keeps_messages=self._deserializer.reads_messages)
            if not run.is_last:
                self._add(run, some, self._stops[name])

    def _add(self, run: PartitionRun, messages: list[Message], stop: int | None) -> None:
        self._bytes_in.increment(sum(map(len, messages)))
        reaches_stop = stop is not None and offset_of(messages[-1]) + 1 >= stop
        if reaches_stop:
            messages = [message for message in messages if offset_of(message) < stop]  # type: ignore[operator]
        if messages:
            run.add(messages)
        if reaches_stop:
            run.end(stop)  # type: ignore[arg-type]

    def _put_run(self, name: TopicPartition, run: PartitionRun) -> None:
        deserializer = self._deserializer
        polled = (
            deserializer.polled(run.messages)
            if deserializer.reads_messages
            else deserializer.polled_values(run.values, run.origin)
        )
        self._put(Fetched(name, polled, run.next_offset, run.is_last))

    def _without_errors(self, messages: Sequence[Message], ended: dict[TopicPartition, int]) -> list[Message]:
        left = []
        for message in messages:
            error = message.error()
            if error is None:
                left.append(message)
                continue
            name = message.topic(), message.partition()
            if name in self._stops:
                self._handle_error(error, message, name, ended)
            elif error.fatal():  # the error belongs to no partition
                raise self._cluster.failure(error)
        return left

    def _put(self, fetched: Fetched) -> None:
        if fetched.is_last:
            from confluent_kafka import TopicPartition as Place

            self._consumer.incremental_unassign([Place(*fetched.partition)])
            del self._stops[fetched.partition]
            self._ends = {**self._ends, fetched.partition: (fetched.next_offset, inf)}
        self._next[fetched.partition] = fetched.next_offset
        with self._lock:
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
        if passes(error):
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
        self._next |= {split.name: split.next_offset for split in splits}
        self._look_at = self._cluster.clients.monotonic() + _FIRST_LOOK
        self._topics |= {split.topic for split in splits}
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
