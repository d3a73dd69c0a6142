"""The results of a bounded job: of one that is run for their sake, and of one that was submitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.util import list_named_actors

from penstock.actors.cluster import connect
from penstock.actors.names import NAMESPACE
from penstock.bridge.answers import answer_of
from penstock.bridge.block_holder import HOLDER_PREFIX, find_holder
from penstock.bridge.spark_results import SparkResults
from penstock.runtime.checkpoint.config_values import Duration
from penstock.runtime.errors import GraphError, PenstockError
from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.graph.job_handle import JobHandle

T = TypeVar("T")


def results_of(
    method: str,
    job_or_stream: JobHandle | DataStream[Any],
    id: str | None,
    default_id: str,
    results: Callable[[], SparkResults],
    read: Callable[[SparkResults], T],
    *,
    timeout: Duration | None,
    progress: bool,
) -> T:
    """Wait for the end of a job, or run the job of a stream, and read its results.

    Args:
        method: What the user has called, for messages.
        job_or_stream: A submitted job with a sink of its own for them, or a stream whose job is run now.
        id: Id of the sink.
        default_id: Id of the sink of a stream if the user gives none.
        results: Makes the sink of a stream.
        read: Makes of the sink what the user gets.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Show a live line meanwhile.

    Raises:
        GraphError: It is neither a job nor a stream.
    """
    if isinstance(job_or_stream, DataStream):
        return run_and_read(job_or_stream, id or default_id, results(), read, timeout, progress)
    if not hasattr(job_or_stream, "job_id"):
        msg = f"{method}: give a stream or a submitted job, not {type(job_or_stream).__name__}"
        raise GraphError(msg)
    job_or_stream.wait(timeout, progress=progress)
    return read(results_of_job(job_or_stream.job_id, id))


def run_and_read(
    stream: DataStream[Any],
    id: str,
    results: SparkResults,
    read: Callable[[SparkResults], T],
    timeout: Duration | None,
    progress: bool,
) -> T:
    """Run the job with one sink more, and read what came there; if anything fails it is released."""
    try:
        stream.sink(id, results)
        stream.environment.run(timeout=timeout, progress=progress)
        return read(results)
    except BaseException:
        results.unpersist()
        raise


def results_of_job(job_id: str, sink: str | None = None) -> SparkResults:
    """What a job's `SparkResults` holds, found from any program of the cluster.

    Args:
        job_id: The job.
        sink: Id of the sink; needed when the job has several of this kind.

    Raises:
        PenstockError: There is no such sink, or its rows have been released; or there are several.
    """
    connect()
    found = {id: (name, schema) for name in _holders() for id, schema in _sinks_of(name, job_id).items()}
    chosen = sink if sink is not None else next(iter(found), None)
    if chosen not in found or (sink is None and len(found) > 1):
        those = ", ".join(sorted(map(repr, found)))
        raise PenstockError(
            f"the sinks of job {job_id} that hold rows for Spark are {those}: name one of them with id="
            if found
            else f'job {job_id} holds no rows for Spark: give it a sink, stream.sink("out", '
            "bridge.SparkResults()), and keep the program that made it until they are read. What "
            "unpersist() has released is gone"
        )
    name, schema = found[chosen]
    return SparkResults.of_sink(name, job_id, chosen, schema)


def _holders() -> list[str]:
    """The names of all holders of results in the cluster."""
    actors = list_named_actors(all_namespaces=True)
    return [
        actor["name"].removeprefix(HOLDER_PREFIX)
        for actor in actors
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(HOLDER_PREFIX)
    ]


def _sinks_of(holder: str, job_id: str) -> dict[str, bytes | None]:
    try:
        sinks = answer_of(find_holder(holder).sinks.remote(job_id), "a holder of jobs' results")
    except (ValueError, ray.exceptions.RayActorError):
        return {}  # it has ended since it was listed, and its rows with it
    return dict(sinks)
