"""The writers of a `KafkaSink`: one sends at least once, the other in transactions."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.kafka.cluster import REQUEST_TIMEOUT, KafkaCluster, Refusals
from penstock.runtime.io.connectors.kafka.transaction_requests import TransactionError, describe_transaction
from penstock.runtime.io.connectors.kafka.transactions import (
    KafkaCommittable,
    TransactionalIds,
    abort_transaction,
    abort_transactions,
    commit_transactions,
    open_transactions,
)
from penstock.runtime.io.formats.format import Encoder
from penstock.runtime.operators.metrics import AsksForMetrics, Counter
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

logger = logging.getLogger(__name__)

#: Seconds within which all records that were sent must be acknowledged.
_FLUSH_TIMEOUT: Final = 120.0

#: Seconds for a producer to begin a transaction, which takes several requests to the coordinator.
_BEGIN_TIMEOUT: Final = 3 * REQUEST_TIMEOUT
#: Seconds to abort a transaction when the writer is closed.
_END: Final = 5.0
#: Seconds for which the task thread waits until leftovers are aborted. Records and barriers wait meanwhile,
#: so it must be short compared with the timeout of a checkpoint. A transaction takes 0.1 s, and eight
#: are aborted at a time, so this is enough for hundreds.
_CLEAN_UP: Final = 10.0
#: Share of its timeout after which a transaction is too old to be flushed into a checkpoint.
_SAFE_AGE: Final = 0.9

#: Settings of librdkafka that a user may replace.
_DEFAULTS: Final[Mapping[str, Any]] = {
    # With a transactional id, librdkafka's default is about the transaction's timeout.
    "socket.timeout.ms": 60_000,
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    # Like Kafka's own producer, so that both send a key to the same partition.
    "partitioner": "murmur2_random",
}


@dataclass(frozen=True)
class MessageSettings:
    """Makes the messages of a batch; `KafkaSink` describes the attributes."""

    topic: str | Callable[[Any], str]
    values: Encoder
    key: str | Callable[[Any], Any] | None
    headers: Callable[[Any], Any] | None
    timestamp: Callable[[Any], int] | None
    partition: Callable[[Any], int] | None
    keys: Encoder | None = None

    def messages(self, batch: Batch) -> Iterable[tuple[str, dict[str, Any]]]:
        """Return the topic and the arguments of `produce` for each record."""
        values = self.values.encode(batch)
        topic, key = self.topic, self.key
        if isinstance(batch, ArrowBatch) and not any(
            map(callable, (topic, key, self.headers, self.timestamp, self.partition))
        ):
            columns = [None] * len(values) if key is None else batch.batch.column(key).to_pylist()
            for value, of_row in zip(values, self._encoded(columns), strict=True):
                yield str(topic), {"value": value, "key": of_row}
            return
        rows = batch.batch.to_pylist() if isinstance(batch, ArrowBatch) else batch.rows
        keys = [None if key is None else key(row) if callable(key) else row[key] for row in rows]
        for row, value, of_row in zip(rows, values, self._encoded(keys), strict=True):
            message: dict[str, Any] = {"value": value, "key": of_row}
            if self.headers is not None:
                message["headers"] = self.headers(row)
            if self.timestamp is not None:
                message["timestamp"] = self.timestamp(row) // 1000
            if self.partition is not None:
                message["partition"] = self.partition(row)
            yield topic(row) if callable(topic) else topic, message

    def _encoded(self, keys: list[Any]) -> list[bytes | None]:
        return [_bytes_of(key) for key in keys] if self.keys is None else self.keys.encode(RowBatch(keys))

    def close(self) -> None:
        self.values.close()
        if self.keys is not None:
            self.keys.close()


def _bytes_of(key: Any) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    return json.dumps(key, separators=(",", ":"), default=str).encode()


class _Sender:
    """A producer whose failed deliveries are known.

    Attributes:
        records: Number of records sent.
    """

    def __init__(self, cluster: KafkaCluster, settings: Mapping[str, Any], bytes_out: Counter) -> None:
        self._cluster = cluster
        self._bytes_out = bytes_out
        self._failure: str | None = None
        self._refusals = Refusals()
        self.records = 0
        self.producer: Producer = cluster.producer(
            {
                **{name: value for name, value in _DEFAULTS.items() if name not in cluster.properties},
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
                **settings,
            },
            self._refusals,
        )

    def send(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Send the messages of a batch, each with its topic; waits while the client's queue is full.

        Raises:
            ConnectorError: A message was refused, or there is no answer in time.
        """
        from confluent_kafka import KafkaException

        produce = self.producer.produce
        sent_bytes = 0
        for topic, message in messages:
            sent_bytes += len(message["value"] or b"")
            try:
                try:
                    produce(topic, **message)
                except BufferError:
                    self.flush()
                    produce(topic, **message)
            except KafkaException as error:
                what = f"a value of {len(message['value'] or b'')} bytes can't be sent to topic {topic!r}"
                raise self._cluster.error(what, error) from error
            self.records += 1
        self._bytes_out.increment(sent_bytes)
        self.producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until the broker has acknowledged all records.

        Raises:
            ConnectorError: A record was refused, or there is no answer in time.
        """
        left = self.producer.flush(_FLUSH_TIMEOUT)
        self._check()
        if left:
            what = f"{left} records were not acknowledged within {_FLUSH_TIMEOUT:g} s"
            raise self._cluster.error(what, self._refusals.reason or "no answer")

    def _check(self) -> None:
        if self._failure is not None:
            what = "a record was not delivered"
            raise self._cluster.error(what, self._failure)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            size = len(message.value() or b"")
            self._failure = f"{error.str()} (topic {message.topic()!r}, a value of {size} bytes)"


class KafkaWriter:
    """Sends records at once; a checkpoint waits until they are acknowledged."""

    def __init__(self, cluster: KafkaCluster, messages: MessageSettings, metrics: AsksForMetrics) -> None:
        self._messages = messages
        self._sender = _Sender(cluster, {}, metrics.counter("bytes_out"))

    def write(self, batch: Batch) -> None:
        self._sender.send(self._messages.messages(batch))

    def prepare_commit(self) -> Sequence[Any]:
        self._sender.flush()
        return ()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Do nothing: the records are visible."""

    def close(self) -> None:
        self._sender.producer.purge()
        self._messages.close()


