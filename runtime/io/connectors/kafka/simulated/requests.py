"""A model of kafka-python's connections: answers requests of Kafka's protocol from the model of a broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.protocol.admin.transactions import DescribeTransactionsResponse, ListTransactionsResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer.transaction import EndTxnResponse

from penstock.runtime.io.connectors.kafka.simulated.broker import BrokerError, SimulatedBroker
from penstock.runtime.io.connectors.kafka.simulated.connection import Connection
from penstock.runtime.testing.simulation.world.external import Fate

T = TypeVar("T")

_NODE: Final = 1
_HOST: Final = "simulated"
_PORT: Final = 9092

_STATE = DescribeTransactionsResponse.TransactionState


class SimulatedNet:
    """Runs a coroutine that sends requests; the model answers at once, so the coroutine never waits."""

    def run(self, question: Callable[[Any], Coroutine[Any, Any, T]], manager: Any) -> T:
        running = question(manager)
        try:
            running.send(None)
        except StopIteration as end:
            answer: T = end.value
            return answer
        running.close()
        msg = "a question to the model of a broker waits for something else"
        raise AssertionError(msg)


class _KnownCluster:
    def bootstrap_brokers(self) -> Any:
        return (MetadataResponse.MetadataResponseBroker(node_id=_NODE, host=_HOST, port=_PORT, rack=None),)

    def update_metadata(self, metadata: Any) -> None: ...

    def add_coordinator(self, found: Any, kind: Any, key: str, *, synthesize_node_id: bool) -> int:
        return _NODE


class SimulatedManager:
    """The `KafkaConnectionManager` of the model: `send` answers requests of the protocol.

    Args:
        timeout: Seconds until a request without an answer fails.
    """

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.cluster = _KnownCluster()
        self._connection = connection
        self._broker: SimulatedBroker = connection.broker
        self._timeout = timeout
        self._answers: dict[str, Callable[[Any], Any]] = {
            "EndTxnRequest": self._end,
            "DescribeTransactionsRequest": self._describe,
            "ListTransactionsRequest": self._list,
            "FindCoordinatorRequest": self._find_coordinator,
            "MetadataRequest": self._metadata,
        }

    async def get_connection(self, node_id: object, refresh_metadata_on_err: bool = True) -> object:
        if self._connection.run.is_away:
            self._connection.run.struck(Fate.REFUSED.value)
            raise KafkaConnectionError(_HOST)
        return node_id

    async def send(self, request: Any, node_id: object) -> Any:
        """Answer a request, unless the seed decides otherwise.

        Raises:
            KafkaError: The connection was lost, or there is no answer; the caller repeats the request.
        """
        run, answer = self._connection.run, self._answers[type(request).__name__]
        run.reached()
        fate = run.fate()
        if fate is not Fate.ANSWERED:
            run.struck(fate.value)
        if fate is Fate.SLOW:
            run.spend(min(run.slowness(), self._timeout))
        found = answer(request) if fate.is_done else None
        run.reached()
        if fate in (Fate.ANSWERED, Fate.SLOW):
            return found
        if fate in (Fate.HANGS, Fate.HANGS_DONE):
            run.spend(self._timeout)
            raise KafkaTimeoutError(_HOST)
        raise KafkaConnectionError(_HOST)

    def _end(self, request: Any) -> Any:
        def end() -> None:
            self._connection.coordinator()
            self._broker.end_transaction(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                commit=request.committed,
            )

        return EndTxnResponse(error_code=_code_of(end))

    def _describe(self, request: Any) -> Any:
        states = []
        for name in request.transactional_ids:
            state = _STATE(
                error_code=_code_of(partial(self._described, name)),
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=-1,
                producer_id=-1,
                producer_epoch=-1,
                topics=[],
            )
            if not state.error_code:
                found = self._broker.transactions[name]
                state.transaction_state = found.state
                state.transaction_timeout_ms = int(found.timeout * 1000)
                state.producer_id, state.producer_epoch = found.producer_id, found.epoch
                if found.started_at is not None:
                    state.transaction_start_time_ms = int(found.started_at_wall * 1000)
                    state.topics = [
                        _STATE.TopicData(topic=topic, partitions=[partition])
                        for topic, partition in sorted(found.partitions)
                    ]
            states.append(state)
        return DescribeTransactionsResponse(transaction_states=states)

    def _described(self, name: str) -> None:
        self._connection.coordinator()
        self._broker.describe_transaction(name)

    def _list(self, request: Any) -> Any:
        listed = self._broker.list_transactions(request.state_filters)
        return ListTransactionsResponse(
            error_code=0,
            transaction_states=[
                ListTransactionsResponse.TransactionState(
                    transactional_id=name, producer_id=found.producer_id, transaction_state=found.state
                )
                for name, found in listed
            ],
        )

    def _find_coordinator(self, request: Any) -> Any:
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key, node_id=_NODE, host=_HOST, port=_PORT, error_code=0, error_message=None
                )
                for key in request.coordinator_keys
            ]
        )

    def _metadata(self, request: Any) -> Any:
        node = MetadataResponse.MetadataResponseBroker(node_id=_NODE, host=_HOST, port=_PORT, rack=None)
        return MetadataResponse(brokers=[node], topics=[])


def _code_of(act: Callable[[], None]) -> int:
    try:
        act()
    except BrokerError as error:
        return error.code
    return 0
