"""The work of `penstock kafka`: the lag of a checkpoint; listing and ending transactions by hand.

A commit by hand is as safe as one of the job. It names a transaction by its id, its producer's id and its
epoch, and the broker refuses any other. An abort by hand drops the records. A job writes them again, unless
its checkpoint covers the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.daemon_threads import for_each
from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster
from penstock.runtime.io.connectors.kafka.partitions import (
    KafkaPartitionSplit,
    PartitionMetadata,
    TopicPartition,
)
from penstock.runtime.io.connectors.kafka.transaction_requests import (
    TransactionDescription,
    TransactionError,
    describe_transactions,
    end_transaction,
    fence_transaction,
    list_transactions,
)
from penstock.runtime.io.connectors.kafka.transactions import (
    AT_A_TIME,
    KafkaCommittable,
    TransactionOwner,
    fate_of,
)
from penstock.runtime.names import nearest_name

#: Kafka's names of the states of a transaction that has not ended.
OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})
#: Seconds to repeat a request whose error is retriable.
_TIMEOUT: Final = 10.0
#: Seconds between two checks whether transactions have ended.
_BETWEEN_LOOKS: Final = 0.05


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Distance of a job's checkpoint from the end of a partition.

    Attributes:
        operator_id: The source's operator.
        position: Offset of the next record in the checkpoint.
        end: Offset after the last record, or the offset at which the source stops.
        lag: Number of offsets from the position to the end.
        held_back: Number of these offsets that committed reads can't see yet, because a transaction is open.
    """

    operator_id: str
    topic: str
    partition: int
    position: int
    end: int
    lag: int
    held_back: int


def partition_lags(
    cluster: KafkaCluster, positions: Sequence[tuple[str, KafkaPartitionSplit]]
) -> list[PartitionLag]:
    """Compare positions with the ends of their partitions.

    Raises:
        ConnectorError: A partition does not exist any more, or no broker answers.
    """
    names = {split.name for _, split in positions}
    last = PartitionMetadata(cluster, None, "read_uncommitted").end_offsets(names)
    stable = PartitionMetadata(cluster, None, "read_committed").end_offsets(names)
    return [_lag_of(operator_id, split, last, stable) for operator_id, split in positions]


def _lag_of(
    operator_id: str,
    split: KafkaPartitionSplit,
    last: dict[TopicPartition, int],
    stable: dict[TopicPartition, int],
) -> PartitionLag:
    stop = split.stopping_offset
    end = last[split.name] if stop is None else min(last[split.name], stop)
    seen = max(split.next_offset, min(stable[split.name], end))
    lag = max(0, end - split.next_offset)
    return PartitionLag(
        operator_id, split.topic, split.partition, split.next_offset, end, lag, max(0, end - seen)
    )


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """The newest transaction of a transactional id.

    Attributes:
        owner: The sink that it belongs to; `None` for an id of another form.
    """

    found: TransactionDescription
    owner: TransactionOwner | None


def listed_transactions(
    cluster: KafkaCluster, prefix: str, *, with_ended: bool = False
) -> list[ListedTransaction]:
    """List transactions whose ids begin with a prefix, the oldest open one first.

    Args:
        with_ended: Whether transactions that are committed or aborted are listed, too.

    Raises:
        ConnectorError: A broker refuses, or does not answer in time.
    """
    states = () if with_ended else OPEN_STATES
    try:
        listings = list_transactions(cluster.settings, states=states, timeout=_TIMEOUT)
        names = [each.transactional_id for each in listings if each.transactional_id.startswith(prefix)]
        described = describe_transactions(cluster.settings, names, timeout=_TIMEOUT)
    except TransactionError as error:
        raise cluster.failure(error) from error
    found = [ListedTransaction(each, TransactionOwner.of(name)) for name, each in described.items()]
    return sorted(
        found, key=lambda each: (each.found.started_at or float("inf"), each.found.transactional_id)
    )


