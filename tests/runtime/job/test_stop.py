"""Jobs that are stopped with a savepoint, and jobs that start from one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from memory_storages import MemoryPlaces, RefusingStorage
from stop_setup import COUNT, READ, Run

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointFailed,
    CheckpointSucceeded,
)
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.errors import RestoreError, StorageError
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import (
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.metadata import read_state, write_state_file
from penstock.runtime.snapshot.storage import MemoryStorage


def test_a_job_is_stopped_with_a_savepoint_and_is_finished_when_everybody_has_left() -> None:
    run = Run().start().stop(drain=True)
    assert run.state is JobState.STOPPING
    barrier = run.cluster.barriers[-1]
    assert (barrier.options.kind, barrier.options.drain) == (SnapshotKind.SYNC_SAVEPOINT, True)
    run.timers.advance(30)
    assert len(run.cluster.barriers) == 1  # no periodic checkpoint any more
    run.acknowledge()
    assert isinstance(run.answers[0], CheckpointSucceeded)
    assert run.state is JobState.STOPPING
    run.leave()
    assert run.state is JobState.FINISHED
    assert run.scheduler.statistics().stopped_with == "memory:/job/savepoint-1-1"


def test_a_checkpoint_that_runs_gives_way_to_the_savepoint_of_a_stop() -> None:
    run = Run().start()
    run.timers.advance(10)
    run.stop()
    assert run.cluster.take()[-1:] == ["aborted 1"]
    assert run.acknowledge() == 2
    run.leave()
    assert run.state is JobState.FINISHED


def test_a_stop_whose_savepoint_fails_restarts_the_job_from_its_last_checkpoint() -> None:
    run = Run().start()
    run.timers.advance(10)
    first = run.acknowledge()
    run.stop(drain=True)
    run.scheduler.decline(1, COUNT, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    assert isinstance(run.answers[0], CheckpointFailed)
    assert "disk full" in run.answers[0].detail
    assert run.state is JobState.FAILING
    run.all_stopped()
    run.timers.advance(0)
    run.come_up()
    assert run.state is JobState.RUNNING
    assert run.cluster.restored[-1].checkpoint_id == first
    assert run.scheduler.statistics().stopped_with is None


def test_a_savepoint_that_a_leaving_subtask_breaks_is_taken_again() -> None:
    run = Run().start().stop()
    run.scheduler.on_subtask_finished(1, READ)
    assert (run.state, run.answers) == (JobState.STOPPING, [])
    run.timers.advance(1)
    assert [b.checkpoint_id for b in run.cluster.barriers] == [1, 2]
    run.scheduler.acknowledge(1, COUNT, 2, SubtaskSnapshot(), CheckpointMetrics())
    run.runner.run_all()
    run.leave()
    assert run.state is JobState.FINISHED


@pytest.mark.parametrize("who", ["a subtask", "the JobMaster"])
def test_a_job_whose_savepoint_is_complete_never_reads_again(who: str) -> None:
    """The restored job opens everything, so that sinks commit, starts nothing, and ends."""
    run = Run().start().stop()
    run.acknowledge()
    if who == "a subtask":
        run.scheduler.on_subtask_failed(1, COUNT, FailureCause("killed before its commit"))
        run.all_stopped()
        run.timers.advance(0)
        again = run
    else:
        again = Run(run.storage, run.places)
        again.scheduler.start()
    again.cluster.take()
    again.runner.run_all()
    assert again.cluster.take() == ["deploy 2"]
    assert again.cluster.restored[-1].kind is SnapshotKind.SYNC_SAVEPOINT
    again.scheduler.on_deployed(2)
    assert (again.state, again.cluster.take()) == (JobState.STOPPING, ["stop 2"])
    again.all_stopped()
    assert again.state is JobState.FINISHED
    assert again.scheduler.statistics().stopped_with == "memory:/job/savepoint-1-1"


def test_a_job_that_starts_from_the_savepoint_of_a_stop_runs() -> None:
    run = Run().start().stop(target="/saved")
    location = run.cluster.barriers[-1].options.location
    assert location == "/saved/savepoint-job-1-1"
    run.places(location, create=True)
    run.acknowledge()
    run.leave()
    assert open_snapshot(location, run.places).checkpoint.kind is SnapshotKind.SYNC_SAVEPOINT
    again = Run(MemoryStorage(), run.places, job_id="again", restore_from=location).start()
    assert again.state is JobState.RUNNING
    assert again.cluster.restored[0].location == location
    again.timers.advance(10)
    assert again.acknowledge() == 2  # ids go on behind the savepoint's
    again.scheduler.on_subtask_failed(1, READ, FailureCause("out of memory"))
    again.all_stopped()
    again.timers.advance(0)
    again.come_up()
    assert again.cluster.restored[-1].location is None  # now it has a checkpoint of its own


def test_a_job_whose_snapshot_is_not_there_fails_at_once() -> None:
    """No restart finds it, whatever the restart strategy says."""
    run = Run(restore_from="/saved/nothing")
    run.scheduler.start()
    run.runner.run_all()

    assert (run.state, run.scheduler.statistics().restarts) == (JobState.FAILED, 0)
    (failure,) = run.scheduler.statistics().failures
    assert failure.root.kind is FailureKind.SNAPSHOT
    assert "there is no snapshot at /saved/nothing: /saved/nothing is not a folder" in failure.root.message


def test_the_first_checkpoint_of_a_job_that_starts_from_a_savepoint_keeps_what_finished_subtasks_kept() -> (
    None
):
    """In files of its own: the savepoint may be deleted then."""
    first = Run().start()
    first.scheduler.take_savepoint("/saved", first.answers.append)
    location = first.cluster.barriers[-1].options.location
    file = write_state_file(first.places(location, create=True), "read-0-0", b"kept")
    kept = OperatorSubtaskState(operator=(OperatorStateHandle("all", RedistributionMode.UNION, file, 1),))
    first.scheduler.acknowledge(1, READ, 1, SubtaskSnapshot({"read": kept}, ended=True), CheckpointMetrics())
    first.scheduler.acknowledge(1, COUNT, 1, SubtaskSnapshot(), CheckpointMetrics())
    first.runner.run_all()

    second = Run(MemoryStorage(), first.places, job_id="again", restore_from=location).start()
    second.scheduler.on_subtask_finished(1, READ)
    second.timers.advance(10)
    second.scheduler.acknowledge(1, COUNT, 2, SubtaskSnapshot(), CheckpointMetrics())
    second.runner.run_all()
    del first.places.storages[location]

    third = Run(second.storage, first.places, job_id="again", restore_from=location).start()
    restored = third.cluster.restored[-1].operators["read"]
    (state,) = restored.subtasks[0].operator
    assert (restored.finished, read_state(third.storage, state.state)) == ({0}, b"kept")


def test_a_snapshot_that_is_not_there_fails_the_job_at_once() -> None:
    places = MemoryPlaces()
    places("/data/x", create=True)
    places("/data", create=True)
    run = Run(places=places, restore_from="/data/x")
    run.scheduler.start()
    run.runner.run_all()
    assert run.state is JobState.FAILED
    assert "there is no snapshot at /data/x" in run.scheduler.statistics().cause
    with pytest.raises(RestoreError):
        open_snapshot("/data/x", places)


def test_a_named_snapshot_that_turns_out_to_be_damaged_fails_the_job_whatever_older_ones_are_allowed() -> (
    None
):
    """It restarted for ever: no older snapshot can be taken for the one that its user has named."""
    run = Run().start().stop(target="/saved")
    location = run.cluster.barriers[-1].options.location
    run.places(location, create=True)
    run.acknowledge()
    run.leave()
    again = Run(MemoryStorage(), run.places, job_id="again", restore_from=location, allow_older=True).start()
    damage = FailureCause(f"{location}/x is damaged", recoverable=False, is_damage=True)
    again.scheduler.on_subtask_failed(1, READ, damage)
    again.all_stopped()
    again.runner.run_all()
    assert again.state is JobState.FAILED
    assert f"{location}/x is damaged" in again.scheduler.statistics().cause


def test_the_newest_checkpoint_of_a_job_is_found_by_its_folder() -> None:
    storage, places = MemoryStorage("/data"), MemoryPlaces()
    places.storages["/data"] = storage
    places("/data/job", create=True)
    run = Run(storage, places).start()
    run.timers.advance(10)
    run.acknowledge()
    found = open_snapshot("/data/job", places).checkpoint
    assert (found.checkpoint_id, found.location) == (1, "/data")
    assert open_snapshot("/data/job/chk-1-1/metadata", places).checkpoint == found


class MeanwhileStorage(MemoryStorage):
    """Something happens once, when the metadata of the first checkpoint is about to be read."""

    meanwhile: Callable[[], None] | None = None

    def get(self, path: str) -> bytes:
        if path.endswith("chk-1-1/metadata") and self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        return super().get(path)


def test_the_newest_checkpoint_is_found_also_when_the_job_takes_another_one_meanwhile() -> None:
    storage, places = MeanwhileStorage("/data"), MemoryPlaces()
    places.storages["/data"] = storage
    places("/data/job", create=True)
    run = Run(storage, places).start()
    run.timers.advance(10)
    run.acknowledge()

    def another() -> None:
        run.timers.advance(10)
        run.acknowledge()
        assert not storage.list("job/chk-1-1/"), "the first one is gone"

    storage.meanwhile = another
    assert open_snapshot("/data/job", places).checkpoint.checkpoint_id == 2


class NoPlaces(MemoryPlaces):
    """Folders that can't be opened."""

    def __call__(self, url: str, *, create: bool = False) -> MemoryStorage:
        msg = f"{url} can't be opened: it is read-only. Name a folder that may be written"
        raise StorageError(msg)


