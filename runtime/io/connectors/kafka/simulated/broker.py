"""`SimulatedBroker`: topics, transactions and groups, as the brokers of a cluster hold them (KIP-98).

A transactional id has a producer id and an epoch. Each new producer raises the epoch, which fences all older
producers. If it finds an open transaction, it aborts this transaction first, and so raises the epoch twice. A
transaction that exceeds its timeout is aborted with the next epoch. The broker answers a request to end a
transaction when the end is decided. It writes the markers after that, and until then the records stay hidden.

Errors have the error codes of Kafka's protocol (`BrokerError`), as a broker of version 4 returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

from penstock.runtime.io.connectors.kafka.simulated.leaders import Leaders
from penstock.runtime.io.connectors.kafka.simulated.log import Headers, PartitionLog
from penstock.runtime.ports import Clock

Place: TypeAlias = tuple[str, int]

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
NOT_LEADER_OR_FOLLOWER: Final = 6
MESSAGE_TOO_LARGE: Final = 10
COORDINATOR_LOADING: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_PARTITIONS: Final = 37
PRODUCER_FENCED: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
INVALID_TRANSACTION_TIMEOUT: Final = 50
CONCURRENT_TRANSACTIONS: Final = 51
TRANSACTIONAL_ID_NOT_FOUND: Final = 105

#: `transaction.max.timeout.ms` of brokers, in seconds.
_LONGEST_TIMEOUT: Final = 900.0
#: The largest epoch before a transactional id gets another producer id.
_LAST_EPOCH: Final = 32_766
#: `message.max.bytes` of brokers.
_LARGEST_MESSAGE: Final = 1_048_588


class BrokerError(Exception):
    """A request was refused, with this error code of Kafka's protocol."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Topic:
    partitions: list[PartitionLog]
    largest_message: int = _LARGEST_MESSAGE


