"""Counts the rows of state that an operator keeps."""

from __future__ import annotations

from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.harness_state import FilesInHandles


def rows_left(harness: OperatorHarness) -> int:
    """The entries of a savepoint: all rows are read for it, so that their number is no estimate."""
    backend = harness._backend
    assert backend is not None
    harness.snapshot()
    backend.start_anew()  # the heap counts removals, too, where older files hold what is removed
    harness._last_id += 1
    written = backend.snapshot(harness._last_id, -1, self_contained=True).finish(FilesInHandles())
    return written.entries
