"""The model of a broker that `KafkaWorld` simulates, in real time and without a failure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.runtime.io.connectors.kafka.transaction_requests import describe_transaction
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.world.agenda import Draws, draw_conditions
from penstock.runtime.testing.simulation.world.external import WorldContext
from penstock.runtime.testing.simulation.world.world import World
from penstock.runtime.time.durations import Duration, as_seconds
from penstock.testing import KafkaWorld
from serving.kafka import Broker
from serving.kafka_clients import producer
from serving.kafka_security import Settings

BOOTSTRAP = "model:9092"


class ModelBroker(Broker):
    """A `Broker` without a process."""

    def __init__(self) -> None:
        self.bootstrap = BOOTSTRAP
        self._security = None


class _RealClock(ManualClock):
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def advance(self, duration: Duration) -> None:
        time.sleep(as_seconds(duration))


@contextmanager
def model_broker() -> Iterator[Broker]:
    kafka = KafkaWorld({}, bootstrap_servers=BOOTSTRAP)
    draws = Draws(0)
    world = World(0, draw_conditions(draws), None, clock=_RealClock())
    kafka.begin(WorldContext(world, draws, with_failures=False))
    try:
        yield ModelBroker()
    finally:
        kafka.end()


def abandon_at_model(
    settings: Settings, transactional_id: str, topic: str, values: Sequence[str]
) -> tuple[int, int]:
    """Write values in a transaction and drop the producer; return its id and its epoch."""
    writer = producer({**settings, "transactional.id": transactional_id})
    writer.init_transactions()
    writer.begin_transaction()
    for value in values:
        writer.produce(topic, value)
    writer.flush()
    found = describe_transaction(settings, transactional_id)
    assert found is not None
    return found.producer_id, found.epoch
