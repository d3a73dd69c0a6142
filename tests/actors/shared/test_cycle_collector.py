"""Python's cycle collector in a process that processes batches."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.actors.shared.system_ports import collect_what_has_ended, spare_loaded_modules


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
