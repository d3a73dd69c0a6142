"""Keyed state between two batches: it rests between slices, but never from looking at changes."""

from __future__ import annotations

import pytest

from penstock import ValueState
from penstock.runtime.operators.keyed_state_requests import MOST_ENTRIES, StateSweep
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state import dirty_entries
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.manual_time import ManualClock


class SlowClock(ManualClock):
    """Every look at it takes a tenth of a second."""

    def monotonic(self) -> float:
        self.advance(0.1)
        return super().monotonic()


def test_changes_are_looked_at_as_fast_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were there a rest behind each look, the next look would be at more, and rest longer."""
    monkeypatch.setattr(dirty_entries, "MAX_UNEXAMINED", 10)
    backend = HeapKeyedStateBackend(BackendSetup("op", 128, KeyGroupRange(0, 127), ValueCodec()))
    state, sweep = backend.bind(ValueState(tuple, name="s")), StateSweep(backend, SlowClock())
    table = backend.table("s")
    for batch in range(20):
        for number in range(11):
            backend.set_current_key((batch, number))
            state.update((batch, "x"))
        assert backend.is_examination_due
        assert sweep.due_at == 0
        sweep.run_if_due()
        assert not backend.is_examination_due
        assert table.changed.written == {}
    assert len(table.changed) == 20 * 11


def test_a_slice_that_took_long_is_followed_by_a_rest_that_is_longer() -> None:
    clock = SlowClock()
    backend = HeapKeyedStateBackend(BackendSetup("op", 128, KeyGroupRange(0, 127), ValueCodec(), clock=clock))
    state, sweep = backend.bind(ValueState(int, name="s", ttl=1)), StateSweep(backend, clock)
    for number in range(3 * MOST_ENTRIES):
        backend.set_current_key(number)
        state.update(number)
    clock.advance(10)

    sweep.run_if_due()
    left = len(backend.table("s").entries)
    sweep.run_if_due()

    assert left == 2 * MOST_ENTRIES
    assert len(backend.table("s").entries) == left
    assert sweep.due_at is not None
    clock.advance_to(sweep.due_at)
    sweep.run_if_due()
    assert len(backend.table("s").entries) == left - MOST_ENTRIES
