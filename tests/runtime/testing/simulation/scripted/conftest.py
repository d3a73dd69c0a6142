"""A job in the middle of its work, and places for its savepoints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from memory_storages import MemoryPlaces
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.storage import MemoryStorage

#: Tests import what they share from beside this file.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small state is in files, too."""
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 40)


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