#: `lost`: its records can't be committed any more. `unknown`: the broker has forgotten what became of it.
Outcome: TypeAlias = Literal["committed", "committed before", "lost", "unknown"]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Outcome of a request to commit a transaction.

    Attributes:
        detail: The reason, if it is lost or unknown; else empty.
    """

    committable: KafkaCommittable
    outcome: Outcome
    detail: str = ""


def commit_by_hand(cluster: KafkaCluster, committables: Iterable[KafkaCommittable]) -> list[CommitResult]:
    """Commit these transactions, and no later ones of their ids.

    Raises:
        ConnectorError: A coordinator refuses, or does not answer in time.
    """
    wanted = list(committables)
    try:
        now = describe_transactions(
            cluster.settings, {each.transactional_id for each in wanted}, timeout=_TIMEOUT
        )
        return [_committed(cluster, each, now.get(each.transactional_id)) for each in wanted]
    except TransactionError as error:
        raise cluster.failure(error) from error


def _committed(
    cluster: KafkaCluster, committable: KafkaCommittable, now: TransactionDescription | None
) -> CommitResult:
    if now is None:
        return CommitResult(committable, "unknown", fate_of(committable, None) or "")
    if (now.producer_id, now.epoch) == (committable.producer_id, committable.epoch):
        if now.state in _COMMITTED:
            return CommitResult(committable, "committed before")
        if now.state == "Ongoing":
            end_transaction(
                cluster.settings,
                committable.transactional_id,
                committable.producer_id,
                committable.epoch,
                commit=True,
                timeout=_TIMEOUT,
            )
            return CommitResult(committable, "committed")
    fate = fate_of(committable, now)
    return CommitResult(committable, "committed before" if fate is None else "lost", fate or "")


def check_numbers(cluster: KafkaCluster, transactional_id: str, producer_id: int, epoch: int) -> None:
    """Check that numbers from the command line are those of an id's newest transaction.

    Raises:
        ConfigurationError: Kafka does not know the id, or the id has another producer or epoch.
        ConnectorError: A coordinator refuses, or does not answer in time.
    """
    now = _described(cluster, [transactional_id])[transactional_id]
    if (now.producer_id, now.epoch) != (producer_id, epoch):
        msg = (
            f"transaction {transactional_id!r} has producer id {now.producer_id} and epoch {now.epoch} now "
            f"({now.state}), not producer id {producer_id} and epoch {epoch}. A higher epoch means that the "
            "id was used again or fenced: the earlier transaction has ended. Nothing was committed"
        )
        raise ConfigurationError(msg)


def check_open(cluster: KafkaCluster, transactional_ids: Sequence[str]) -> list[TransactionDescription]:
    """Check that transactions are open, and describe them.

    Raises:
        ConfigurationError: Kafka does not know an id, or it has no open transaction.
        ConnectorError: A coordinator refuses, or does not answer in time.
    """
    described = _described(cluster, transactional_ids)
    for found in described.values():
        if found.state != "Ongoing":
            msg = f"{found.transactional_id!r} has no open transaction: its state is {found.state}"
            raise ConfigurationError(msg)
    return [described[name] for name in transactional_ids]


def abort_by_hand(cluster: KafkaCluster, transactions: Sequence[TransactionDescription]) -> None:
    """Abort open transactions, fence their producers, and wait until their markers are written.

    A job that is restored from a checkpoint with such a transaction fails, as after its timeout: the records
    are lost.

    Raises:
        ConnectorError: A coordinator refuses, or does not answer in time.
    """
    try:
        for_each(partial(_fence, cluster), transactions, threads=AT_A_TIME)
        _wait_for_end(cluster, [each.transactional_id for each in transactions])
    except TransactionError as error:
        raise cluster.failure(error) from error


def _fence(cluster: KafkaCluster, found: TransactionDescription) -> None:
    fence_transaction(cluster.settings, found.transactional_id, found.timeout, timeout=_TIMEOUT)


def _wait_for_end(cluster: KafkaCluster, transactional_ids: Sequence[str]) -> None:
    def are_open() -> bool:
        described = describe_transactions(cluster.settings, transactional_ids, timeout=_TIMEOUT)
        return any(found.state in OPEN_STATES for found in described.values())

    looks = Retrying(
        retry=retry_if_result(bool), stop=stop_after_delay(_TIMEOUT), wait=wait_fixed(_BETWEEN_LOOKS)
    )
    try:
        looks(are_open)
    except RetryError:
        what = f"the abort of {len(transactional_ids)} transaction(s) has begun, but is not complete"
        raise cluster.error(what, f"no end within {_TIMEOUT:g} s") from None


def _described(
    cluster: KafkaCluster, transactional_ids: Collection[str]
) -> dict[str, TransactionDescription]:
    try:
        described = describe_transactions(cluster.settings, transactional_ids, timeout=_TIMEOUT)
        unknown = [name for name in transactional_ids if name not in described]
        if not unknown:
            return described
        known = list_transactions(cluster.settings, timeout=_TIMEOUT)
    except TransactionError as error:
        raise cluster.failure(error) from error
    near = nearest_name(unknown[0], [each.transactional_id for each in known])
    msg = (
        f"Kafka at {cluster.bootstrap_servers} does not know the transactional id {unknown[0]!r}{near}. It "
        "was never used there, or has expired since"
    )
    raise ConfigurationError(msg)
