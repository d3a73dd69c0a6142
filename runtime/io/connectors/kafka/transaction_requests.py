"""Transactions of Kafka that another process began: end them, describe them, list them.

A producer that dies after its flush leaves an open transaction. Its records are complete, but hidden until
the transaction ends. Kafka's clients can't end a transaction of another producer. The protocol can:
`EndTxn` names the transaction by its transactional id, and by the id and epoch of the producer. So a process
that knows these three can commit records of another process. The coordinator answers a repeated commit as it
answered the first one. So a commit whose answer was lost is repeated.

Never send version 5 of `EndTxn` here. With it the coordinator raises the epoch at each end. librdkafka begins
transactions with the older protocol, and its numbers would no longer be valid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tenacity import Retrying, retry_if_exception, wait_random_exponential

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.kafka.clients import clients_of
from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster

_Answer = TypeVar("_Answer")

#: Seconds for a single connection or request.
_ONE_CALL: Final = 10.0
_NOT_FOUND: Final = 105
#: The coordinator has begun to abort the transaction; a producer would repeat the request to get an epoch.
_ENDS_NOW: Final = 51
_FENCED: Final = (
    "another producer has taken the transactional id, or the transaction was aborted at its timeout"
)
_MEANING: Final[Mapping[int, str]] = {
    47: _FENCED,
    48: "the transaction has already ended the other way, or never began",
    49: "Kafka does not know the producer: the transactional id was never used, or has expired since",
    53: "the user has no permission to write with this transactional id: allow it on the cluster",
    58: "the user or the password is wrong",
    90: _FENCED,
}
#: Names of settings in librdkafka and in kafka-python.
_NAMES: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}


class TransactionError(Exception):
    """A request about a transaction failed.

    Attributes:
        code: Kafka's number of the error; `None` if no broker answered.
        is_retriable: Whether the same request can succeed later.
    """

    def __init__(self, message: str, code: int | None, *, is_retriable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.is_retriable = is_retriable


@dataclass(frozen=True)
class TransactionListing:
    """A transactional id.

    Attributes:
        state: Kafka's name, such as `Ongoing` or `CompleteCommit`.
    """

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True)
class TransactionDescription:
    """The newest transaction of a transactional id.

    Attributes:
        state: Kafka's name, such as `Ongoing` or `CompleteCommit`.
        timeout: Seconds after its start at which Kafka aborts the transaction.
        started_at: Seconds since the epoch; `None` if no transaction is open.
        partitions: Topics and partitions that it has written to.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout: float
    started_at: float | None
    partitions: frozenset[tuple[str, int]]


def end_transaction(
    settings: Mapping[str, object],
    transactional_id: str,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    timeout: float = 60.0,
) -> None:
    """Commit or abort a transaction that any process began. It may be repeated.

    Args:
        settings: Settings of librdkafka.
        timeout: Seconds to repeat a request whose error is retriable.

    Raises:
        TransactionError: The coordinator refused, or could not be reached until the timeout.
    """
    _load_client()
    from kafka.protocol.producer.transaction import EndTxnRequest

    async def end(manager: Any) -> None:
        (coordinator,) = await _coordinators(manager, [transactional_id])
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
            max_version=4,
        )
        _raise_for((await manager.send(request, coordinator)).error_code)

    verb = "committed" if commit else "aborted"
    what = f"transaction {transactional_id!r} (producer {producer_id}, epoch {epoch}) could not be {verb}"
    _ask(settings, end, what, timeout)


def fence_transaction(
    settings: Mapping[str, object],
    transactional_id: str,
    transaction_timeout: float,
    *,
    timeout: float = 60.0,
) -> None:
    """Let the coordinator abort an open transaction as it does at the transaction's timeout; does not wait.

    The request raises the epoch by one. A committable of this transaction is then one epoch behind, so it
    counts as lost. Committables of earlier transactions of the id are further behind, so they count as
    committed. A new producer would repeat the request, which raises the epoch a second time.

    Args:
        transaction_timeout: Timeout of the id's next transactions, in seconds.

    Raises:
        TransactionError: The coordinator refused, or could not be reached until the timeout.
    """
    _load_client()
    from kafka.protocol.producer.transaction import InitProducerIdRequest

    async def fence(manager: Any) -> None:
        (coordinator,) = await _coordinators(manager, [transactional_id])
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=int(transaction_timeout * 1_000),
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )
        code = (await manager.send(request, coordinator)).error_code
        _raise_for(0 if code == _ENDS_NOW else code)

    _ask(settings, fence, f"transaction {transactional_id!r} could not be aborted", timeout)


