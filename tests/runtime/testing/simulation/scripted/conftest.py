"""A job in the middle of its work, and places for its savepoints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.snapshot import state_files
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.testing.memory_places import MemoryPlaces
from penstock.runtime.testing.simulation.scripted.scripted_job import ScriptedJob

#: Tests import what they share from beside this file.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small state is in files, too."""
    monkeypatch.setattr(state_files, "INLINE_LIMIT", 40)


@pytest.fixture
def target() -> InMemoryCollector:
    return InMemoryCollector()


@pytest.fixture
def places() -> MemoryPlaces:
    return MemoryPlaces()


@pytest.fixture
def running(target: InMemoryCollector, places: MemoryPlaces) -> ScriptedJob:
    """A job in the middle, with a checkpoint to build on."""
    from savepoint_jobs import CONFIG, counting

    job = ScriptedJob(counting(target), CONFIG, MemoryStorage(), 3, open_location=places)
    job.run(80)
    job.complete_checkpoint()
    job.run(20)
    assert not job.is_finished
    return job
