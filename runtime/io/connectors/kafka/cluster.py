"""`KafkaCluster`: the clients of a Kafka cluster, with checked settings, bounded calls and plain errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.kafka.clients import KafkaClients, clients_of
from penstock.runtime.redaction import redacted, without_secrets

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds for an answer of the cluster.
REQUEST_TIMEOUT: Final = 30.0

#: Settings of librdkafka that Penstock sets itself, with the reason or the argument to use instead.
_OWN_SETTINGS: Final = {
    "bootstrap.servers": "use bootstrap_servers=",
    "metadata.broker.list": "use bootstrap_servers=",
    "group.id": "use group_id=",
    "isolation.level": "use isolation_level=",
    "auto.offset.reset": "use starting_offsets= and offset_reset=",
    "enable.auto.commit": "a completed checkpoint commits offsets",
    "enable.auto.offset.store": "a completed checkpoint commits offsets",
    "enable.partition.eof": "the positions of partitions need it",
    "on_commit": "a failed commit is logged",
    "transactional.id": "use transactional_id_prefix=",
    "transaction.timeout.ms": "use transaction_timeout=",
    "enable.idempotence": "it is always on",
    "on_delivery": "a record that is not delivered fails the attempt",
    "default.topic.config": "write its settings into properties",
}


@without_secrets
@dataclass(frozen=True)
class KafkaCluster:
    """The address of a cluster, and the settings of its clients.

    Attributes:
        properties: Settings of librdkafka (`security.protocol`, `sasl.password`, ...).
    """

    bootstrap_servers: str
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str) or not self.bootstrap_servers.strip():
            msg = f"bootstrap_servers={self.bootstrap_servers!r} is not allowed: write 'host:9092,host:9092'"
            raise ConfigurationError(msg)
        for name in self.properties:
            if name in _OWN_SETTINGS:
                msg = f"properties can't set {name!r}: {_OWN_SETTINGS[name]}"
                raise ConfigurationError(msg)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of librdkafka for any client."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.properties}

    @property
    def clients(self) -> KafkaClients:
        """Makes the clients and the threads that wait for them."""
        return clients_of(self.bootstrap_servers)

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        return self._client(self.clients.consumer, settings)

    def producer(self, settings: Mapping[str, Any], refusals: Refusals | None = None) -> Producer:
        return self._client(self.clients.producer, settings, refusals)

    def admin(self, refusals: Refusals | None = None) -> AdminClient:
        return self._client(self.clients.admin, {}, refusals)

    def _client(
        self,
        client: Callable[[Mapping[str, Any]], T],
        settings: Mapping[str, Any],
        refusals: Refusals | None = None,
    ) -> T:
        from confluent_kafka import KafkaException

        own: dict[str, Any] = {"log_level": 4, "logger": logger}
        if refusals is not None:
            own["error_cb"] = refusals.hear
        try:
            return client({**own, **self.settings, **settings})
        except (KafkaException, ValueError, TypeError) as error:
            msg = f"the settings of the Kafka client are refused: {self._text(error)}"
            raise ConfigurationError(msg) from None

    def error(self, what: str, error: object) -> ConnectorError:
        """Make the error of a failed call; `error` is an exception or a `KafkaError`."""
        return self.failure(f"{what}: Kafka at {self.bootstrap_servers} answers {error}")

    def failure(self, error: object) -> ConnectorError:
        """Make an error from a text that already names the cluster."""
        return ConnectorError(self._text(error))

    def _text(self, error: object) -> str:
        """Describe an error without the secrets among the settings."""
        text = redacted(str(error))
        for name, value in self.properties.items():
            if _IS_SECRET.search(name) and isinstance(value, str) and value:
                text = text.replace(value, "***")
        return text


def may_pass(error: BaseException) -> bool:
    """Whether a failed call had no answer, or an error that Kafka calls retriable."""
    from confluent_kafka import KafkaError, KafkaException

    cause = error.__cause__
    if isinstance(cause, TimeoutError):
        return True
    if not isinstance(cause, KafkaException) or not isinstance(cause.args[0], KafkaError):
        return False
    return passes(cause.args[0])


def passes(error: KafkaError) -> bool:
    """Whether an error is temporary: no answer, a leader that moves, or one that Kafka calls retriable.

    An error of a message or of a topic never says that it is retriable, so its code decides.
    """
    from confluent_kafka import KafkaError as Errors

    return error.retriable() or error.code() in (
        Errors._TRANSPORT,
        Errors._TIMED_OUT,
        Errors._ALL_BROKERS_DOWN,
        Errors._UNKNOWN_PARTITION,
        Errors.LEADER_NOT_AVAILABLE,
        Errors.NOT_LEADER_FOR_PARTITION,
        Errors.REQUEST_TIMED_OUT,
    )


class Refusals:
    """Records why the brokers refuse a client: its user, password or certificates.

    librdkafka tries again for ever. Its calls only time out, and only a callback receives the reason.

    Attributes:
        reason: `None` until the brokers refuse the client.
    """

    def __init__(self) -> None:
        self.reason: KafkaError | None = None

    def hear(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError as Errors

        if error.code() in (Errors._AUTHENTICATION, Errors._SSL):
            self.reason = error

    def ask(self, client: AdminClient | Producer, call: Callable[[float], T], timeout: float) -> T:
        """Repeat a call of a client, with longer and longer waits, until it answers.

        Args:
            call: Takes the seconds to wait.
            timeout: Seconds for all waits together.

        Raises:
            KafkaException: The call failed, or the brokers refuse the client.
        """
        from confluent_kafka import KafkaException

        wait = min(2.0, timeout)
        while True:
            try:
                return call(wait)
            except KafkaException:
                client.poll(0)  # calls `hear`
                timeout -= wait
                if self.reason is not None:
                    raise KafkaException(self.reason) from None
                if timeout <= 0:
                    raise
            wait = min(2 * wait, timeout)


#: Names of settings whose values are secret.
_IS_SECRET: Final = re.compile(
    r"password|secret|\.key|token|jaas|\.pem|sasl\.oauthbearer\.config", re.IGNORECASE
)


def check_installed() -> None:
    """Check that the client of librdkafka is installed.

    Raises:
        ConfigurationError: `confluent-kafka` is not installed.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        msg = 'Kafka needs confluent-kafka: pip install "penstock[kafka]"'
        raise ConfigurationError(msg) from error
