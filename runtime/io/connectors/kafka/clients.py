"""`KafkaClients`: the clients of a cluster, and the threads that wait for them.

All calls of Kafka's libraries begin here, and so do all threads of the connector. `KafkaWorld` registers
clients of its own for its address: a model of a broker, whose threads are part of a simulation. For every
other address these are confluent-kafka, kafka-python and real threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from penstock.runtime.io.connectors.daemon_threads import in_thread

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

#: Result of a `Worker`'s step that ends the worker.
ENDED: Final = -1.0
#: The largest answer of a broker to kafka-python, in bytes.
_LARGEST_ANSWER_BYTES: Final = 100_000_000


class Worker(Protocol):
    """A thread that runs a function again and again."""

    def wake(self) -> None:
        """Run the function again at once if the thread waits."""
        ...

    def join(self, timeout: float) -> bool:
        """Wait until the function has ended; return whether it has."""
        ...


class KafkaClients(Protocol):
    """Makes the clients of a cluster; `settings` are those of librdkafka."""

    def consumer(self, settings: Mapping[str, Any]) -> Consumer: ...

    def producer(self, settings: Mapping[str, Any]) -> Producer: ...

    def admin(self, settings: Mapping[str, Any]) -> AdminClient: ...

    def connections(
        self, settings: Mapping[str, Any], timeout: float
    ) -> AbstractContextManager[tuple[Any, Any]]:
        """Open connections of kafka-python: its loop and its manager; `settings` are kafka-python's."""
        ...

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Run work in a thread that does not outlive the process: it may wait for a broker that hangs."""
        ...

    def start_worker(self, step: Callable[[], float]) -> Worker:
        """Run a function in such a thread again and again; it must not raise.

        Args:
            step: Returns the seconds until its next run. `wake` ends the wait; after infinity only `wake`
                does. `ENDED` ends the thread.
        """
        ...

    def sleep(self, seconds: float) -> None: ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait in a background thread until an event is set or the time is over; return whether it is set."""
        ...

    def monotonic(self) -> float: ...


class LibraryClients:
    """The real clients and threads."""

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        from confluent_kafka import Consumer

        return Consumer(dict(settings))

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        from confluent_kafka import Producer

        return Producer(dict(settings))

    def admin(self, settings: Mapping[str, Any]) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient(dict(settings))

    @contextmanager
    def connections(self, settings: Mapping[str, Any], timeout: float) -> Iterator[tuple[Any, Any]]:
        from kafka.net.manager import KafkaConnectionManager
        from kafka.net.selector import NetworkSelector

        # At INFO kafka-python logs a dozen lines for each request.
        logging.getLogger("kafka").setLevel(logging.WARNING)
        net = NetworkSelector()
        manager = KafkaConnectionManager(
            net,
            request_timeout_ms=timeout * 1_000,
            socket_connection_setup_timeout_ms=timeout * 1_000,
            receive_message_max_bytes=_LARGEST_ANSWER_BYTES,
            **settings,
        )
        try:
            yield net, manager
        finally:
            manager.close()
            net.close()

    def run(self, work: Callable[[], T]) -> Future[T]:
        return in_thread(work)

    def start_worker(self, step: Callable[[], float]) -> Worker:
        return WorkerThread(step)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)

    def monotonic(self) -> float:
        return time.monotonic()


class WorkerThread:
    """A `Worker` with a real thread."""

    def __init__(self, step: Callable[[], float]) -> None:
        self._step = step
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-fetcher", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            # Before the step: what happens during it must wake the thread.
            self._woken.clear()
            rest = self._step()
            if rest == ENDED:
                return
            if rest > 0.0:
                self._woken.wait(None if rest == inf else rest)


_LIBRARY: Final[KafkaClients] = LibraryClients()
#: Clients of addresses that a simulation serves.
_SIMULATED: Final[dict[str, KafkaClients]] = {}


def clients_of(bootstrap_servers: object) -> KafkaClients:
    """The clients of the cluster at an address."""
    return _SIMULATED.get(str(bootstrap_servers), _LIBRARY)


def serve(bootstrap_servers: str, clients: KafkaClients | None) -> None:
    """Use these clients for an address in this process; `None` ends that."""
    _SIMULATED.pop(bootstrap_servers, None)
    if clients is not None:
        _SIMULATED[bootstrap_servers] = clients
