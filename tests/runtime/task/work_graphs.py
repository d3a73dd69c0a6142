"""Small jobs whose one subtask is at work in a make_subtask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subtask_setup import ScriptedSource, SubtaskSetup, job_config

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource

MakeSubtask = Callable[..., SubtaskSetup]


def small(**more: Any) -> JobConfig:
    return job_config(**{"checkpointing": Checkpointing(every=1), "buffer_rows": 2, "credits": 2, **more})


def mapping(function: Callable[[Any], Any], *, senders: int = 1) -> StreamEnvironment:
    """A job whose vertex `map-1` has channels on both sides."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i), parallelism=senders)
    stream.map(function, parallelism=1).sink("sink", DiscardSink(), parallelism=1)
    return env


def flattening(function: Callable[[Any], Any]) -> StreamEnvironment:
    """The same with `flat_map-1`."""
    env = StreamEnvironment("job", chaining=False)
    stream = env.from_source("source", GeneratorSource(lambda i: i))
    stream.flat_map(function).sink("sink", DiscardSink())
    return env


def reading(source: ScriptedSource, *, function: Callable[[Any], Any] | None = None) -> StreamEnvironment:
    """A job whose vertex `source` has a channel behind it."""
    env = StreamEnvironment("job")
    stream = env.from_source("source", source)
    if function is not None:
        stream = stream.map(function)
    stream.sink("sink", DiscardSink(), parallelism=2)
    return env