@dataclass(slots=True)
class Transaction:
    """The newest transaction of a transactional id.

    Attributes:
        state: Kafka's name of the state, such as `Ongoing`.
        timeout: Seconds.
        started_at: Monotonic time of its first record; `None` if no transaction is open.
        offsets: Offsets that a commit gives to groups.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout: float
    state: str = "Empty"
    started_at: float | None = None
    started_at_wall: float = 0.0
    partitions: set[Place] = field(default_factory=set)
    offsets: dict[str, dict[Place, int]] = field(default_factory=dict)


class SimulatedBroker:
    """Holds all data of a cluster; see the module's docstring.

    Args:
        brokers: Number of brokers, among which the partitions' leaders are distributed.
        marker_delay: Returns the seconds until the markers of a transaction are written.

    Attributes:
        expired: Transactional ids whose transactions were aborted at their timeout.
        commits: Number of committed transactions.
        read_to: Offset up to which any consumer has read, by partition.
        deleted: Partitions from which records were deleted.
    """

    def __init__(
        self, clock: Clock, marker_delay: Callable[[], float] = lambda: 0.0, *, brokers: int = 1
    ) -> None:
        self.clock = clock
        self.leaders = Leaders(brokers, clock)
        self.marker_delay = marker_delay
        self._markers: list[tuple[float, Callable[[], None]]] = []
        self.topics: dict[str, Topic] = {}
        self.transactions: dict[str, Transaction] = {}
        self.groups: dict[str, dict[Place, int]] = {}
        self.expired: set[str] = set()
        self.read_to: dict[Place, int] = {}
        self.deleted: set[Place] = set()
        self.commits = 0
        self._producers = 0

    # -- topics -------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, largest_message: int = _LARGEST_MESSAGE) -> None:
        if name in self.topics:
            raise BrokerError(TOPIC_ALREADY_EXISTS)
        self.topics[name] = Topic([PartitionLog() for _ in range(partitions)], largest_message)

    def create_partitions(self, name: str, total: int) -> None:
        topic = self.topic(name)
        if total <= len(topic.partitions):
            raise BrokerError(INVALID_PARTITIONS)
        topic.partitions += [PartitionLog() for _ in range(total - len(topic.partitions))]

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION)
        return self.topics[name]

    def log(self, place: Place) -> PartitionLog:
        """The log of a partition, after the broker has aborted transactions that exceed their timeout."""
        self.catch_up()
        name, number = place
        partitions = self.topic(name).partitions
        if not 0 <= number < len(partitions):
            raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION)
        return partitions[number]

    def check_leader(self, place: Place) -> None:
        """Refuse a request for a partition while it has no leader."""
        if self.leaders.of(place) is None:
            raise BrokerError(NOT_LEADER_OR_FOLLOWER)

    def append(
        self,
        place: Place,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp: int | None,
        *,
        transactional_id: str | None = None,
        producer: tuple[int, int] = (-1, -1),
    ) -> int:
        """Append a record, and return its offset.

        With a transactional id the record joins the open transaction of its producer (id and epoch), or
        begins one.
        """
        log = self.log(place)
        if len(value or b"") + len(key or b"") > self.topic(place[0]).largest_message:
            raise BrokerError(MESSAGE_TOO_LARGE)
        at = self.now_in_milliseconds() if timestamp is None else timestamp
        if transactional_id is None:
            return log.append(value, key, headers, at)
        transaction = self._of_producer(transactional_id, producer)
        self._join(transaction)
        transaction.partitions.add(place)
        return log.append(value, key, headers, at, producer_id=transaction.producer_id)

    def delete_records(self, place: Place, before: int) -> bool:
        """Delete records as retention does; return whether there were any."""
        has_deleted = self.log(place).delete_before(before) > 0
        if has_deleted:
            self.deleted.add(place)
        return has_deleted

    def now_in_milliseconds(self) -> int:
        return int(self.clock.now() * 1000)

    # -- transactions -------------------------------------------------------------------------------------

    def init_producer_id(self, transactional_id: str, timeout: float) -> tuple[int, int]:
        """Begin a producer with a transactional id; return its producer id and its epoch."""
        self.catch_up()
        if timeout > _LONGEST_TIMEOUT:
            raise BrokerError(INVALID_TRANSACTION_TIMEOUT)
        known = self.transactions.get(transactional_id)
        if known is None or known.epoch + 2 > _LAST_EPOCH:
            if known is not None and known.state == "Ongoing":
                self._decide(known, commit=False)
            self._producers += 1
            self.transactions[transactional_id] = Transaction(transactional_id, self._producers, 0, timeout)
            return self._producers, 0
        if known.state.startswith("Prepare"):
            raise BrokerError(CONCURRENT_TRANSACTIONS)
        if known.state == "Ongoing":
            # The request of the client is answered with an error and repeated, so the epoch is raised twice.
            known.epoch += 1
            self._decide(known, commit=False)
            raise BrokerError(CONCURRENT_TRANSACTIONS)
        known.epoch += 1
        known.timeout = timeout
        known.state, known.partitions = "Empty", set()
        return known.producer_id, known.epoch

    def add_offsets(
        self, transactional_id: str, producer: tuple[int, int], group: str, offsets: Mapping[Place, int]
    ) -> None:
        """Let a transaction commit offsets of a group."""
        transaction = self._of_producer(transactional_id, producer)
        self._join(transaction)
        transaction.offsets.setdefault(group, {}).update(offsets)

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Decide the end of a transaction; a decision that is repeated changes nothing."""
        self.catch_up()
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            raise BrokerError(INVALID_PRODUCER_ID_MAPPING)
        if transaction.epoch != epoch:
            raise BrokerError(PRODUCER_FENCED)
        ends = "Commit" if commit else "Abort"
        if transaction.state == f"Complete{ends}":
            return
        if transaction.state == f"Prepare{ends}":
            raise BrokerError(CONCURRENT_TRANSACTIONS)
        if transaction.state != "Ongoing":
            raise BrokerError(INVALID_TXN_STATE)
        self._decide(transaction, commit=commit)

    def describe_transaction(self, transactional_id: str) -> Transaction:
        self.catch_up()
        if transactional_id not in self.transactions:
            raise BrokerError(TRANSACTIONAL_ID_NOT_FOUND)
        return self.transactions[transactional_id]

    def list_transactions(self, states: Iterable[str]) -> list[tuple[str, Transaction]]:
        self.catch_up()
        wanted = set(states)
        return [(name, t) for name, t in self.transactions.items() if not wanted or t.state in wanted]

    def catch_up(self) -> None:
        """Do what is due: write markers, and abort transactions that exceed their timeout."""
        now = self.clock.monotonic()
        self._write_markers(until=now)
        for transaction in self.transactions.values():
            if transaction.started_at is not None and now - transaction.started_at > transaction.timeout:
                self.expire(transaction)

    def write_all_markers(self) -> None:
        self._write_markers(until=inf)

    def _write_markers(self, until: float) -> None:
        due = [write for at, write in self._markers if at <= until]
        self._markers = [(at, write) for at, write in self._markers if at > until]
        for write in due:
            write()

    def expire(self, transaction: Transaction) -> None:
        """Abort an open transaction and fence its producer, as at its timeout."""
        transaction.epoch += 1
        self.expired.add(transaction.transactional_id)
        self._decide(transaction, commit=False)

    def _of_producer(self, transactional_id: str, producer: tuple[int, int]) -> Transaction:
        self.catch_up()
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer[0]:
            raise BrokerError(INVALID_PRODUCER_ID_MAPPING)
        if transaction.epoch != producer[1]:
            raise BrokerError(PRODUCER_FENCED)
        if transaction.state.startswith("Prepare"):
            raise BrokerError(CONCURRENT_TRANSACTIONS)
        return transaction

    def _join(self, transaction: Transaction) -> None:
        if transaction.state != "Ongoing":
            transaction.state, transaction.partitions = "Ongoing", set()
            transaction.started_at = self.clock.monotonic()
            transaction.started_at_wall = self.clock.now()

    def _decide(self, transaction: Transaction, *, commit: bool) -> None:
        ends = "Commit" if commit else "Abort"
        transaction.state, transaction.started_at = f"Prepare{ends}", None
        self.commits += commit

        def write() -> None:
            for name, number in sorted(transaction.partitions):
                log = self.topics[name].partitions[number]
                log.end_transaction(
                    transaction.producer_id, commit=commit, timestamp=self.now_in_milliseconds()
                )
            if commit:
                for group, offsets in transaction.offsets.items():
                    self.groups.setdefault(group, {}).update(offsets)
            transaction.offsets = {}
            transaction.state = f"Complete{ends}"

        delay = self.marker_delay()
        if delay:
            self._markers.append((self.clock.monotonic() + delay, write))
        else:
            write()
