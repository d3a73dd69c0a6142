"""Runs or finds a bounded job, and reads the rows that it has left in a `BlockResults`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import ray

from penstock.actors.client.cluster import connect
from penstock.actors.client.interrupts import InterruptsHeld, interrupts_delivered
from penstock.actors.shared.actor_calls import ANSWER, RepeatedCall, no_answer
from penstock.actors.shared.registry import find_actor, living_actors
from penstock.bridge.blocks import HOLDER_PREFIX, BlockResults
from penstock.runtime.errors import GraphError, JobCancelledError, JobFailedError, PenstockError
from penstock.runtime.graph.executor import JobHandle
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.time.durations import Duration, seconds_in

T = TypeVar("T")

R = TypeVar("R", bound=BlockResults)


def results_of(
    method: str,
    job_or_stream: JobHandle | DataStream[Any],
    id: str | None,
    default_id: str,
    kind: type[R],
    schema: pa.Schema | None,
    read: Callable[[R], T],
    *,
    timeout: Duration | None,
    progress: bool,
) -> T:
    """Wait for the end of a job, or run the job of a stream, and read its results.

    Args:
        method: Name of the called method, for messages.
        default_id: Id of a stream's sink if the user gives none.
    """
    if timeout is not None:
        seconds_in("timeout", timeout)
    if isinstance(job_or_stream, DataStream):
        return _run(method, job_or_stream, id or default_id, kind(schema), read, timeout, progress)
    if not hasattr(job_or_stream, "job_id"):
        msg = f"{method}: give a stream or a submitted job, not {type(job_or_stream).__name__}"
        raise GraphError(msg)
    job_or_stream.wait(timeout, progress=progress)
    return read(results_of_job(job_or_stream.job_id, id, kind))


def _run(
    method: str,
    stream: DataStream[Any],
    id: str,
    results: R,
    read: Callable[[R], T],
    timeout: Duration | None,
    progress: bool,
) -> T:
    """Run the job of a stream with one more sink, which the environment does not keep."""
    with InterruptsHeld():
        try:
            with stream.environment.temporarily():
                stream.sink(id, results)
                job = stream.environment.submit()
        except BaseException:
            results.unpersist()
            raise
        try:
            with interrupts_delivered():
                job.wait(timeout, progress=progress)
                return read(results)
        except (JobFailedError, JobCancelledError):
            results.unpersist()
            raise
        except BaseException as error:  # the job continues, or has finished
            error.add_note(
                f"the results of job {job.job_id} stay until this program ends: {method}(job, ...) "
                f"fetches them, with job = penstock.job({job.job_id!r})"
            )
            raise


def results_of_job(job_id: str, sink: str | None, kind: type[R]) -> R:
    """The rows that a job has left in a sink; any program of the cluster finds them.

    Args:
        sink: Id of the sink; needed if the job has several.
    """
    connect()
    found = _sinks_of(job_id)
    chosen = sink if sink is not None else next(iter(found), None)
    if chosen not in found or (sink is None and len(found) > 1):
        those = ", ".join(sorted(map(repr, found)))
        raise PenstockError(
            f"job {job_id} holds results of these sinks: {those}. Name one with id="
            if found
            else f'job {job_id} holds no results: give it a sink, stream.sink("out", '
            "SparkResults()), and keep the program that made the sink running until the rows are read. Rows "
            "that unpersist() has released are gone"
        )
    name, schema = found[chosen]
    return kind.of_sink(name, job_id, chosen, schema)


def _sinks_of(job_id: str) -> dict[str, tuple[str, bytes | None]]:
    """The names of the holders of a job's sinks, and the schemas if given."""
    calls: list[tuple[str, RepeatedCall[dict[str, bytes | None]]]] = []
    for name in living_actors():
        if name.startswith(HOLDER_PREFIX):
            with suppress(ValueError):  # it has ended since it was listed
                sinks = partial(find_actor(name).sinks.remote, job_id)
                holder = name.removeprefix(HOLDER_PREFIX)
                calls.append((holder, RepeatedCall(sinks, "a holder of results")))
    deadline = time.monotonic() + ANSWER
    found: dict[str, tuple[str, bytes | None]] = {}
    silent = False
    for name, call in calls:
        if not call.wait(max(0.0, deadline - time.monotonic())):
            silent = True  # matters only if no other holder has the job
            continue
        try:
            found |= {sink: (name, schema) for sink, schema in call.result().items()}
        except ray.exceptions.RayActorError:
            continue  # it has ended since it was listed
    if silent and not found:
        who = f"a holder of results, asked for those of job {job_id}"
        raise no_answer(who, ANSWER)
    return found
