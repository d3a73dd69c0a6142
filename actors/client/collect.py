"""`RayCollector`: the committed rows of a job, in the program that submitted it; for notebooks and tests.

Subtasks commit rows when a checkpoint completes; a job without checkpoints commits once, at its end. A small
actor keeps the rows pickled, with one entry for each transaction. So a commit that is repeated after a
failure adds no rows, and the actor does not need the classes of the rows. The actor ends with the program, or
with `close`. If a job commits rows later, it fails with a message that names this cause.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import ray
import ray.cloudpickle as cloudpickle
from ray.actor import ActorHandle

from penstock.actors.client.cluster import connect
from penstock.actors.client.interrupts import InterruptsHeld, interrupts_delivered, name_job
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.master_calls import request_deadline
from penstock.actors.shared.actor_calls import answer_of
from penstock.actors.shared.registry import find_actor, start_actor
from penstock.runtime.errors import JobCancelledError, JobFailedError, PenstockError
from penstock.runtime.io.connectors.collect_sink import CollectKey, PreviewSink, newest_rows
from penstock.runtime.operators.sinks import Sink
from penstock.runtime.time.durations import Duration

_PREFIX: Final = "collector:"
#: Seconds to wait for an answer from the collector's actor.
_TIMEOUT: Final = 60.0


class CollectorActor:
    """Keeps transactions by key, in the order of their first arrival."""

    def __init__(self) -> None:
        #: Transactions by run of a sink; sinks without runs share the run `""`.
        self._by_run: dict[str, dict[CollectKey, bytes]] = {}

    def add(self, key: CollectKey, rows: bytes, run: str = "") -> None:
        """Keep the pickled rows of one transaction; ignores a key that it has already."""
        self._by_run.setdefault(run, {}).setdefault(key, rows)

    def rows(self, start: int, run: str = "") -> list[bytes]:
        """Return a run's transactions, beginning with index `start`; drop all other runs."""
        self._by_run = {run: self._by_run.get(run, {})}
        return list(self._by_run[run].values())[start:]


class RayCollector:
    """Collects the committed rows of sinks (`CollectSink`); may serve several sinks and several jobs.

    The constructor joins the cluster, or starts a local one, like the submission of a job. All rows are held
    in memory; uncommitted rows are also in checkpoints. Use the collector for results that fit in memory.

    Example:
        results = RayCollector()
        stream.sink("results", CollectSink(results))
        env.run()
        results.rows()
    """

    def __init__(self) -> None:
        connect()
        self._name = _PREFIX + secrets.token_hex(8)
        self._transactions: list[list[Any]] = []
        self._run = ""
        self._actor: ActorHandle[Any] | None = start_actor(CollectorActor, self._name, num_cpus=0)

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None:
        """Keep the rows of one transaction; called by the sink.

        Raises:
            PenstockError: The collector is closed, or its actor has died, for example with its program.
            NoAnswerError: Its actor does not answer within 60 s.
        """
        self.add_of_run("", key, rows)

    def add_of_run(self, run: str, key: CollectKey, rows: Sequence[Any]) -> None:
        """Like `add`, for one run of a sink."""
        data: bytes = cloudpickle.dumps(list(rows))  # type: ignore[no-untyped-call]
        try:
            if self._actor is None:
                self._actor = find_actor(self._name)
            answer_of(self._actor.add.remote(key, data, run), self._who, _TIMEOUT)
        except (ValueError, ray.exceptions.RayActorError) as error:
            raise self._gone() from error

    def rows(self) -> list[Any]:
        """All rows committed so far, grouped by transaction, in the order of the commits.

        Raises:
            PenstockError: The collector is closed, or its actor has died.
            NoAnswerError: Its actor does not answer within 60 s.
        """
        return self.rows_of_run("")

    def rows_of_run(self, run: str) -> list[Any]:
        """Like `rows`, for one run of a sink; drops the rows of other runs."""
        if run != self._run:
            self._transactions, self._run = [], run
        if self._actor is None:
            raise self._gone()
        try:
            asked: Any = self._actor.rows.remote(len(self._transactions), run)
            new: list[bytes] = answer_of(asked, self._who, _TIMEOUT)
        except ray.exceptions.RayActorError as error:
            raise self._gone() from error
        self._transactions += map(cloudpickle.loads, new)
        return [row for transaction in self._transactions for row in transaction]

    def close(self) -> None:
        """Drop the rows and end the actor; a job that still runs can no longer commit."""
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None
            self._transactions = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows())

    def __enter__(self) -> RayCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_name": self._name, "_actor": None, "_transactions": [], "_run": ""}

    @property
    def _who(self) -> str:
        return f"the collector of this sink ({self._name})"

    def _gone(self) -> PenstockError:
        return PenstockError(
            f"{self._who} is gone: the program that made it has ended or has closed it. Keep the program "
            "running until the job has ended, or write to files (FileSink)"
        )


logger = logging.getLogger(__name__)

#: Seconds between two checks for new rows.
_POLL: Final = 0.1
#: Seconds to wait for a cancelled job to end.
_LAST: Final = 30.0


def bring_rows(
    submit: Callable[[Sink[Any]], RayJobHandle], limit: int | None, timeout: Duration | None
) -> list[Any]:
    """Run a job until it ends or `limit` rows have arrived; an error or the limit cancels the job."""
    if limit == 0:
        return []
    with InterruptsHeld():
        with interrupts_delivered():
            collector = RayCollector()
        with collector:
            job = submit(PreviewSink(collector, limit))
            try:
                with interrupts_delivered():
                    return _rows(job, collector, limit, timeout)
            except BaseException as stop:
                _end(job, stop)
                raise


def _rows(
    job: RayJobHandle, collector: RayCollector, limit: int | None, timeout: Duration | None
) -> list[Any]:
    deadline = request_deadline("end", job.job_id, timeout)
    while not job.ends_within(deadline.left(at_most=_POLL) or 0.0):
        rows = [] if limit is None else newest_rows(collector.rows())
        if limit is not None and len(rows) >= limit:
            _end(job)
            return rows[:limit]
        if deadline.has_passed:
            late = f"the quick look has not received all of its rows (job {job.job_id})"
            raise deadline.error(late, "the job was cancelled. Use a longer timeout, or take fewer rows")
    job.wait()
    return newest_rows(collector.rows())[:limit]


def _end(job: RayJobHandle, stop: BaseException | None = None) -> None:
    """Cancel the job if it runs, and wait for its end.

    If that fails, this adds a note to the error `stop`, or logs a warning if there is none.
    """
    try:
        with interrupts_delivered():
            if not job.status().is_terminal:
                job.cancel()
            with suppress(JobCancelledError, JobFailedError):  # the caller knows already
                job.wait(_LAST)
    except Exception as error:
        if stop is not None:
            name_job(stop, job.job_id, f"may still run ({error})")
        else:
            logger.warning("job %s could not be cancelled, or has not ended yet: %s", job.job_id, error)
    except BaseException as again:
        name_job(again, job.job_id, "may still run")
        raise
