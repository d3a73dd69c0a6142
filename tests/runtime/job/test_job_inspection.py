"""The inspection of state that a job keeps in its JobMaster, without running the job."""

from __future__ import annotations

import json
from typing import Any

from operators_setup import READ, Hook, Hooked, Run

from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.operators.source_coordinator import OnRequest, OnRequestEnumerator
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.metadata import read_metadata, read_state
from penstock.runtime.state_processor.inspection import (
    MOST_VALUES,
    CoordinatorSummary,
    MasterSummary,
    SnapshotSummary,
    inspect_snapshot,
)


class Page:
    """A split of the user's own class, which only pickle can carry."""

    def __repr__(self) -> str:
        return "a page"


class Pages(CollectionSource[Any]):
    """A source with these splits."""

    def __init__(self, *splits: Any) -> None:
        super().__init__(())
        self._pages = splits

    def splits(self, parallelism: int) -> list[Any]:
        return list(self._pages)


class Offsets(OnRequest[Any]):
    """A source whose enumerator keeps something else."""

    def enumerator(self, context: Any, state: Any) -> OnRequestEnumerator:
        return KeepsAnOffset(self._source, context, None)


class KeepsAnOffset(OnRequestEnumerator):
    def snapshot(self) -> Any:
        return {"offset": 7}


def summary_of(run: Run, codec: ValueCodec | None = None) -> SnapshotSummary:
    """The inspection of the job's next checkpoint, as its metadata file gives it back."""
    checkpoint: CompletedCheckpoint = run.checkpoint()
    assert checkpoint.metadata is not None
    stored = read_metadata(run.storage, checkpoint.metadata)
    trusted = codec or ValueCodec(allow_pickle=False)
    return inspect_snapshot(stored, lambda handle: read_state(run.storage, handle), trusted)


def coordinator_of(run: Run, codec: ValueCodec | None = None) -> CoordinatorSummary:
    (operator,) = summary_of(run, codec).operators
    assert operator.coordinator is not None
    return operator.coordinator


def test_coordinators_and_master_hooks_are_told_and_all_sizes_add_up() -> None:
    run = Run(Hooked(CollectionSource(range(6)), Hook()), parallelism=3).begin()
    run.ask(READ, 1)
    summary = summary_of(run)
    (read,) = summary.operators
    assert read.coordinator is not None
    assert (read.coordinator.unassigned, read.coordinator.values) == (2, ("(2, 4)", "(4, 6)"))
    codec = ValueCodec()
    assert read.coordinator.size == len(codec.dumps((codec.dumps((True, [(2, 4), (4, 6)])), [])))
    assert summary.masters == (MasterSummary("outside", len(ValueCodec().dumps({"offset": 1}))),)
    assert read.size == read.coordinator.size
    assert summary.size == read.size + summary.masters[0].size
    told = json.loads(json.dumps(summary.to_dict()))
    assert told["operators"][0]["coordinator"]["values"] == ["(2, 4)", "(4, 6)"]
    assert told["masters"] == [{"identifier": "outside", "size": summary.masters[0].size}]


def test_a_source_whose_splits_are_all_handed_out_has_none_left() -> None:
    run = Run(OnRequest(CollectionSource(range(4)))).begin()
    run.ask(READ, 1)
    held = coordinator_of(run)
    assert (held.unassigned, held.values) == (0, ())
    assert held.size > 0


def test_splits_that_would_have_to_be_unpickled_are_bytes_unless_that_is_allowed() -> None:
    run = Run(OnRequest(Pages(Page(), Page()))).begin()
    held = coordinator_of(run)
    assert held.unassigned is None
    assert held.values == (f"{held.size} bytes of a type that this program does not know",)
    trusted = coordinator_of(run, ValueCodec())
    assert (trusted.unassigned, trusted.values) == (2, ("a page", "a page"))


def test_of_many_splits_the_first_are_shown_and_all_are_counted() -> None:
    held = coordinator_of(Run(OnRequest(Pages(*range(MOST_VALUES + 5)))).begin())
    assert held.unassigned == MOST_VALUES + 5
    assert held.values == tuple(map(str, range(MOST_VALUES)))


def test_a_split_with_a_long_text_is_cut() -> None:
    (text,) = coordinator_of(Run(OnRequest(Pages("x" * 900))).begin()).values
    assert text == "'" + "x" * 199 + "..."


def test_the_state_of_another_enumerator_is_shown_as_it_is() -> None:
    held = coordinator_of(Run(Offsets(Pages(1, 2))).begin())
    assert (held.unassigned, held.values) == (None, ("{'offset': 7}",))
