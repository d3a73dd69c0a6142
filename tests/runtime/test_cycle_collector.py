"""The cycle collector is off within a block, and only there."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from penstock.runtime.cycle_collector import without_collections


@pytest.fixture(autouse=True)
def restored_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


def test_nothing_is_collected_within_the_block_even_if_it_fails() -> None:
    gc.enable()
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), without_collections():
        _ = 1 / 0
    assert gc.isenabled()


def test_a_program_that_collects_nothing_stays_so() -> None:
    gc.disable()
    with without_collections():
        pass
    assert not gc.isenabled()
