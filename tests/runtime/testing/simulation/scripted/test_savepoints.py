"""Savepoints of a scripted job: complete, movable, and exactly once at another parallelism."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from memory_storages import MemoryPlaces
from savepoint_jobs import (
    CONFIG,
    COUNT,
    counting,
    expected,
    found_at,
    start,
    stop_with_savepoint,
)
from simulated_jobs.scripted_job import JobStuckError, ScriptedJob

from penstock.runtime.errors import StorageError
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.snapshot.storage import MemoryStorage

pytestmark = pytest.mark.usefixtures("small_files")


def state_files_in(job: ScriptedJob) -> set[str]:
    """Files of the job's storage but for the log and the metadata of snapshots."""
    return {p for p in job.storage.list("") if "/log/" not in p and not p.endswith("/metadata")}


def test_a_savepoint_is_whole_in_its_own_folder_and_can_be_moved(
    running: ScriptedJob, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    own = state_files_in(running)
    stop_with_savepoint(running, places, "/saved/one")
    assert state_files_in(running) <= own
    assert len(places("/saved/one").list("")) > 2
    running.storage.delete(running.storage.list(""))
    places.move("/saved/one", "/elsewhere")
    again = start(target, places, "/elsewhere")
    again.finish()
    assert Counter(target.rows()) == expected()


def test_a_stopped_job_has_committed_exactly_what_its_savepoint_covers(
    running: ScriptedJob, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    stop_with_savepoint(running, places, "/saved")
    saved, committed = found_at(places, "/saved"), Counter(target.rows())
    assert 0 < committed.total() < COUNT
    again = start(target, places, "/saved")
    again.run(10)
    assert Counter(target.rows()) == committed
    assert again.complete_checkpoint() > saved.checkpoint_id
    again.finish()
    assert Counter(target.rows()) == expected()


@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_a_job_starts_from_a_savepoint_at_another_parallelism(
    running: ScriptedJob, target: InMemoryCollector, places: MemoryPlaces, parallelism: int
) -> None:
    stop_with_savepoint(running, places, "/saved")
    again = start(target, places, "/saved", counting(target, parallelism))
    again.run(50)
    again.crash()
    again.finish()
    assert Counter(target.rows()) == expected()


def test_a_savepoint_on_the_way_changes_nothing_for_the_job(
    running: ScriptedJob, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    saved = running.take_savepoint("/saved")
    running.run(30)
    running.crash()
    running.complete_checkpoint()
    del places.storages[saved]  # the user's to delete
    running.run(30)
    running.crash()
    running.finish()
    assert Counter(target.rows()) == expected()


def test_a_place_that_takes_no_files_declines_the_savepoint_and_not_the_job(
    running: ScriptedJob, target: InMemoryCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(MemoryStorage):
        def put(self, path: str, data: bytes, *, create: bool = False) -> None:
            msg = "disk full"
            raise StorageError(msg)

    monkeypatch.setattr(MemoryPlaces, "__call__", lambda places, url, *, create=False: Full(url))
    before = running.newest
    with pytest.raises(JobStuckError, match="disk full"):
        running.take_savepoint("/full")
    assert running.newest == before
    running.finish()
    assert Counter(target.rows()) == expected()


@pytest.mark.parametrize("seed", range(12))
def test_stops_and_starts_at_any_moment_lose_nothing(seed: int, places: MemoryPlaces) -> None:
    """Stopped and started again and again, each time at another parallelism, drained now and then."""
    random, target = Random(seed), InMemoryCollector()
    job = ScriptedJob(
        counting(target), CONFIG, MemoryStorage(), random.randrange(1 << 32), open_location=places
    )
    for stop in range(3):
        job.run(random.randint(0, 120))
        if job.is_finished:
            break
        url = f"/saved/{stop}"
        stop_with_savepoint(job, places, url, drain=random.random() < 0.3)
        job = start(target, places, url, counting(target, random.randint(1, 4)))
    job.finish()
    assert Counter(target.rows()) == expected()
