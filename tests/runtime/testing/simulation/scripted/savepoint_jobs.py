"""Jobs whose savepoints are tried: running counts of numbers, and the start from a savepoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from memory_storages import MemoryPlaces
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.storage import MemoryStorage

COUNT, KEYS = 3000, 7
CONFIG = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=5, credits=3))


def numbers(env: StreamEnvironment) -> DataStream[int]:
    return env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT))


def counting(
    target: InMemoryCollector,
    parallelism: int = 2,
    *,
    change: Callable[[DataStream[tuple[int, int]]], object] | None = None,
    max_parallelism: int = 32,
) -> ExecutionGraph:
    """Running counts of numbers by remainder; `change` sees the pairs before they are counted."""
    env = StreamEnvironment("count", parallelism=parallelism, max_parallelism=max_parallelism)
    pairs = numbers(env).map(lambda i: (i % KEYS, 1))
    if change is None:
        counts = pairs.key_by(lambda p: p[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
        counts.sink("out", CollectSink(target))
    else:
        change(pairs)
    return build_execution_graph(env.build())


def expected() -> Counter[tuple[int, int]]:
    return Counter((key, n + 1) for key in range(KEYS) for n in range(len(range(key, COUNT, KEYS))))


def start(
    target: InMemoryCollector, places: MemoryPlaces, url: str, graph: ExecutionGraph | None = None
) -> ScriptedJob:
    return ScriptedJob(
        graph or counting(target),
        CONFIG,
        MemoryStorage(),
        job_id=f"after-{url.strip('/').replace('/', '-')}",
        restore_from=url,
        open_location=places,
    )


def take_savepoint(job: ScriptedJob, places: MemoryPlaces, url: str) -> None:
    """A savepoint at `url`; the job continues."""
    places.move(job.take_savepoint(url), url)


def stop_with_savepoint(job: ScriptedJob, places: MemoryPlaces, url: str, *, drain: bool = False) -> None:
    """Stop a job with a savepoint at `url`."""
    places.move(job.stop_with_savepoint(url, drain=drain), url)


def found_at(places: MemoryPlaces, url: str) -> CompletedCheckpoint:
    """The snapshot at a URL."""
    return open_snapshot(url, places).checkpoint