class ReadOnlyPlaces(MemoryPlaces):
    """Folders that can be opened and not be written."""

    def __call__(self, url: str, *, create: bool = False) -> MemoryStorage:
        if url not in self.storages:
            storage = self.storages[url] = RefusingStorage(url)
            storage.refuses = True
        return super().__call__(url, create=create)


@pytest.mark.parametrize("request_of", ["stop", "savepoint"])
@pytest.mark.parametrize(
    ("places", "why"),
    [
        (NoPlaces, "/saved can't be opened: it is read-only"),
        (ReadOnlyPlaces, "/saved/.penstock-trial: no answer"),
    ],
    ids=["it can't be opened", "it can be opened"],
)
def test_a_place_that_can_not_be_written_is_refused_before_any_barrier_and_the_job_goes_on(
    request_of: str, places: type[MemoryPlaces], why: str
) -> None:
    run = Run(places=places()).start()
    files = run.storage.list("")
    if request_of == "stop":
        run.stop(target="/saved")
    else:
        run.scheduler.take_savepoint("/saved", run.answers.append)
    [answer] = run.answers
    assert isinstance(answer, CheckpointFailed)
    assert (answer.reason, answer.checkpoint_id) == (Reason.TRIGGER_CHECKPOINT_FAILURE, None)
    assert why in answer.detail
    assert len(run.cluster.barriers) == 0
    assert run.storage.list("") == files, "nothing of it stays"
    assert run.state is JobState.RUNNING
    run.timers.advance(10)
    assert len(run.cluster.barriers) == 1, "periodic checkpoints go on"
