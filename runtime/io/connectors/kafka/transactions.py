"""`Transactions`: commits and aborts transactions of Kafka whose producers may be dead.

librdkafka ends a transaction only in the process that began it. But any process may send the broker the
request that ends it, with the producer's id and epoch. kafka-python has that request. It can also list and
describe transactions.

A committable names one transaction for ever, because an id is used again only after its transaction was
committed, and then with a higher epoch (`sink.py`). So the state of the id shows why the broker refuses to
commit it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.errors import LostOutputError
from penstock.runtime.io.connectors.kafka.cluster import REQUEST_TIMEOUT, KafkaCluster

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

logger = logging.getLogger(__name__)

#: Answers after which the same request may succeed: the coordinator moves, loads, or ends a transaction.
_RETRIABLE: Final = frozenset({7, 14, 15, 16, 51})
#: Seconds for a coordinator to come back, and between two requests.
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class KafkaCommittable:
    """A flushed transaction, which stays open until it is committed (Flink's class).

    Attributes:
        records: Number of its records, for messages.
        flushed_at: Wall-clock seconds, for messages.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    records: int
    flushed_at: float


@dataclass(frozen=True, slots=True)
class TransactionalIds:
    """The ids of one sink: `prefix-attempt-subtask-number`."""

    prefix: str

    def make(self, attempt: int, subtask: int, number: int) -> str:
        return f"{self.prefix}-{attempt}-{subtask}-{number}"

    def attempt_of(self, transactional_id: str) -> int | None:
        """The attempt of one of this sink's ids; `None` for an id of others.

        Example:
            >>> TransactionalIds("words-out").attempt_of("words-out-3-0-1")
            3
        """
        found = re.fullmatch(rf"{re.escape(self.prefix)}-(\d+)-\d+-\d+", transactional_id)
        return None if found is None else int(found[1])


class Transactions:
    """Requests to the coordinators of transactions; each call blocks for a bounded time."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._connected: KafkaAdminClient | None = None

    def commit(self, committables: Sequence[KafkaCommittable], *, allow_missing: bool) -> None:
        """Commit transactions; those that are committed already stay so.

        Raises:
            LostOutputError: The broker has aborted or forgotten a transaction, and it must not be missing.
            ConnectorError: The broker does not answer in time.
        """
        for committable in committables:
            code = self._end(committable)
            if code != 0:
                self._explain(committable, code, allow_missing=allow_missing)

    def open_ids(self, prefix: str) -> list[str]:
        """The ids with this prefix whose transaction is open."""
        listed = self._asked(lambda admin: admin.list_transactions(state_filters=["Ongoing"]))
        found = [each.transactional_id for each_broker in listed.values() for each in each_broker]
        return sorted(name for name in found if name.startswith(prefix))

    def abort(self, transactional_id: str, timeout: float = REQUEST_TIMEOUT) -> None:
        """Abort an open transaction and fence its producer, by beginning another producer with the id.

        A plain abort would leave the epoch as it is. An earlier committable of the id would then look like
        a transaction that has timed out.
        """
        from confluent_kafka import KafkaException

        producer = self._cluster.producer({"transactional.id": transactional_id})
        try:
            producer.init_transactions(timeout)
        except KafkaException as error:
            what = f"transaction {transactional_id!r} can't be aborted"
            raise self._cluster.error(what, error) from error

    def close(self) -> None:
        """Close the connections."""
        admin, self._connected = self._connected, None
        if admin is not None:
            admin.close()

    def _explain(self, committable: KafkaCommittable, code: int, *, allow_missing: bool) -> None:
        """Find out why the broker refuses to commit a transaction."""
        import kafka.errors

        name = committable.transactional_id
        try:
            now = self._asked(lambda admin: admin.describe_transactions([name]))[name]
        except kafka.errors.TransactionalIdNotFoundError:
            fate = "the broker has forgotten it (transactional.id.expiration.ms)"
        else:
            is_next = (now.producer_id, now.producer_epoch) == (
                committable.producer_id,
                committable.epoch + 1,
            )
            is_same = (now.producer_id, now.producer_epoch) == (committable.producer_id, committable.epoch)
            is_aborted = now.state.value in ("CompleteAbort", "PrepareAbort", "PrepareEpochFence")
            if not is_same and not (is_next and is_aborted):
                return  # the id was used again, which happens only after a commit
            fate = "the broker has aborted it, because it was open for longer than its timeout"
        flushed = datetime.fromtimestamp(committable.flushed_at, UTC).isoformat(timespec="seconds")
        msg = (
            f"transaction {name!r} of {committable.records} records, flushed at {flushed}, can't be "
            f"committed (error {code}): {fate}. Its records are lost. Raise transaction_timeout above the "
            "longest time without the job; to continue without these records, set allow_missing=True"
        )
        if not allow_missing:
            raise LostOutputError(msg)
        logger.warning("%s", msg)

    def _end(self, committable: KafkaCommittable) -> int:
        """Ask the coordinator to commit; return its answer, 0 for success."""
        from kafka.protocol.metadata import CoordinatorType
        from kafka.protocol.producer.transaction import EndTxnRequest

        name = committable.transactional_id
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=committable.producer_id,
            producer_epoch=committable.epoch,
            committed=True,
        )

        async def end(admin: KafkaAdminClient) -> int:
            found = await admin._find_coordinator_ids([name], key_type=CoordinatorType.TRANSACTION)
            answer = await admin._manager.send(request, node_id=found[name])
            return int(answer.error_code)

        deadline = time.monotonic() + _PATIENCE
        while True:
            code: int = self._asked(lambda admin: admin._manager.run(end, admin))
            if code not in _RETRIABLE:
                return code
            if time.monotonic() > deadline:
                what = f"transaction {name!r} can't be committed within {_PATIENCE:g} s"
                raise self._cluster.error(what, f"error {code}")
            time.sleep(_PAUSE)

    def _asked(self, call: Callable[[KafkaAdminClient], Any]) -> Any:
        """Make a request, and repeat it with new connections while no broker answers."""
        import kafka.errors

        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return call(self._admin())
            except kafka.errors.TransactionalIdNotFoundError:
                raise
            except kafka.errors.KafkaError as error:
                self.close()
                if not error.retriable or time.monotonic() > deadline:
                    what = "a transaction can't be looked at"
                    raise self._cluster.error(what, error) from error
                time.sleep(_PAUSE)

    def _admin(self) -> KafkaAdminClient:
        if self._connected is None:
            from kafka.admin import KafkaAdminClient

            self._connected = KafkaAdminClient(
                bootstrap_servers=self._cluster.bootstrap_servers.split(","),
                **_settings_of_python(self._cluster.properties),
            )
        return self._connected


#: Settings of librdkafka and of kafka-python that mean the same.
_SAME: Final[Mapping[str, str]] = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "client.id": "client_id",
}


def _settings_of_python(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Translate settings of librdkafka for kafka-python.

    Example:
        >>> _settings_of_python({"security.protocol": "sasl_ssl", "linger.ms": 5})
        {'security_protocol': 'SASL_SSL'}
    """
    settings = {_SAME[name]: value for name, value in properties.items() if name in _SAME}
    if "security_protocol" in settings:
        settings["security_protocol"] = str(settings["security_protocol"]).upper()
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        settings["ssl_check_hostname"] = False
    if (token := properties.get("oauth_cb")) is not None:
        settings["sasl_oauth_token_provider"] = _TokenProvider(token)
    return settings


class _TokenProvider:
    """Gives kafka-python the tokens of a function that librdkafka's client takes as `oauth_cb`."""

    def __init__(self, function: Callable[[str], tuple[str, float]]) -> None:
        self._function = function

    def token(self) -> str:
        return self._function("")[0]
