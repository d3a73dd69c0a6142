"""`penstock kafka lag` and `penstock kafka transactions list | commit | abort`.

The settings of Kafka's clients come from a file, because a command's arguments are visible to other users of
the machine. No output shows secret settings.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.actors.client.jobs import cluster_jobs, join
from penstock.actors.command_line.common import (
    AddressOption,
    JsonOption,
    StorageOption,
    named_job,
    print_json,
    show,
)
from penstock.actors.command_line.views import kafka_lag_view, transactions_table
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.checkpoint.recovery import OpenedSnapshot, open_snapshot
from penstock.runtime.error_text import escaped
from penstock.runtime.errors import ConfigurationError, DeploymentError, LostOutputError
from penstock.runtime.io.connectors.kafka.cluster import KafkaCluster, check_installed
from penstock.runtime.io.connectors.kafka.saved_state import committables_in, positions_in
from penstock.runtime.io.connectors.kafka.tools import (
    CommitResult,
    ListedTransaction,
    abort_by_hand,
    check_numbers,
    check_open,
    commit_by_hand,
    listed_transactions,
    partition_lags,
)
from penstock.runtime.io.connectors.kafka.transaction_requests import check_settings
from penstock.runtime.io.connectors.kafka.transactions import KafkaCommittable, TransactionOwner
from penstock.runtime.io.storage import absolute_location, open_location

#: Environment variables that stand for options.
BOOTSTRAP: Final = "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS"
CONFIG: Final = "PENSTOCK_KAFKA_CONFIG"

kafka = typer.Typer(
    help="Show the lag of Kafka sources, and list, commit or abort transactions of Kafka sinks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
transactions = typer.Typer(
    help="List, commit or abort transactions of Kafka sinks.", no_args_is_help=True, rich_markup_mode=None
)
kafka.add_typer(transactions, name="transactions")

BrokersOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        envvar=BOOTSTRAP,
        help="Brokers of the Kafka cluster. Default: `bootstrap.servers` of the --config file.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar=CONFIG,
        help="File with settings of librdkafka, one `name=value` per line. Secrets are never shown.",
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="SNAPSHOT",
        help="Path or URL of a savepoint or checkpoint, or <storage>/<job> for a job's newest one.",
    ),
]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")]


@kafka.command()
def lag(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="A job's id, the beginning of its id, or its name."),
    ] = None,
    snapshot: FromOption = None,
    brokers: BrokersOption = None,
    config: ConfigOption = None,
    address: AddressOption = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far the newest completed checkpoint of a job is behind the ends of its partitions.

    Works for running and for ended jobs, and with --from for any snapshot. Give a job or --from.
    """
    cluster = _cluster(brokers, config)
    if (job is None) == (snapshot is None):
        msg = "give either a JOB or --from SNAPSHOT"
        raise ConfigurationError(msg)
    if job is not None:
        snapshot = _newest_snapshot(named_job(job, address, storage).report())
    opened = _opened(str(snapshot))
    positions = positions_in(opened)
    if not positions:
        msg = f"{snapshot} has no position of a KafkaSource: the job reads no topic, or has read all of them"
        raise ConfigurationError(msg)
    with _quiet_clients():
        lags = partition_lags(cluster, positions)
    taken = opened.checkpoint
    if as_json:
        about = {"checkpoint_id": taken.checkpoint_id, "completed_at": taken.completed_at}
        print_json({**about, "lag": sum(each.lag for each in lags), "partitions": [asdict(x) for x in lags]})
    else:
        show(*kafka_lag_view(taken, lags, time.time()))


@transactions.command("list")
def list_transactions(
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Beginning of the ids; with '' all ids of the cluster.")
    ] = "penstock:",
    with_ended: Annotated[
        bool, typer.Option("--all", help="Also list ids whose last transaction has ended.")
    ] = False,
    brokers: BrokersOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List open transactions, the oldest first, with the job and the subtask that began each."""
    cluster = _cluster(brokers, config)
    with _quiet_clients():
        found = listed_transactions(cluster, prefix, with_ended=with_ended)
    now = time.time()
    if as_json:
        print_json([_as_dict(each, now) for each in found])
    elif found:
        show(transactions_table(found, now))
    else:
        print(f"no {'' if with_ended else 'open '}transactions")


@transactions.command()
def commit(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Transactional ids. Default: all of --from.")
    ] = None,
    snapshot: FromOption = None,
    producer_id: Annotated[
        int | None, typer.Option(metavar="N", help="The producer's id, for a single ID without --from.")
    ] = None,
    epoch: Annotated[
        int | None, typer.Option(metavar="N", help="The producer's epoch, for a single ID without --from.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Without --from: do not check whether the job runs.")
    ] = False,
    brokers: BrokersOption = None,
    config: ConfigOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Commit the transactions that a checkpoint or savepoint covers; abort none.

    The command may be repeated. Without --from, the producer's id and epoch identify the transaction. It need
    not be covered by a checkpoint, so a restored job may write its records again.
    """
    cluster = _cluster(brokers, config)
    if snapshot is not None:
        if producer_id is not None or epoch is not None:
            msg = "--producer-id and --epoch are in the snapshot: leave them out, or leave out --from"
            raise ConfigurationError(msg)
        committables = _covered(snapshot, ids or [])
    else:
        if producer_id is None or epoch is None or len(ids or []) != 1:
            msg = "give --from SNAPSHOT, or one ID with --producer-id and --epoch (as `list` shows them)"
            raise ConfigurationError(msg)
        committables = [KafkaCommittable(ids[0], producer_id, epoch, 0, 0.0)] if ids else []
        _refuse_running(committables[0].transactional_id, address, force=force)
    with _quiet_clients():
        for each in committables if snapshot is None else ():
            check_numbers(cluster, each.transactional_id, each.producer_id, each.epoch)
        results = commit_by_hand(cluster, committables)
    _print_results(results, as_json=as_json)


