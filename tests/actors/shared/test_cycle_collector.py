"""Python's cycle collector in a process that processes batches."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.actors.shared.cycle_collector import (
    FullCollections,
    collect_what_has_ended,
    spare_loaded_modules,
)


class Node:
    """An object that can refer to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    before, was_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    if was_frozen:
        gc.freeze()


def test_existing_objects_are_not_walked_and_later_cycles_are_collected() -> None:
    old = Node()
    spare_loaded_modules()
    new = weakref.ref(Node())

    assert not any(each is old for each in gc.get_objects())
    assert new() is not None
    collect_what_has_ended()
    assert new() is None
    assert not any(each is old for each in gc.get_objects()), "a collection leaves alone what was spared"


def test_a_new_process_does_not_walk_what_it_has_loaded() -> None:
    before = gc.get_stats()[2]["collections"]

    spare_loaded_modules()

    assert gc.get_stats()[2]["collections"] == before


def test_a_batch_of_some_thousand_containers_causes_no_collection() -> None:
    spare_loaded_modules()
    before = gc.get_stats()[0]["collections"]
    for _ in range(20):
        batch = [(number, str(number)) for number in range(4096)]
        del batch

    assert gc.get_stats()[0]["collections"] == before


class TestFullCollections:
    """The counter of the younger collections is advanced by collecting generation 1."""

    @pytest.fixture(autouse=True)
    def _no_old_objects(self) -> None:
        spare_loaded_modules(collects_fully=False)
        gc.collect()

    def make_young_collections(self, count: int) -> None:
        for _ in range(count):
            gc.collect(1)

    def test_python_starts_none_by_itself(self) -> None:
        before = gc.get_stats()[2]["collections"]
        self.make_young_collections(101)
        kept = [[] for _ in range(500_000)]

        assert gc.get_stats()[2]["collections"] == before
        del kept

    @pytest.mark.parametrize(
        ("younger", "is_idle", "is_taking_checkpoint", "collects"),
        [
            (99, True, False, False),
            (100, True, False, True),
            (100, False, False, False),
            (100, True, True, False),
            (399, False, False, False),
            (400, False, False, True),
            (1599, True, True, False),
            (1600, False, True, True),
        ],
    )
    def test_one_is_made_when_it_is_due_and_late_ones_at_worse_times(
        self, younger: int, *, is_idle: bool, is_taking_checkpoint: bool, collects: bool
    ) -> None:
        collections = FullCollections()
        cycle = Node()
        seen = weakref.ref(cycle)
        gc.collect(1)
        gc.collect(1)  # now it is old
        del cycle
        self.make_young_collections(younger - gc.get_count()[2])
        assert seen() is not None

        collections.collect_if_due(is_idle=is_idle, is_taking_checkpoint=is_taking_checkpoint)

        assert (seen() is None) is collects

    def test_the_next_one_waits_for_twenty_times_as_long_as_it_took(self) -> None:
        times = iter([0.0, 1.0, 20.9, 21.0, 21.0])
        collections = FullCollections(lambda: next(times))

        def is_collected() -> bool:
            self.make_young_collections(100)
            before = gc.get_stats()[2]["collections"]
            collections.collect_if_due(is_idle=True, is_taking_checkpoint=False)
            return bool(gc.get_stats()[2]["collections"] > before)

        assert is_collected()
        assert not is_collected()
        assert is_collected()
