"""Small jobs whose one subtask takes checkpoints in a make_subtask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subtask_setup import Log, LoggingSink, ScriptedSource, SubtaskSetup

from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.functions.keyed_folds import REDUCE_STATE
from penstock.runtime.record.elements import (
    CheckpointBarrier,
    CheckpointOptions,
    SnapshotKind,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    KeyGroupRange,
    OperatorSubtaskState,
    StateHandle,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.metadata import decode_atoms
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup

MakeSubtask = Callable[..., SubtaskSetup]
ENDLESS = GeneratorSource(lambda i: i)


def barrier(checkpoint_id: int, confirmed_id: int = -1) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1_000_000.0, confirmed_id=confirmed_id)


def savepoint(checkpoint_id: int, confirmed_id: int = -1) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0.0, CheckpointOptions(SnapshotKind.SAVEPOINT), confirmed_id)


def counting(senders: int = 2) -> StreamEnvironment:
    """A job whose vertex `count` has keyed state, channels on both sides and a sink behind it."""
    env = StreamEnvironment("job", chaining=False, max_parallelism=8)
    pairs = env.from_source("source", ENDLESS, parallelism=senders)
    pairs.key_by(lambda key: key).reduce("count", lambda a, b: f"{a}{b}", parallelism=1).sink(
        "sink", DiscardSink(), parallelism=2
    )
    return env


def sinking(log: Log, senders: int = 1) -> StreamEnvironment:
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", ENDLESS, parallelism=senders).sink("sink", LoggingSink(log), parallelism=1)
    return env


def reading(script: list[Any], function: Callable[[Any], Any]) -> StreamEnvironment:
    env = StreamEnvironment("job")
    stream = env.from_source("source", ScriptedSource(script)).map(function)
    stream.sink("sink", DiscardSink(), parallelism=2)
    return env


def listed(state: OperatorSubtaskState, name: str) -> list[Any]:
    (handle,) = (h for h in state.operator if h.name == name)
    assert isinstance(handle.state, InlineHandle)
    return [ValueCodec().loads(atom) for atom in decode_atoms(handle.state.data, "here")]


def keyed(task: SubtaskSetup, snapshot: SubtaskSnapshot) -> dict[Any, Any]:
    """The keyed state of a snapshot, read as a restore reads it."""

    class Files:
        def read(self, handle: StateHandle) -> bytes:
            return handle.data if isinstance(handle, InlineHandle) else task.storage.get(handle.path)

    backend = HeapKeyedStateBackend(BackendSetup("op", 8, KeyGroupRange(0, 7), ValueCodec()))
    backend.restore(snapshot.operators["count"].keyed, Files())
    return backend.table(REDUCE_STATE).entries