@transactions.command()
def abort(
    ids: IdsArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do not check whether the job runs.")] = False,
    brokers: BrokersOption = None,
    config: ConfigOption = None,
    address: AddressOption = None,
) -> None:
    """Abort open transactions: their records are lost. Asks first.

    First commit those that the job's newest checkpoint or savepoint covers: `commit --from SNAPSHOT`.
    """
    cluster = _cluster(brokers, config)
    ids = list(dict.fromkeys(ids))
    with _quiet_clients():
        found = check_open(cluster, ids)
    for name in ids:
        _refuse_running(name, address, force=force)
    if not yes:
        now = time.time()
        show(
            transactions_table(
                [ListedTransaction(each, TransactionOwner.of(each.transactional_id)) for each in found], now
            )
        )
        typer.confirm("Abort these transactions? Their records are lost", abort=True)
    with _quiet_clients():
        abort_by_hand(cluster, found)
    for name in ids:
        print(f"aborted {escaped(name)}")


def _cluster(brokers: str | None, config: Path | None) -> KafkaCluster:
    """Return the cluster that the options name, after a check of its settings."""
    check_installed()
    settings = {} if config is None else _read_settings(config)
    servers = brokers or settings.get("bootstrap.servers")
    settings.pop("bootstrap.servers", None)
    if not servers:
        msg = f"no brokers: give --bootstrap-servers, {BOOTSTRAP}, or bootstrap.servers in the --config file"
        raise ConfigurationError(msg)
    cluster = KafkaCluster(servers, settings)
    check_settings(cluster)
    return cluster


def _read_settings(path: Path) -> dict[str, str]:
    """Read a file of settings; its errors name lines, and never show them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        msg = f"--config {path}: can't be read: {why}"
        raise ConfigurationError(msg) from None
    settings: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            msg = f"--config {path}: line {number} is not of the form name=value"
            raise ConfigurationError(msg)
        settings[name.strip()] = value.strip()
    return settings


@contextmanager
def _quiet_clients() -> Iterator[None]:
    """Hide the clients' log messages about connections; the command's error names the cause."""
    names = ("kafka", "penstock.runtime.io.connectors.kafka.cluster")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _newest_snapshot(report: JobReport) -> str:
    if report.savepoint is not None:
        return report.savepoint
    if report.storage is None:
        msg = f"job {report.job_id} takes no checkpoints, so it has no committed positions"
        raise ConfigurationError(msg)
    return f"{report.storage.rstrip('/')}/{report.job_id}"


def _opened(snapshot: str) -> OpenedSnapshot:
    return open_snapshot(absolute_location("snapshot", snapshot), open_location)


def _covered(snapshot: str, ids: list[str]) -> list[KafkaCommittable]:
    """The transactions that a snapshot covers; with `ids`, only these."""
    covered = [committable for _, committable in committables_in(_opened(snapshot))]
    names = {committable.transactional_id for committable in covered}
    for name in ids:
        if name not in names:
            msg = f"{snapshot} does not cover a transaction {name!r}; it covers {len(names)} transaction(s)"
            raise ConfigurationError(msg)
    return [committable for committable in covered if not ids or committable.transactional_id in ids]


def _refuse_running(transactional_id: str, address: str | None, *, force: bool) -> None:
    """Refuse a transaction whose job runs or may run."""
    owner = TransactionOwner.of(transactional_id)
    if force or owner is None:
        return
    try:
        join(None, address)
    except DeploymentError as error:
        msg = (
            f"it is not known whether job {owner.job_id} runs, because no cluster can be joined: {error}. "
            "Give --address, or --force if the job does not run"
        )
        raise ConfigurationError(msg) from error
    for known in cluster_jobs():
        has_not_ended = known.is_running or (known.has_master and known.problem)
        if known.report.job_id == owner.job_id and has_not_ended:
            msg = (
                f"transaction {transactional_id!r} belongs to job {owner.job_id}, which runs: the job "
                "commits or aborts it by itself. Cancel the job first, or give --force"
            )
            raise ConfigurationError(msg)


def _as_dict(listed: ListedTransaction, now: float) -> dict[str, Any]:
    found, owner = listed.found, listed.owner
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "age": None if found.started_at is None else max(0.0, now - found.started_at),
        "timeout": found.timeout,
        "partitions": [list(partition) for partition in sorted(found.partitions)],
        **(dict.fromkeys(_OWNER) if owner is None else {name: getattr(owner, name) for name in _OWNER}),
    }


_OWNER: Final = ("prefix", "job_id", "operator_id", "attempt", "subtask", "number")


def _print_results(results: Iterable[CommitResult], *, as_json: bool) -> None:
    """Print the outcome of each transaction.

    Raises:
        LostOutputError: One of them can't be committed any more, or it is not known whether it was.
    """
    results = list(results)
    if as_json:
        print_json(
            [{**asdict(each.committable), "outcome": each.outcome, "detail": each.detail} for each in results]
        )
    else:
        for each in results:
            about = f"{each.committable.transactional_id}{f': {each.detail}' if each.detail else ''}"
            print(escaped(f"{each.outcome} {about}"))
        if not results:
            print("the snapshot covers no uncommitted transactions")
    failed = [each for each in results if each.outcome in ("lost", "unknown")]
    if failed:
        msg = f"{len(failed)} of {len(results)} transaction(s) could not be committed: {failed[0].detail}"
        raise LostOutputError(msg)
