"""`SimulatedClients`: makes Kafka clients that are connected to a model of a broker (`KafkaClients`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from penstock.runtime.io.connectors.kafka.clients import Worker
from penstock.runtime.io.connectors.kafka.simulated.admin import SimulatedAdmin
from penstock.runtime.io.connectors.kafka.simulated.connection import Connection
from penstock.runtime.io.connectors.kafka.simulated.consumer import SimulatedConsumer
from penstock.runtime.io.connectors.kafka.simulated.producer import SimulatedProducer
from penstock.runtime.io.connectors.kafka.simulated.requests import SimulatedManager, SimulatedNet
from penstock.runtime.io.connectors.kafka.simulated.threads import SimulatedFuture, SimulatedWorker

T = TypeVar("T")

#: Maximum seconds that pass instead of a wait in a background thread.
_LONGEST_PAUSE: Final = 0.02
#: Maximum seconds between two requests about transactions.
_LONGEST_WAIT: Final = 0.5


class SimulatedClients:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._run = connection.run
        self._stepping: SimulatedWorker | None = None

    def consumer(self, settings: Mapping[str, Any]) -> Any:
        return SimulatedConsumer(self.connection, settings, self._wait)

    def producer(self, settings: Mapping[str, Any]) -> Any:
        return SimulatedProducer(self.connection, settings)

    def admin(self, settings: Mapping[str, Any]) -> Any:
        return SimulatedAdmin(self.connection, settings)

    @contextmanager
    def connections(self, settings: Mapping[str, Any], timeout: float) -> Iterator[tuple[Any, Any]]:
        yield SimulatedNet(), SimulatedManager(self.connection, timeout)

    def run(self, work: Callable[[], T]) -> Future[T]:
        future = SimulatedFuture(work)
        self._run.in_thread(future.run, "a Kafka thread works")
        return future

    def start_worker(self, step: Callable[[], float]) -> Worker:
        def stepping() -> float:
            self._stepping = worker
            try:
                return step()
            finally:
                self._stepping = None

        worker = SimulatedWorker(self._run, stepping)
        return worker

    def sleep(self, seconds: float) -> None:
        """Let time pass; the seed chooses how much, because the caller's choice is random."""
        self._run.spend(self._run.draws.real(0.001, _LONGEST_WAIT))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let a little time pass: the only thread must not wait, so the caller's work comes early."""
        if seconds:
            self._run.spend(min(seconds, self._run.draws.real(0.0, _LONGEST_PAUSE)))
        return event.is_set()

    def monotonic(self) -> float:
        return self._run.clock.monotonic()

    def _wait(self, seconds: float) -> None:
        if self._stepping is None:
            self._run.spend(seconds)
        else:
            self._stepping.wait(seconds)