def describe_transaction(
    settings: Mapping[str, object], transactional_id: str, *, timeout: float = 60.0
) -> TransactionDescription | None:
    """Describe the newest transaction of a transactional id.

    Returns:
        The description; `None` if the coordinator does not know the id.

    Raises:
        TransactionError: The coordinator refused, or could not be reached until the timeout.
    """
    return describe_transactions(settings, [transactional_id], timeout=timeout).get(transactional_id)


def describe_transactions(
    settings: Mapping[str, object], transactional_ids: Collection[str], *, timeout: float = 60.0
) -> dict[str, TransactionDescription]:
    """Describe the newest transaction of each transactional id, by the id; unknown ids are left out.

    Raises:
        TransactionError: A coordinator refused, or could not be reached until the timeout.
    """
    _load_client()
    from kafka.protocol.admin.transactions import DescribeTransactionsRequest

    async def describe(manager: Any) -> dict[str, TransactionDescription]:
        found: dict[str, TransactionDescription] = {}
        for coordinator, names in (await _coordinators(manager, transactional_ids)).items():
            request = DescribeTransactionsRequest(transactional_ids=names)
            for state in (await manager.send(request, coordinator)).transaction_states:
                if state.error_code != _NOT_FOUND:
                    _raise_for(state.error_code)
                    found[state.transactional_id] = _description_of(state)
        return found

    if not transactional_ids:
        return {}
    some = next(iter(transactional_ids))
    more = "" if len(transactional_ids) == 1 else f" and {len(transactional_ids) - 1} more"
    return _ask(settings, describe, f"transaction {some!r}{more} could not be described", timeout)


def _description_of(state: Any) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms / 1_000,
        state.transaction_start_time_ms / 1_000 if state.transaction_start_time_ms >= 0 else None,
        frozenset((topic.topic, partition) for topic in state.topics for partition in topic.partitions),
    )


def list_transactions(
    settings: Mapping[str, object], *, states: Collection[str] = (), timeout: float = 60.0
) -> list[TransactionListing]:
    """List the transactional ids that the brokers know, sorted.

    Args:
        settings: Settings of librdkafka.
        states: Kafka's names of the states to list. By default all.
        timeout: Seconds to repeat a request whose error is retriable.

    Raises:
        TransactionError: A broker refused, or could not be reached until the timeout.
    """
    _load_client()
    from kafka.protocol.admin.transactions import ListTransactionsRequest
    from kafka.protocol.metadata import MetadataRequest

    async def list_all(manager: Any) -> list[TransactionListing]:
        brokers = await manager.send(MetadataRequest(topics=[]), await _any_broker(manager))
        manager.cluster.update_metadata(brokers)
        listings = []
        for broker in brokers.brokers:
            request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=[])
            answer = await manager.send(request, broker.node_id)
            _raise_for(answer.error_code)
            listings += [
                TransactionListing(found.transactional_id, found.producer_id, found.transaction_state)
                for found in answer.transaction_states
            ]
        return sorted(listings, key=lambda listing: listing.transactional_id)

    return _ask(settings, list_all, "transactions could not be listed", timeout)


def client_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """Translate settings of librdkafka into those of kafka-python.

    Settings that concern neither addresses nor security are left out.

    Raises:
        ValueError: A setting concerns security, and kafka-python has none like it.
    """
    translated: dict[str, object] = {}
    for name, value in settings.items():
        if name in _NAMES:
            translated[_NAMES[name]] = value
        elif name == "oauth_cb":
            translated["sasl_oauth_token_provider"] = _token_provider(value)
        elif name == "ssl.endpoint.identification.algorithm":
            translated["ssl_check_hostname"] = value != "none"
        elif name.startswith(("sasl.", "ssl.", "security.", "enable.ssl.")):
            known = ", ".join(known for known in _NAMES if known.startswith(("sasl", "ssl", "security")))
            message = f"the setting {name!r} can't be used for requests about transactions; use {known}"
            raise ValueError(message)
    if "security_protocol" in translated:
        translated["security_protocol"] = str(translated["security_protocol"]).upper()
    return translated


