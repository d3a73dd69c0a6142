"""`KafkaSink`: writes records to topics, exactly once by transactions (Flink's `KafkaSink`).

**Exactly once.** The records between two checkpoints are one transaction of Kafka. At a checkpoint the writer
flushes the transaction. It becomes a *committable*: its id, the producer's id and the producer's epoch. The
producer is dropped, and the transaction stays open. When the checkpoint is complete, a request to the broker
commits it (`transactions.py`). Any process can send this request, even after the death of the producer. From
then on consumers that read committed records see the records.

**Ids.** Each producer has its own transactional id. An id is used again only when its transaction is known
to be committed, and with a higher epoch. So a committable names one transaction for ever:

- If the broker accepts the commit, the transaction was open, or had been committed before.
- If the broker refuses it and still has the committable's epoch, the transaction has been aborted without a
  new epoch. Its records are lost, and the job fails (`LostOutputError`).
- If the broker has the next epoch, and its last transaction was aborted, this one has exceeded its timeout,
  or was aborted by hand. Its records are lost, too.
- If the broker has forgotten the id, it is not known whether the transaction was committed. The job fails,
  too.
- Otherwise the id was used again, so the transaction had been committed.

An id contains the attempt. A transaction that an attempt left open and that no checkpoint covers is aborted
after the first completed checkpoint of the next attempt. Until then consumers that read committed records
wait for it. A process that counts as dead and still reaches Kafka may open another transaction after that.
That transaction is aborted at the end of the job, or at its timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster, check_installed
from penstock.runtime.io.connectors.kafka.transaction_requests import check_settings
from penstock.runtime.io.connectors.kafka.transactions import (
    TransactionalIds,
    abort_transactions,
    open_transactions,
    without_covered,
)
from penstock.runtime.io.connectors.kafka.writers import ExactlyOnceWriter, KafkaWriter, MessageSettings
from penstock.runtime.io.formats.format import Encoder, Format, HasSubject
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in

T_contra = TypeVar("T_contra", contravariant=True)

logger = logging.getLogger(__name__)

DeliveryGuarantee: TypeAlias = Literal["exactly_once", "at_least_once"]

#: In seconds; the default limit of brokers (`transaction.max.timeout.ms`).
TRANSACTION_TIMEOUT: Final = 900.0


@without_secrets
@dataclass(frozen=True)
class KafkaSink(Generic[T_contra], metaclass=NearestNames):
    """Writes each record as a message.

    `headers`, `timestamp` and `partition` are functions of the record. `topic` and `key` may be functions of
    the record, too. With Arrow batches these functions get rows as dicts. `key` may also be the name of a
    field or column.

    Attributes:
        bootstrap_servers: Brokers as `host:port`, separated by commas.
        topic: The topic, or a function that returns the topic of a record. Topics must exist.
        value_format: Encodes the values of messages.
        key: Without `key_format` a `str` is encoded as UTF-8, `bytes` are taken as they are, and other values
            become JSON.
        key_format: Encodes the keys of messages. A message whose key would be `None` has no key.
        headers: Returns a dict or a list of pairs; values are `str`, `bytes` or `None`.
        timestamp: Returns microseconds since the epoch; by default a message has the time of sending.
        partition: Returns the number of the partition. By default it follows from the key, as in Kafka's own
            producer.
        delivery_guarantee: `"exactly_once"` by transactions, or `"at_least_once"`, which needs none: a
            restart then repeats records since the last checkpoint.
        transactional_id_prefix: Beginning of all transactional ids. If you choose it, the sink also aborts
            transactions that earlier jobs left open with this prefix and operator id. Two running jobs must
            not share it.
        transaction_timeout: Time after which the broker aborts an open transaction. It must exceed the
            interval of checkpoints and the longest downtime of the job. It must not exceed the broker's
            `transaction.max.timeout.ms`.
        allow_missing: Whether a committable whose transaction was aborted or forgotten by the broker is
            dropped, instead of failing the job.
        properties: Further settings of librdkafka, such as `security.protocol`. Secrets are never shown.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or confluent-kafka is not installed.

    Example:
        >>> KafkaSink("localhost:9092", "totals", key="user").delivery_guarantee
        'exactly_once'
    """

    only_reads: ClassVar[bool] = True

    bootstrap_servers: str
    topic: str | Callable[[Any], str]
    _: KW_ONLY
    value_format: Format = field(default_factory=Json)
    key: str | Callable[[Any], Any] | None = None
    key_format: Format | None = None
    headers: Callable[[Any], Mapping[str, Any] | Sequence[tuple[str, Any]]] | None = None
    timestamp: Callable[[Any], int] | None = None
    partition: Callable[[Any], int] | None = None
    delivery_guarantee: DeliveryGuarantee = "exactly_once"
    transactional_id_prefix: str | None = None
    transaction_timeout: Duration = TRANSACTION_TIMEOUT
    allow_missing: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_installed()
        cluster = KafkaCluster(self.bootstrap_servers, self.properties)
        if self.delivery_guarantee == "exactly_once":
            check_settings(cluster)
        checked_setting("delivery_guarantee", self.delivery_guarantee, ("exactly_once", "at_least_once"))
        timeout = seconds_in("transaction_timeout", self.transaction_timeout, above=0.0)
        object.__setattr__(self, "transaction_timeout", timeout)
        if self.key_format is not None and self.key is None:
            msg = "key_format needs key=: name the field of the key, or give a function of the record"
            raise ConfigurationError(msg)
        if isinstance(self.topic, str) and not self.topic:
            msg = "topic='' is not allowed: name a topic, or give a function of the record"
            raise ConfigurationError(msg)

    @property
    def _cluster(self) -> KafkaCluster:
        return KafkaCluster(self.bootstrap_servers, self.properties)

    def _ids(self, job_id: str, operator_id: str) -> TransactionalIds:
        prefix = self.transactional_id_prefix
        return TransactionalIds(prefix or "penstock", job_id, operator_id, is_shared=prefix is not None)

    def writer(self, context: SinkContext) -> KafkaWriter | ExactlyOnceWriter:
        """Make the writer of one subtask."""
        messages = MessageSettings(
            self.topic,
            self._encoder(self.value_format),
            self.key,
            self.headers,
            self.timestamp,
            self.partition,
            None if self.key_format is None else self._encoder(self.key_format, is_key=True),
        )
        if self.delivery_guarantee == "at_least_once":
            return KafkaWriter(self._cluster, messages, context)
        ids = self._ids(context.job_id, context.operator_id)
        timeout = seconds_in("transaction_timeout", self.transaction_timeout)
        return ExactlyOnceWriter(
            self._cluster,
            messages,
            ids,
            subtask=context.subtask,
            attempt=context.attempt,
            timeout=timeout,
            allow_missing=self.allow_missing,
            clock=context.clock,
            metrics=context,
        )

    def _encoder(self, form: Format, *, is_key: bool = False) -> Encoder:
        if isinstance(form, HasSubject) and isinstance(self.topic, str):
            form = form.for_topic(self.topic, is_key=is_key)
        return form.encoder()

    def check_job_config(self, config: JobConfig) -> None:
        """Refuse a transaction timeout that does not exceed the interval of checkpoints."""
        checkpointing = config.checkpointing
        if self.delivery_guarantee == "at_least_once":
            return
        if checkpointing is None:
            logger.warning(
                "without checkpoints all output is one transaction, committed at the end of the input"
            )
            return
        timeout = seconds_in("transaction_timeout", self.transaction_timeout)
        longest = as_seconds(checkpointing.every) + as_seconds(checkpointing.timeout)
        if timeout <= as_seconds(checkpointing.every):
            msg = (
                f"transaction_timeout is {timeout:g} s, but a checkpoint is taken every "
                f"{as_seconds(checkpointing.every):g} s: the broker would abort each transaction before its "
                "checkpoint. Make the timeout longer, up to transaction.max.timeout.ms of the brokers"
            )
            raise ConfigurationError(msg)
        if timeout <= longest:
            logger.warning(
                "transaction_timeout is %g s, but a checkpoint may complete %g s after the previous one. "
                "Records are lost if the broker aborts a transaction before that",
                timeout,
                longest,
            )

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Any]) -> None:
        """Abort all open transactions of this operator that no snapshot covers."""
        if self.delivery_guarantee == "exactly_once":
            ids = self._ids(job_id, operator_id)
            found = open_transactions(self._cluster, ids)
            own = [name for name in found if ids.attempt_of(name) is not None]
            abort_transactions(self._cluster, without_covered(self._cluster, own, covered))
