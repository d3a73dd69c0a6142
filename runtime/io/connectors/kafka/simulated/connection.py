"""`Connection`: simulates the faults of a client's calls to the broker, and the repetition of failed calls.

librdkafka and our own requests repeat a call whose connection is lost, until its timeout. So the broker may
get the call twice. A call fails only if the broker refuses it, or if no answer comes before its timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.runtime.io.connectors.kafka.simulated.broker import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOADING,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    PRODUCER_FENCED,
    BrokerError,
    SimulatedBroker,
)
from penstock.runtime.testing.simulation.world.external import Fate, WorldContext

T = TypeVar("T")

#: Seconds until a client repeats a call.
_BACKOFF: Final = 0.05

#: Errors after which librdkafka repeats a call: the coordinator is loading, away, moved or busy, or the
#: leader has moved.
_REPEATED: Final = frozenset(
    {
        COORDINATOR_LOADING,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        CONCURRENT_TRANSACTIONS,
        NOT_LEADER_OR_FOLLOWER,
    }
)


class Connection:
    """Carries the calls of all clients of a run.

    Attributes:
        coordinator_errors: Error codes that coordinators return to the next calls, the last one first.
    """

    def __init__(self, broker: SimulatedBroker, run: WorldContext) -> None:
        self.broker = broker
        self.run = run
        self.coordinator_errors: list[int] = []

    def coordinator(self) -> None:
        """Refuse a call to the coordinator of a transaction or a group while the coordinator moves."""
        if self.coordinator_errors and not self.run.is_calm:
            code = self.coordinator_errors.pop()
            self.run.struck("kafka_coordinator_moves")
            raise BrokerError(code)

    def call(self, effect: Callable[[], T], timeout: float) -> T:
        """Make a call of librdkafka, which is repeated until its timeout.

        Raises:
            KafkaException: There was no answer in time, or the broker refused.
        """
        run, deadline = self.run, self.run.clock.monotonic() + timeout
        while True:
            fate = run.fate()
            if fate is not Fate.ANSWERED:
                run.struck(fate.value)
            if fate is Fate.SLOW:
                run.spend(min(run.slowness(), timeout))
            left = deadline - run.clock.monotonic()
            try:
                answer = effect() if fate.is_done else None
            except BrokerError as error:
                if error.code not in _REPEATED:
                    raise failure(error.code) from error
                fate = Fate.REFUSED
            if fate in (Fate.ANSWERED, Fate.SLOW):
                return answer  # type: ignore[return-value] # `effect` has answered
            hangs = fate in (Fate.HANGS, Fate.HANGS_DONE)
            run.spend(max(0.0, left if hangs else min(_BACKOFF, left)))
            if run.clock.monotonic() >= deadline:
                raise failure(KafkaError._TIMED_OUT)


def failure(code: int, *, fatal: bool = False) -> KafkaException:
    """The exception of confluent-kafka for an error number."""
    return KafkaException(error_of(code, fatal=fatal))


def error_of(code: int, *, fatal: bool = False) -> KafkaError:
    text = KafkaError(code).str()
    if code in (PRODUCER_FENCED, KafkaError._FENCED):
        return KafkaError(KafkaError._FENCED, "This instance has been fenced by a newer producer", True)
    return KafkaError(code, text, fatal, code in _REPEATED or code == KafkaError._TIMED_OUT)