class _Transaction(_Sender):
    """A producer with an open transaction.

    Attributes:
        producer_id: Needed, with the epoch, for the request that commits the transaction.
    """

    def __init__(
        self, cluster: KafkaCluster, transactional_id: str, timeout: float, clock: Clock, bytes_out: Counter
    ) -> None:
        milliseconds = int(timeout * 1000)
        socket_timeout = cluster.properties.get("socket.timeout.ms", _DEFAULTS["socket.timeout.ms"])
        settings = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": milliseconds,
            # librdkafka refuses a longer one.
            "socket.timeout.ms": min(int(socket_timeout), milliseconds),
        }
        super().__init__(cluster, settings, bytes_out)
        self._id = transactional_id
        self._timeout = timeout
        self._clock = clock
        self._first_sent: float | None = None
        self.producer_id = self.epoch = -1

    def begin(self) -> None:
        """Get a new epoch, which fences older producers with the id, and begin the transaction.

        Raises:
            ConnectorError: The coordinator does not answer in time, or refuses.
        """
        from confluent_kafka import KafkaException

        try:
            self._refusals.ask(self.producer, self.producer.init_transactions, REQUEST_TIMEOUT)
            self.producer.begin_transaction()
            known = describe_transaction(self._cluster.settings, self._id, timeout=REQUEST_TIMEOUT)
        except (KafkaException, TransactionError) as error:
            what = f"transaction {self._id!r} can't begin"
            raise self._cluster.error(what, error) from error
        assert known is not None, "the coordinator knows an id that has just begun"
        self.producer_id, self.epoch = known.producer_id, known.epoch

    def send(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> None:
        if self._first_sent is None:
            self._first_sent = self._clock.monotonic()
        super().send(messages)

    def committable(self) -> KafkaCommittable:
        """Flush the transaction.

        Raises:
            ConnectorError: A record was refused, or the broker may have aborted the transaction by now: a
                restart writes its records again.
        """
        self.flush()
        assert self._first_sent is not None, "a transaction without records is not committed"
        age = self._clock.monotonic() - self._first_sent
        if age > _SAFE_AGE * self._timeout:
            msg = (
                f"transaction {self._id!r} has been open for {age:.0f} s, but the broker aborts it after "
                f"{self._timeout:g} s (transaction_timeout). Checkpoints must be more frequent"
            )
            raise ConnectorError(msg)
        return KafkaCommittable(self._id, self.producer_id, self.epoch, self.records, self._clock.now())

    def drop(self) -> None:
        """Destroy the producer, whose `close` would abort the transaction; takes some milliseconds."""
        del self.producer

    def abort(self) -> None:
        """Abort the transaction; if that fails, the next attempt or the broker's timeout does."""
        self.producer.purge()
        self.drop()
        try:
            abort_transaction(self._cluster, self._id, _END)
        except ConnectorError as error:
            logger.warning("%s", error)


class ExactlyOnceWriter:
    """Sends the records between two checkpoints in one transaction; `sink.py` says why this is exact.

    The next producer is made ahead, in a thread: to begin, it needs several answers of the broker.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        messages: MessageSettings,
        ids: TransactionalIds,
        *,
        attempt: int,
        subtask: int,
        timeout: float,
        allow_missing: bool,
        clock: Clock,
        metrics: AsksForMetrics,
    ) -> None:
        self._cluster = cluster
        self._messages = messages
        self._ids = ids
        self._attempt = attempt
        self._subtask = subtask
        self._timeout = timeout
        self._allow_missing = allow_missing
        self._clock = clock
        self._bytes_out = metrics.counter("bytes_out")
        self._open_transactions = metrics.gauge("open_transactions")
        self._flushed: set[tuple[str, int]] = set()
        self._numbers = 0
        #: Ids of this attempt whose transactions are known to be committed.
        self._free: deque[str] = deque()
        self._next = self._prepared()
        self._open: _Transaction | None = None

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        if self._open is None:
            self._open = self._begun()
            self._show_open()
        self._open.send(self._messages.messages(batch))

    def prepare_commit(self) -> Sequence[KafkaCommittable]:
        transaction = self._open
        if transaction is None:
            return ()
        committable = transaction.committable()
        self._open = None
        self._flushed.add((committable.transactional_id, committable.epoch))
        self._show_open()
        self._cluster.clients.run(transaction.drop)
        return (committable,)

    def commit(self, committables: Sequence[KafkaCommittable], permit: CommitPermit) -> None:
        committed = commit_transactions(self._cluster, committables, allow_missing=self._allow_missing)
        self._flushed -= {(each.transactional_id, each.epoch) for each in committables}
        self._show_open()
        names = [committable.transactional_id for committable in committed]
        self._free += [name for name in names if self._ids.attempt_of(name) == self._attempt]

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Abort the transactions that earlier attempts left open; an error only delays that.

        The task thread waits for `_CLEAN_UP` at most. The rest is then aborted in the background.
        """
        cleaning = self._cluster.clients.run(self._abort_leftovers)
        try:
            cleaning.result(_CLEAN_UP)
        except ConnectorError as error:
            logger.warning("transactions of earlier attempts stay open until their timeout: %s", error)
        except TimeoutError:
            logger.warning(
                "transactions of earlier attempts are not aborted after %g s; the job continues meanwhile",
                _CLEAN_UP,
            )
            cleaning.add_done_callback(_log_failure)

    def _abort_leftovers(self) -> None:
        names = open_transactions(self._cluster, self._ids)
        abort_transactions(
            self._cluster, [name for name in names if self._ids.is_leftover(name, self._attempt)]
        )

    def close(self) -> None:
        """Abort the open transaction, which no checkpoint covers; flushed ones stay."""
        self._next.add_done_callback(_drop_unused)
        if self._open is not None:
            self._open.abort()
            self._open = None
        self._messages.close()

    def _show_open(self) -> None:
        self._open_transactions.set(len(self._flushed) + (self._open is not None))

    def _begun(self) -> _Transaction:
        """Return the prepared transaction; one that could not begin is tried once more."""
        try:
            transaction = self._next.result(_BEGIN_TIMEOUT)
        except (ConnectorError, TimeoutError) as error:
            logger.warning("a transaction could not begin, and is tried once more: %s", error)
            self._next.add_done_callback(_drop_unused)
            self._next = self._prepared()
            try:
                transaction = self._next.result(_BEGIN_TIMEOUT)
            except TimeoutError as late:
                what = f"no transaction could begin within {_BEGIN_TIMEOUT:g} s"
                raise self._cluster.error(what, "no answer") from late
        self._next = self._prepared()
        return transaction

    def _prepared(self) -> Future[_Transaction]:
        transactional_id = self._free.popleft() if self._free else self._new_id()

        def begun() -> _Transaction:
            transaction = _Transaction(
                self._cluster, transactional_id, self._timeout, self._clock, self._bytes_out
            )
            transaction.begin()
            return transaction

        return self._cluster.clients.run(begun)

    def _new_id(self) -> str:
        self._numbers += 1
        return self._ids.make(self._attempt, self._subtask, self._numbers)


def _log_failure(cleaning: Future[None]) -> None:
    error = cleaning.exception()
    if error is not None:
        logger.warning("transactions of earlier attempts stay open until their timeout: %s", error)


def _drop_unused(prepared: Future[_Transaction]) -> None:
    if prepared.exception() is None:
        prepared.result().drop()
