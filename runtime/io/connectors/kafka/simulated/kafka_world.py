"""`KafkaWorld`: the Kafka of a simulation, for `simulate(build, world=KafkaWorld(...))`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Literal

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.kafka.clients import serve
from penstock.runtime.io.connectors.kafka.cluster import check_installed
from penstock.runtime.io.connectors.kafka.simulated.broker import (
    COORDINATOR_LOADING,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    SimulatedBroker,
)
from penstock.runtime.names import nearest_name
from penstock.runtime.testing.simulation.world.external import ExternalWorld, WorldContext
from penstock.runtime.time.durations import Duration, seconds_in

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record of a topic.

    Attributes:
        timestamp: Milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


@dataclass(frozen=True, slots=True)
class _Given:
    """A record of the input.

    Attributes:
        partition: `None` for one of the partitions in turn.
        number: Number of the record in its call of `put`.
        after: Seconds from the start of the run to its arrival.
    """

    topic: str
    partition: int | None
    number: int
    value: bytes
    key: bytes | None
    timestamp: int | None
    after: float


#: Seconds between two attempts to make a fault happen, and the maximum number of attempts.
_INTERVAL: Final = 0.01
_LOOKS: Final = 300

#: Answers of a coordinator while it moves.
_MOVING: Final = (COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)


class KafkaWorld(ExternalWorld):
    """A Kafka cluster in memory, for `simulate(build, world=KafkaWorld(...))`.

    `KafkaSource` and `KafkaSink` with its address run as in production, with all their code, on clients of a
    model of a broker. The model has transactions with epochs and timeouts, isolation levels, groups and
    retention, on the simulated clock. The same tests run against it and against Apache Kafka.

    Faults by name:

    - `"kafka_broker_crashes"`: the broker is away for up to three seconds and keeps its data.
    - `"kafka_coordinator_moves"`: coordinators answer for a while with retriable errors (14, 15, 16).
    - `"kafka_expired_transactions"`: the broker aborts an open transaction, as at its timeout.
    - `"kafka_expired_records"`: retention deletes records that a consumer has read.
    - `"kafka_new_partitions"`: a topic gets another partition.
    - `"kafka_leader_moves"`: one of several brokers dies, and its partitions get other leaders after a while.

    A job may fail because a transaction or records have expired, if its error names them.

    Args:
        topics: The number of partitions of each topic.
        brokers: Number of brokers, which lead the partitions.
        bootstrap_servers: The address that the job uses; no connection is made to it.

    Raises:
        ConfigurationError: confluent-kafka is not installed, a topic has no partition, or there is no broker.

    Example:
        >>> kafka = KafkaWorld({"words": 2})
        >>> kafka.put("words", ["to", "be", "or"])
        >>> kafka.bootstrap_servers
        'kafka:9092'
    """

    faults: ClassVar = (
        "kafka_broker_crashes",
        "kafka_coordinator_moves",
        "kafka_expired_transactions",
        "kafka_expired_records",
        "kafka_new_partitions",
        "kafka_leader_moves",
    )

    def __init__(
        self, topics: Mapping[str, int], *, brokers: int = 1, bootstrap_servers: str = "kafka:9092"
    ) -> None:
        check_installed()
        for name, partitions in topics.items():
            if partitions < 1:
                msg = f"topic {name!r} has {partitions} partitions; give it at least 1"
                raise ConfigurationError(msg)
        if brokers < 1:
            msg = f"brokers={brokers} is not allowed: give at least 1"
            raise ConfigurationError(msg)
        self.bootstrap_servers = bootstrap_servers
        self._brokers = brokers
        self._topics = dict(topics)
        self._given: list[_Given] = []
        self._broker: SimulatedBroker | None = None
        self._coordinator_errors: list[int] = []
        #: Number of records that have not arrived yet.
        self._coming = 0

    def put(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        key: Callable[[Any], Any] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        after: Duration = 0.0,
    ) -> None:
        """Put values into a topic: as JSON, or as they are if they are bytes.

        Args:
            key: Returns the key of a value, a `str` or `bytes`.
            partition: Number of the partition; by default the values go to all partitions in turn.
            timestamp: Milliseconds since the epoch; by default the time of their arrival.
            after: Time from the start of the run to their arrival. By default they are there from the start.
        """
        if topic not in self._topics:
            hint = nearest_name(topic, self._topics) or "."
            msg = f"the KafkaWorld has no topic {topic!r}{hint} It has {', '.join(self._topics)}"
            raise ConfigurationError(msg)
        seconds = seconds_in("after", after)
        for number, value in enumerate(values):
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            name = None if key is None else key(value)
            self._given.append(
                _Given(
                    topic,
                    partition,
                    number,
                    data,
                    name.encode() if isinstance(name, str) else name,
                    timestamp,
                    seconds,
                )
            )

    def records(self, topic: str, *, isolation_level: Isolation = "read_committed") -> list[KafkaRecord]:
        """All records of a topic that a consumer sees, by partition and offset.

        Records behind an open transaction are hidden from committed reads.
        """
        broker = self._served
        broker.write_all_markers()
        return [
            KafkaRecord(
                topic, number, entry.offset, entry.key, entry.value, tuple(entry.headers), entry.timestamp
            )
            for number, log in enumerate(broker.topic(topic).partitions)
            for entry in log.read(log.start, is_committed=isolation_level == "read_committed")
        ]

    def values(self, topic: str) -> list[Any]:
        """The values of the committed records of a topic, decoded from JSON."""
        return [None if record.value is None else json.loads(record.value) for record in self.records(topic)]

    # -- called by `simulate` -----------------------------------------------------------------------------

    def begin(self, run: WorldContext) -> None:
        """Start the broker with its topics, and serve its address."""
        from penstock.runtime.io.connectors.kafka.simulated.connection import Connection
        from penstock.runtime.io.connectors.kafka.simulated.simulated_clients import SimulatedClients

        super().begin(run)
        broker = SimulatedBroker(run.clock, self._marker_delay, brokers=self._brokers)
        for name, partitions in self._topics.items():
            broker.create_topic(name, partitions)
        self._coming = len(self._given)
        for given in self._given:
            if given.after:
                run.after(given.after, partial(self._arrive, broker, given), f"a record of {given.topic}")
            else:
                self._arrive(broker, given)
        connection = Connection(broker, run)
        self._broker, self._coordinator_errors = broker, connection.coordinator_errors
        serve(self.bootstrap_servers, SimulatedClients(connection))

    def has_been_read(self) -> bool:
        """Whether the offsets of a consumer group cover all records that were put into topics.

        A source commits the offsets of completed checkpoints to its `group_id`.
        """
        read = {given.topic for given in self._given}
        return not self._coming and all(
            log.end == 0
            or any(group.get((name, number), 0) >= log.end for group in self._served.groups.values())
            for name in read
            for number, log in enumerate(self._served.topic(name).partitions)
        )

    def end(self) -> None:
        """Stop serving the address."""
        serve(self.bootstrap_servers, None)

    def explains(self, cause: str) -> bool:
        """Whether an error names an expired transaction, or a partition with expired records."""
        partitions = {f"partition {number} of topic {name!r}" for name, number in self._served.deleted}
        return any(name in cause for name in {repr(name) for name in self._served.expired} | partitions)

    def calm_down(self) -> None:
        """Bring all brokers back."""
        self._served.leaders.calm_down()

    def strike(self, fault: str) -> None:
        """Make one of the faults happen, as soon as it can."""
        if fault == "kafka_leader_moves" and self._brokers == 1:
            return  # no other broker can lead
        strikes = {
            "kafka_broker_crashes": self._crash,
            "kafka_coordinator_moves": self._move_coordinators,
            "kafka_expired_transactions": self._expire_transaction,
            "kafka_expired_records": self._expire_records,
            "kafka_new_partitions": self._add_partition,
            "kafka_leader_moves": self._kill_leader,
        }
        self._look(fault, strikes[fault], _LOOKS)

    @property
    def _served(self) -> SimulatedBroker:
        assert self._broker is not None, "simulate() begins the run first"
        return self._broker

    def _arrive(self, broker: SimulatedBroker, given: _Given) -> None:
        partitions = len(broker.topic(given.topic).partitions)
        number = given.number % partitions if given.partition is None else given.partition
        broker.append((given.topic, number), given.value, given.key, (), given.timestamp)
        self._coming -= 1

    def _look(self, fault: str, strike: Callable[[], bool], looks: int) -> None:
        if self.run.is_calm or not looks:
            return
        if strike():
            self.run.struck(fault)
        else:
            self.run.after(_INTERVAL, lambda: self._look(fault, strike, looks - 1), f"{fault} waits")

    def _crash(self) -> bool:
        self.run.go_away(self.run.draws.pick((0.05, 0.5, 3.0)))
        return self._move_coordinators()

    def _move_coordinators(self) -> bool:
        draws = self.run.draws
        self._coordinator_errors += [draws.pick(_MOVING) for _ in range(draws.between(1, 4))]
        return True

    def _expire_transaction(self) -> bool:
        found = [each for _, each in self._served.list_transactions(["Ongoing"])]
        if found:
            self._served.expire(self.run.draws.pick(found))
        return bool(found)

    def _expire_records(self) -> bool:
        # Before the first commit a restarted job may look for its first record again, and find a later one.
        if not self._served.commits:
            return False
        read = sorted(self._served.read_to.items())
        return bool(read) and self._served.delete_records(*self.run.draws.pick(read))

    def _add_partition(self) -> bool:
        name = self.run.draws.pick(sorted(self._served.topics))
        self._served.create_partitions(name, len(self._served.topics[name].partitions) + 1)
        return True

    def _kill_leader(self) -> bool:
        draws = self.run.draws
        election = draws.pick((0.01, 0.1, 1.0))
        absence = draws.pick((0.5, 3.0, 60.0))
        self._served.leaders.die(draws.between(1, self._brokers), election=election, absence=absence)
        return self._move_coordinators()

    def _marker_delay(self) -> float:
        return 0.0 if self.run.is_calm else self.run.draws.pick((0.0, 0.0, 0.01, 0.1))
