"""Events of a source's coordinator keep their position relative to repeated and aborted checkpoints.

Otherwise a split would be lost or read twice: it must be in exactly one snapshot, that of the reader or that
of the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from subtask_setup import SubtaskSetup

from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.coordinator_host import EventOfCoordinator
from penstock.runtime.operators.source_coordinator import OnRequest
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import InlineHandle
from penstock.runtime.snapshot.metadata import decode_atoms

SPLIT = (0, 2)


@pytest.fixture
def reader(make_subtask: Callable[..., SubtaskSetup]) -> SubtaskSetup:
    """The one reader of a source with splits on request; it has none yet."""
    env = StreamEnvironment("job", chaining=False)
    env.from_source("source", OnRequest(CollectionSource("ab"))).sink("sink", DiscardSink())
    return make_subtask(env, "source", splits=())


def ask(reader: SubtaskSetup, checkpoint_id: int) -> None:
    reader.subtask.trigger_checkpoint(CheckpointBarrier(checkpoint_id, 0.0))


def assign(reader: SubtaskSetup, after: int) -> None:
    """A split that the coordinator assigns after it took its part of a checkpoint."""
    reader.subtask.operator_event("source", EventOfCoordinator(after, ValueCodec().dumps((SPLIT,))))


def splits_in(reader: SubtaskSetup, checkpoint_id: int) -> list[Any]:
    """The snapshot of the reader."""
    while checkpoint_id not in reader.acknowledged:
        reader.subtask.step()
        reader.upload()
    [handle] = reader.acknowledged[checkpoint_id].operators["source"].operator
    assert isinstance(handle.state, InlineHandle)
    return [ValueCodec().loads(atom) for atom in decode_atoms(handle.state.data, "splits")]


def test_split_behind_a_checkpoint_that_is_asked_for_twice_is_in_the_next_one(reader: SubtaskSetup) -> None:
    ask(reader, 1)
    ask(reader, 1)
    assign(reader, after=1)
    assert splits_in(reader, 1) == []
    ask(reader, 2)
    assert splits_in(reader, 2) == [SPLIT]


def test_split_behind_a_checkpoint_that_is_given_up_is_in_the_next_one(reader: SubtaskSetup) -> None:
    ask(reader, 1)
    assign(reader, after=1)
    reader.subtask.notify_checkpoint_aborted(1)
    ask(reader, 2)
    assert splits_in(reader, 2) == [SPLIT]


def test_late_repetition_of_an_old_request_lets_no_split_in_front_of_a_newer_checkpoint(
    reader: SubtaskSetup,
) -> None:
    ask(reader, 1)
    assert splits_in(reader, 1) == []
    ask(reader, 2)
    ask(reader, 1)
    assign(reader, after=2)
    assert splits_in(reader, 2) == []
    ask(reader, 3)
    assert splits_in(reader, 3) == [SPLIT]
