"""Common parts of tests of unaligned checkpoints: barriers, jobs, and in-flight data in plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subtask_setup import CODEC, ScriptedSource, SubtaskSetup, job_config

from penstock.runtime.checkpoint.channel_state_writer import read_channel_state
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.record.element_codec import decode_element
from penstock.runtime.record.elements import (
    ArrowBatch,
    Buffer,
    CheckpointBarrier,
    CheckpointOptions,
    SnapshotKind,
)
from penstock.runtime.snapshot.completed_checkpoint import ChannelRestore, TaskRestore
from penstock.runtime.snapshot.handles import ChannelStateHandle

MakeSubtask = Callable[..., SubtaskSetup]
ENDLESS = GeneratorSource(lambda i: i)
PATIENCE = 5.0


def unaligned(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, CheckpointOptions(unaligned=True))


def patient(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, CheckpointOptions(aligned_timeout=PATIENCE))


def turned(checkpoint_id: int) -> CheckpointBarrier:
    options = CheckpointOptions(unaligned=True, aligned_timeout=PATIENCE)
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, options)


def savepoint(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, CheckpointOptions(SnapshotKind.SAVEPOINT))


def config(aligned_timeout: float | None = None, **more: Any) -> JobConfig:
    """Small credits, so that outputs block after two buffers of one row."""
    checkpointing = Checkpointing(every=1, unaligned=True, aligned_timeout=aligned_timeout)
    return job_config(checkpointing=checkpointing, **{"credits": 2, "buffer_rows": 1, **more})


def working(function: Callable[[Any], Any], senders: int = 2, receivers: int = 1) -> StreamEnvironment:
    """A job whose vertex `work` has channels on both sides that barriers may overtake in."""
    env = StreamEnvironment("job", chaining=False)
    spread = env.from_source("source", ENDLESS, parallelism=senders).rebalance()
    worked = spread.flat_map(function, id="work", parallelism=1)
    worked.rebalance().sink("sink", DiscardSink(), parallelism=receivers)
    return env


def as_it_is(row: Any) -> list[Any]:
    return [row]


def plain(encoded: bytes) -> Any:
    element = decode_element(encoded)
    if not isinstance(element, Buffer):
        return element
    batch = CODEC.decode(element)
    return batch if isinstance(batch, ArrowBatch) or batch.timestamps else list(batch.rows)


@dataclass(frozen=True)
class InFlight:
    """In-flight data of a subtask, by number of the input channel and by position of the output."""

    inputs: dict[int, list[Any]]
    outputs: dict[int, list[Any]]


NOTHING = InFlight({}, {})


def handle_of(task: SubtaskSetup, checkpoint_id: int) -> ChannelStateHandle | None:
    return next(iter(task.acknowledged[checkpoint_id].operators.values())).channels


def in_flight(task: SubtaskSetup, checkpoint_id: int) -> InFlight:
    handle = handle_of(task, checkpoint_id)
    if handle is None:
        return NOTHING
    state, _ = read_channel_state(task.storage, handle)
    received, sent = task.spec.input_ids, list(task.spec.output_ids.values())
    return InFlight(
        {received.index(c): list(map(plain, elements)) for c, elements in state.inputs.items()},
        {sent.index(c): list(map(plain, elements)) for c, elements in state.outputs.items()},
    )


def again(
    make_subtask: MakeSubtask, env: StreamEnvironment, task: SubtaskSetup, checkpoint_id: int, **more: Any
) -> SubtaskSetup:
    """The subtask of a new attempt that starts from a checkpoint of `task`."""
    handle = handle_of(task, checkpoint_id)
    channels = None if handle is None else ChannelRestore((handle,))
    restore = TaskRestore(checkpoint_id, 1, {}, channels=channels)
    return make_subtask(
        env, task.spec.vertex.id, **{"config": config(), **more}, restore=restore, storage=task.storage
    )


def reading(script: list[Any], function: Callable[[Any], Any]) -> StreamEnvironment:
    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource(script)).flat_map(function)
    stream.rebalance().sink("sink", DiscardSink())
    return env