def _token_provider(function: Any) -> Any:
    """Wrap the function in librdkafka's setting `oauth_cb` as a token provider of kafka-python."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
        def token(self) -> str:
            return str(function("")[0])

    return TokenProvider()


def check_settings(cluster: KafkaCluster) -> None:
    """Check, before any record is written, that kafka-python supports the settings of the cluster.

    Raises:
        ConfigurationError: kafka-python is not installed, or lacks one of the security settings.
    """
    try:
        _load_client()
    except ImportError as error:
        msg = 'exactly_once needs kafka-python: pip install "penstock[kafka]"'
        raise ConfigurationError(msg) from error
    try:
        client_settings(cluster.settings)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _load_client() -> None:
    """Import kafka-python as a whole, before any of its modules.

    An import locks a module before its package. If two threads begin with different modules, each waits for
    the other, and Python then gives one of them a half-initialized module. A writer prepares a transaction in
    one thread while it commits those of a restored checkpoint in another.
    """
    import kafka  # noqa: F401


def _ask(
    settings: Mapping[str, object],
    question: Callable[[Any], Awaitable[_Answer]],
    failure: str,
    timeout: float,
) -> _Answer:
    """Send requests over connections of their own; repeat them after each retriable error."""
    clients = clients_of(settings.get("bootstrap.servers"))
    deadline = clients.monotonic() + timeout
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, TransactionError) and error.is_retriable),
        stop=lambda state: clients.monotonic() >= deadline,
        wait=wait_random_exponential(multiplier=0.02, max=0.5),
        sleep=clients.sleep,
        reraise=True,
    )
    answer: _Answer = retrying(_ask_once, settings, question, failure, min(timeout, _ONE_CALL))
    return answer


def _ask_once(
    settings: Mapping[str, object],
    question: Callable[[Any], Awaitable[_Answer]],
    failure: str,
    timeout: float,
) -> _Answer:
    from kafka.errors import KafkaError

    try:
        clients = clients_of(settings.get("bootstrap.servers"))
        with clients.connections(client_settings(settings), timeout) as (net, manager):
            answer: _Answer = net.run(question, manager)
            return answer
    except KafkaError as error:
        code: int | None = getattr(error, "errno", None)
        meaning = f"; {_MEANING[code]}" if code is not None and code in _MEANING else ""
        message = f"{failure} at {settings.get('bootstrap.servers')}: {error}{meaning}"
        raise TransactionError(message, code, is_retriable=error.retriable) from error


async def _any_broker(manager: Any) -> str:
    """Connect to the first of the given brokers that accepts.

    Raises:
        KafkaError: A broker refused the user, or no broker accepts.
    """
    from kafka.errors import KafkaError

    failure: KafkaError | None = None
    for broker in manager.cluster.bootstrap_brokers():
        try:
            await manager.get_connection(broker.node_id, refresh_metadata_on_err=False)
        except KafkaError as error:
            if not error.retriable:
                raise
            failure = error
        else:
            return str(broker.node_id)
    assert failure is not None
    raise failure


async def _coordinators(manager: Any, transactional_ids: Collection[str]) -> dict[Any, list[str]]:
    """Find the brokers that coordinate the transactions of some ids, each with its ids."""
    from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

    kind = CoordinatorType.TRANSACTION
    names = list(transactional_ids)
    request = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=names, min_version=4)
    answer = await manager.send(request, await _any_broker(manager))
    by_coordinator: dict[Any, list[str]] = {}
    for found in answer.coordinators:
        _raise_for(found.error_code)
        node = manager.cluster.add_coordinator(found, kind, found.key, synthesize_node_id=False)
        by_coordinator.setdefault(node, []).append(found.key)
    return by_coordinator


def _raise_for(code: int) -> None:
    if code:
        from kafka.errors import for_code

        raise for_code(code)
