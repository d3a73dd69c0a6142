"""Commits and aborts transactions of a sink, whose producers may be dead.

A committable names one transaction for ever: an id is used again only after a commit, and then with a higher
epoch (`sink.py`). So the state of the id shows why the broker refuses to commit it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from penstock.runtime.errors import LostOutputError
from penstock.runtime.io.connectors.daemon_threads import for_each
from penstock.runtime.io.connectors.kafka.cluster import REQUEST_TIMEOUT, KafkaCluster
from penstock.runtime.io.connectors.kafka.transaction_requests import (
    TransactionDescription,
    TransactionError,
    describe_transaction,
    describe_transactions,
    end_transaction,
    list_transactions,
)

logger = logging.getLogger(__name__)

#: Errors after which the state of the id says what has become of a transaction: fenced, ended, forgotten.
_FINAL: Final = frozenset({47, 48, 49, 90})
#: Maximum number of concurrent aborts; in a job each of them needs a producer with threads of its own.
AT_A_TIME: Final = 8
_ABORTED: Final = frozenset({"CompleteAbort", "PrepareAbort", "PrepareEpochFence"})


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
    """The ids of one sink: `prefix:job:operator:attempt:subtask:number`.

    Ids of jobs and operators have no colon, so the id of one sink is never taken for that of another.

    The attempts of each job begin at 1. So without the job's id, a job that starts from a checkpoint of
    another one would use the ids of its committables.

    Attributes:
        is_shared: Whether the user has chosen the prefix, so that earlier jobs had it, too.
    """

    prefix: str
    job_id: str
    operator_id: str
    is_shared: bool = False

    def make(self, attempt: int, subtask: int, number: int) -> str:
        return f"{self.prefix}:{self.job_id}:{self.operator_id}:{attempt}:{subtask}:{number}"

    def attempt_of(self, transactional_id: str) -> int | None:
        """The attempt of one of this sink's ids; `None` for any other id.

        Example:
            >>> ids = TransactionalIds("penstock", "words-1f", "out")
            >>> ids.attempt_of(ids.make(3, 0, 1)), ids.is_leftover(ids.make(3, 0, 1), 4)
            (3, True)
        """
        own = re.escape(f"{self.prefix}:{self.job_id}:{self.operator_id}")
        found = re.fullmatch(rf"{own}:(\d+):\d+:\d+", transactional_id)
        return None if found is None else int(found[1])

    def is_leftover(self, transactional_id: str, attempt: int) -> bool:
        """Whether an id is of an earlier attempt, or of an earlier job with the user's prefix."""
        of = self.attempt_of(transactional_id)
        if of is not None:
            return of < attempt
        prefix, operator = re.escape(self.prefix), re.escape(self.operator_id)
        pattern = rf"{prefix}:[^:]+:{operator}:\d+:\d+:\d+"
        return self.is_shared and re.fullmatch(pattern, transactional_id) is not None


@dataclass(frozen=True, slots=True)
class TransactionOwner:
    """The parts of a transactional id: the sink's subtask, and the number of the id in it.

    Example:
        >>> owner = TransactionOwner.of("my:prefix:words-1f:out:3:0:12")
        >>> owner.prefix, owner.job_id, owner.operator_id, owner.attempt, owner.subtask, owner.number
        ('my:prefix', 'words-1f', 'out', 3, 0, 12)
        >>> TransactionOwner.of("of-another-program") is None
        True
    """

    prefix: str
    job_id: str
    operator_id: str
    attempt: int
    subtask: int
    number: int

    @staticmethod
    def of(transactional_id: str) -> TransactionOwner | None:
        """Take an id apart; `None` for an id of another form."""
        found = re.fullmatch(r"(.*):([^:]+):([^:]+):(\d+):(\d+):(\d+)", transactional_id)
        if found is None:
            return None
        prefix, job_id, operator_id, *numbers = found.groups()
        attempt, subtask, number = map(int, numbers)
        return TransactionOwner(prefix, job_id, operator_id, attempt, subtask, number)


def commit_transactions(
    cluster: KafkaCluster, committables: Sequence[KafkaCommittable], *, allow_missing: bool
) -> list[KafkaCommittable]:
    """Commit transactions; those that are committed already stay so.

    Returns:
        The committed transactions: all, except lost ones with `allow_missing`.

    Raises:
        LostOutputError: The broker has aborted or forgotten a transaction, and it must not be missing.
        ConnectorError: The broker refuses, or does not answer in time.
    """
    committed = []
    for committable in committables:
        name, producer, epoch = (committable.transactional_id, committable.producer_id, committable.epoch)
        try:
            end_transaction(cluster.settings, name, producer, epoch, commit=True)
        except TransactionError as error:
            if error.code not in _FINAL:
                raise cluster.failure(error) from error
            try:
                fate = fate_of(committable, describe_transaction(cluster.settings, name))
            except TransactionError as unknown:
                raise cluster.failure(unknown) from unknown
            if fate is not None:
                _report_lost(committable, fate, allow_missing=allow_missing)
                continue
        committed.append(committable)
    return committed


