"""Storages of jobs on Ray, read by another version: log, checkpoints, savepoints, status.

Two jobs have failed once and were rescaled once, and their logs were compacted several times. One was
stopped, with a savepoint before that; the cluster of the other one died.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from driving import DATA, coordinator_state, copy_of, finish_job, list_state
from saved_jobs import committed, in_json
from saved_ray_job import cut_of, environment, expected_rows

from penstock import JobStatus
from penstock.actors.shared.archive import load_from_storage
from penstock.bridge.spark_source import BufferSplit
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun, JobEnded
from penstock.runtime.checkpoint.master_hooks import MasterHooks
from penstock.runtime.checkpoint.recovery import load_latest, open_snapshot, rebuild_store
from penstock.runtime.config.restart import RestartMemory
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit
from penstock.runtime.io.storage import open_location
from penstock.runtime.snapshot.paths import SnapshotPaths

VERSIONS = sorted(path.name for path in DATA.iterdir())


@dataclass(frozen=True)
class Taken:
    """Ids of checkpoints of the two jobs: they depend on how fast the cluster was."""

    savepoint: int
    end: int
    newest_of_abandoned: int


TAKEN = {"v0_2": Taken(20, 22, 19)}


@dataclass
class Left:
    """A copy of what a job has left."""

    folder: Path
    taken: Taken
    storage: Any = field(init=False)

    def __post_init__(self) -> None:
        self.storage = open_location(str(self.folder / "checkpoints"))
        (self.job,) = (path for path in (self.folder / "checkpoints").iterdir() if path.is_dir())
        self.paths = SnapshotPaths(self.job.name)
        self.log = DecisionLog(self.storage, self.paths)

    def finish_from(self, parallelism: int = 2) -> None:
        (self.folder / "go").touch()
        env = environment(self.folder, parallelism)
        finish_job(env, env.config, str(self.job))


@pytest.fixture(params=VERSIONS)
def stopped(request: pytest.FixtureRequest, tmp_path: Path) -> Left:
    return Left(copy_of(DATA / request.param / "ray-stopped", tmp_path), TAKEN[request.param])


@pytest.fixture(params=VERSIONS)
def abandoned(request: pytest.FixtureRequest, tmp_path: Path) -> Left:
    return Left(copy_of(DATA / request.param / "ray-abandoned", tmp_path), TAKEN[request.param])


# -- the log -------------------------------------------------------------------------------------------------


def test_the_log_of_a_job_that_has_ended_tells_its_end(stopped: Left) -> None:
    view = stopped.log.replay()
    assert view.ended is not None
    assert (view.ended.state, view.ended.cause, view.ended.attempt) == ("finished", None, 3)
    assert (view.last_attempt, view.parallelism, len(view.begun_slots)) == (3, (("counted", 3),), 3)
    assert view.compacted_at is not None
    assert view.newest is not None
    assert view.newest.checkpoint_id == view.highest_checkpoint_id == stopped.taken.end
    assert isinstance(stopped.log.begin_attempt(0.0), JobEnded)


def test_an_attempt_begins_behind_those_of_a_job_whose_cluster_died(abandoned: Left) -> None:
    view = abandoned.log.replay()
    assert (view.ended, view.last_attempt, len(view.begun_slots)) == (None, 3, 3)
    assert view.compacted_at is not None
    newest = abandoned.taken.newest_of_abandoned
    assert [record.checkpoint_id for record in view.completed] == [newest - 1, newest]
    begun = abandoned.log.begin_attempt(7.0)
    assert isinstance(begun, AttemptBegun)
    assert begun.age > 0, "what the job has lived in all its attempts"
    once = RestartMemory(restarts=1)
    assert replace(begun, age=0.0) == AttemptBegun(4, newest, 7.0, (("counted", 3),), restarts=once)


def test_a_new_attempt_finds_its_checkpoints_and_nothing_to_sweep(abandoned: Left) -> None:
    abandoned.log.begin_attempt(7.0)
    view = abandoned.log.view
    latest = load_latest(abandoned.storage, view, allow_older=False)
    assert latest is not None
    newest = abandoned.taken.newest_of_abandoned
    assert (latest.checkpoint.checkpoint_id, latest.damaged, latest.warning) == (newest, (), None)
    assert latest.checkpoint.statistics is not None
    rebuilt = rebuild_store(abandoned.storage, abandoned.paths, view, attempt=4, retained=2)
    assert (rebuilt.damaged, rebuilt.orphans) == ((), ())


# -- snapshots -----------------------------------------------------------------------------------------------


def test_a_job_goes_on_from_the_newest_checkpoint_of_a_cluster_that_died(abandoned: Left) -> None:
    opened = open_snapshot(str(abandoned.job), open_location)
    assert opened.checkpoint.checkpoint_id == abandoned.taken.newest_of_abandoned
    assert list_state(opened, "out", "committables")

    abandoned.finish_from()

    assert committed(abandoned.folder / "out") == in_json(expected_rows())


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_goes_on_from_the_savepoint_that_it_was_stopped_with(stopped: Left, parallelism: int) -> None:
    opened = open_snapshot(str(stopped.job), open_location)
    assert opened.checkpoint.checkpoint_id == stopped.taken.end
    before = committed(stopped.folder / "out")

    stopped.finish_from(parallelism)

    assert before < committed(stopped.folder / "out") == in_json(expected_rows())


def test_a_savepoint_in_a_folder_of_its_own_is_found_where_it_is_now(stopped: Left) -> None:
    (saved,) = (stopped.folder / "saved").iterdir()
    moved = saved.rename(stopped.folder / "elsewhere")
    opened = open_snapshot(str(moved), open_location)
    assert opened.checkpoint.checkpoint_id == stopped.taken.savepoint
    assert opened.checkpoint.location == str(moved)
    assert {type(split) for split in list_state(opened, "files", "splits")} == {FileSplit}
    is_listed, left = coordinator_state(opened, "files")
    assert is_listed
    assert {type(split) for split in left} == {FileSplit}


def test_a_master_hook_gets_the_state_back_that_it_gave(stopped: Left, abandoned: Left) -> None:
    for left in (stopped, abandoned):
        checkpoint = open_snapshot(str(left.job), open_location).checkpoint
        hooks, hook = MasterHooks(), Restored()
        hooks.add(hook)
        hooks.restore(checkpoint.checkpoint_id, checkpoint.master_states)
        assert hook.restored == (checkpoint.checkpoint_id, cut_of(checkpoint.checkpoint_id))


class Restored:
    """A hook that remembers what it was asked to restore."""

    identifier = "cuts"
    restored: Any = None

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float, answer: Any) -> None:
        raise AssertionError("nobody takes a checkpoint")

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        self.restored = checkpoint_id, state

    def reset(self) -> None:
        raise AssertionError("the job starts from a checkpoint")

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_shares_of_a_spark_source_stand_behind_a_micro_batch(version: str) -> None:
    opened = open_snapshot(str(DATA / version / "spark-stream" / "savepoint"), open_location)
    shares = list_state(opened, "rows", "splits")
    assert {type(share) for share in shares} == {BufferSplit}
    assert [(share.index, share.of, share.epoch, share.is_whole) for share in shares] == [
        (0, 2, 1, True),
        (1, 2, 1, True),
    ]
    assert sum(sum(share.rows.values()) for share in shares) == 1000


# -- the archived status -------------------------------------------------------------------------------------


def test_the_status_that_a_job_has_left_is_read(stopped: Left) -> None:
    report = load_from_storage(stopped.storage, stopped.job.name)
    assert (report.job_id, report.name, report.status) == (stopped.job.name, "kept", JobStatus.FINISHED)
    statistics = report.statistics
    assert (statistics.attempt, statistics.restarts, statistics.completed_checkpoints) == (
        3,
        1,
        stopped.taken.end,
    )
    assert {operator.id: operator.parallelism for operator in report.graph.operators} == {
        "files": 2,
        "fails-once": 2,
        "counted": 3,
        "out": 3,
    }
    assert [record.checkpoint_id for record in report.checkpoint_history] == list(
        range(3, stopped.taken.end + 1)
    )
    assert report.savepoint is not None
    assert report.savepoint.endswith(f"/savepoint-{stopped.taken.end}-3")
    assert len(report.failures) == 1
