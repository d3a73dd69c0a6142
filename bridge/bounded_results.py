"""Running a bounded job for the sake of its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.bridge.spark_results import SparkResults
from penstock.runtime.checkpoint.config_values import Duration
from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.graph.stream_environment import StreamEnvironment

R = TypeVar("R", bound=SparkResults)
T = TypeVar("T")


def run_and_read(
    env: StreamEnvironment,
    stream: DataStream[Any],
    id: str,
    results: R,
    read: Callable[[R], T],
    *,
    timeout: Duration | None,
    progress: bool,
) -> T:
    """Run the job with one sink more, and read what came there; if anything fails it is released.

    Args:
        env: The environment of the job.
        stream: The rows.
        id: Id of the sink.
        results: The sink.
        read: Makes of it what the user gets.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Show a live line meanwhile.
    """
    try:
        stream.sink(id, results)
        env.run(timeout=timeout, progress=progress)
        return read(results)
    except BaseException:
        results.unpersist()
        raise