def fate_of(committable: KafkaCommittable, now: TransactionDescription | None) -> str | None:
    """Say why a transaction can't be committed any more; `None` if it has been committed.

    Args:
        now: The state of its id, which the broker gave after it had refused the commit.

    Example:
        >>> committable = KafkaCommittable("id", 7, 3, 12, 0.0)
        >>> now = lambda epoch, state: TransactionDescription("id", 7, epoch, state, 60.0, None, frozenset())
        >>> fate_of(committable, now(4, "CompleteAbort"))
        'it was aborted, at its timeout or by hand: its records are lost'
        >>> fate_of(committable, now(4, "Ongoing")) is None, fate_of(committable, now(6, "Empty")) is None
        (True, True)
    """
    if now is None:
        return "the broker has forgotten its id, so it is not known whether it was committed"
    later = now.epoch - committable.epoch if now.producer_id == committable.producer_id else 2
    if later > 1 or (later == 1 and now.state not in _ABORTED):
        return None  # the id was used again, which happens only after a commit
    return "it was aborted, at its timeout or by hand: its records are lost"


def _report_lost(committable: KafkaCommittable, fate: str, *, allow_missing: bool) -> None:
    flushed = datetime.fromtimestamp(committable.flushed_at, UTC).isoformat(timespec="seconds")
    msg = (
        f"transaction {committable.transactional_id!r} of {committable.records} records, flushed at "
        f"{flushed}, can't be committed: {fate}. Raise transaction_timeout above the longest time without "
        "the job. To continue without these records, set allow_missing=True"
    )
    if not allow_missing:
        raise LostOutputError(msg)
    logger.warning("%s", msg)


def open_transactions(cluster: KafkaCluster, ids: TransactionalIds) -> list[str]:
    """List the ids with a sink's prefix whose transactions are open.

    Raises:
        ConnectorError: A broker refuses, or does not answer in time.
    """
    try:
        listed = list_transactions(cluster.settings, states=["Ongoing"])
    except TransactionError as error:
        raise cluster.failure(error) from error
    names = [listing.transactional_id for listing in listed]
    return [name for name in names if name.startswith(f"{ids.prefix}:")]


def without_covered(
    cluster: KafkaCluster, transactional_ids: Sequence[str], covered: Sequence[KafkaCommittable]
) -> list[str]:
    """Return the ids whose open transaction is not one of these committables.

    Raises:
        ConnectorError: A coordinator refuses, or does not answer in time.
    """
    names = {committable.transactional_id for committable in covered}
    kept = {(c.transactional_id, c.producer_id, c.epoch) for c in covered}
    try:
        now = describe_transactions(cluster.settings, [name for name in transactional_ids if name in names])
    except TransactionError as error:
        raise cluster.failure(error) from error
    open_ones = {(found.transactional_id, found.producer_id, found.epoch) for found in now.values()}
    spared = {name for name, _, _ in open_ones & kept}
    return [name for name in transactional_ids if name not in spared]


def abort_transactions(cluster: KafkaCluster, transactional_ids: Sequence[str]) -> None:
    """Abort open transactions, several at a time; an abort that fails does not stop the others.

    Raises:
        ConnectorError: A coordinator refuses, or does not answer in time.
    """
    for_each(
        partial(abort_transaction, cluster), transactional_ids, AT_A_TIME, run_in_thread=cluster.clients.run
    )


def abort_transaction(cluster: KafkaCluster, transactional_id: str, timeout: float = REQUEST_TIMEOUT) -> None:
    """Abort an open transaction and fence its producer, by starting another producer with the id.

    A plain abort would leave the epoch as it is. An earlier committable of the id would then look like a
    transaction that has timed out.

    Raises:
        ConnectorError: The coordinator refuses, or does not answer in time.
    """
    from confluent_kafka import KafkaException

    producer = cluster.producer(
        {"transactional.id": transactional_id, "socket.timeout.ms": max(10, int(timeout * 1000))}
    )
    try:
        producer.init_transactions(timeout)
    except KafkaException as error:
        what = f"transaction {transactional_id!r} can't be aborted"
        raise cluster.error(what, error) from error
