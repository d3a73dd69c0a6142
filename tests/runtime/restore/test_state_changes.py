"""Warnings about declared states that were added, dropped or renamed since the snapshot."""

from __future__ import annotations

import pytest

from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.restore import state_changes
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
    SavedState,
)
from penstock.runtime.state.known_states import StateInfo

SEEN = SavedState("seen", "value", is_declared=True)
ASKED = SavedState("asked", "value")


def said(declared: list[StateInfo], *saved: SavedState) -> str | None:
    spec = OperatorSpec("count", "process", None, keyed=True, states=tuple(declared))
    graph = build_execution_graph(JobGraph("job", (JobVertex("count", (spec,), 1, 8),)))
    handle = KeyedStateHandle(KeyGroupRange(0, 7), (), 0, states=saved)
    state = OperatorState("count", 1, 8, {0: OperatorSubtaskState((handle,))})
    checkpoint = CompletedCheckpoint(7, 3, SnapshotKind.SAVEPOINT, {"count": state}, 0.0, 1.0)
    return state_changes(graph, checkpoint)


def test_nothing_is_said_of_the_same_states() -> None:
    assert said([StateInfo("seen", "value")], SEEN, ASKED) is None


def test_nothing_is_said_of_a_snapshot_that_knows_no_states() -> None:
    assert said([StateInfo("seen", "value")]) is None


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ([StateInfo("seen", "value"), StateInfo("more", "map")], "state 'more' is new and begins empty"),
        ([], "state 'seen' of the snapshot is no longer declared. It stays in every checkpoint"),
        (
            [StateInfo("count", "value", renamed_from="seen")],
            "state 'count' takes over the entries saved as 'seen'",
        ),
    ],
)
def test_what_has_changed_is_said_by_name(declared: list[StateInfo], what: str) -> None:
    warning = said(declared, SEEN, ASKED)
    assert warning is not None
    assert warning.startswith(f"operator 'count': {what}")
    assert ";" not in warning
