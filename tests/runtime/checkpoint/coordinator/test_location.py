"""Before a checkpoint starts, its place is written and its id is taken, once for all attempts."""

import pytest
from manual_work import ManualAsyncRunner
from memory_storages import MemoryPlaces

from penstock.runtime.checkpoint.coordinator.location import SavepointTargets, SnapshotLocation, WriteProbe
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.errors import StorageError
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

PATHS = SnapshotPaths("job")


class Watched(MemoryStorage):
    """Remembers what was written; may refuse, with or without having written."""

    def __init__(self, url="memory:"):
        super().__init__(url)
        self.written, self.refuses, self.writes_all_the_same, self.keeps = [], False, False, False

    def put(self, path, data, *, create=False):
        self.written.append(path)
        if not self.refuses or self.writes_all_the_same:
            super().put(path, data, create=create)
        if self.refuses:
            raise StorageError(f"can't write {self.url}/{path}: the disk is full")

    def delete(self, paths):
        if self.keeps:
            raise StorageError("nothing can be deleted")
        super().delete(paths)


class WatchedPlaces(MemoryPlaces):
    def __call__(self, url, *, create=False):
        if create and url not in self.storages:
            self.storages[url] = Watched(url)
        return super().__call__(url, create=create)


class JobMaster:
    """The attempt that one JobMaster writes to the log, and its look at the ids that are there."""

    def __init__(self, storage):
        self.log = DecisionLog(storage, PATHS)
        self.attempt = self.log.begin_attempt(1.0).attempt
        self.next_id = 1 + max(map(PATHS.assigned_id_of, storage.list(PATHS.assigned_ids)), default=0)
        self.place = SnapshotLocation(storage, PATHS, self.log.newer_attempt)

    def take(self):
        given = self.place.prepare(self.next_id, self.attempt)
        self.next_id = given + 1
        return given


def alone(storage, places=None):
    return SnapshotLocation(storage, PATHS, lambda: None, places)


# -- ids ----------------------------------------------------------------------------------------------------


def test_the_storage_of_the_job_keeps_the_newest_id_and_nothing_else():
    storage = Watched()
    place = alone(storage)
    assert place.prepare(7, 2) == 7
    assert storage.list("") == ["job/ids/7"]
    assert place.prepare(8, 2) == 8
    assert storage.list("") == ["job/ids/8"]
    assert PATHS.assigned_id_of("job/ids/8") == 8
    assert [PATHS.assigned_id_of(path) for path in ("job/ids/x", "job/chk-8-2/metadata", "else/ids/8")] == [
        None
    ] * 3


def test_an_id_that_can_not_be_deleted_stops_nothing():
    storage = Watched()
    place = alone(storage)
    place.prepare(7, 2)
    storage.keeps = True
    place.prepare(8, 2)
    assert storage.list("") == ["job/ids/7", "job/ids/8"]


@pytest.mark.parametrize("all_the_same", [False, True])
def test_an_attempt_whose_write_had_no_answer_takes_the_same_id_again(all_the_same):
    storage = Watched()
    storage.refuses, storage.writes_all_the_same = True, all_the_same
    with pytest.raises(StorageError, match=r"memory:/job/ids/7: the disk is full"):
        alone(storage).prepare(7, 2)
    storage.refuses = False
    assert alone(storage).prepare(7, 2) == 7
    assert storage.list("") == ["job/ids/7"]


def test_an_attempt_goes_past_the_ids_of_older_ones_and_removes_their_files():
    storage = Watched()
    for left in (6, 7, 8):
        alone(storage).prepare(left, 1)
    storage.put("job/ids/9", b"not a word of Penstock")
    assert alone(storage).prepare(8, 2) == 10
    assert storage.list("") == ["job/ids/10"]


def test_id_whose_file_is_deleted_before_its_attempt_is_read_is_not_given_again():
    class Deleted(Watched):
        def get(self, path):
            super().delete([path])
            return super().get(path)

    storage = Deleted()
    alone(storage).prepare(7, 1)
    assert alone(storage).prepare(7, 2) == 8


def test_an_attempt_takes_no_id_of_a_newer_one_and_leaves_its_file_alone():
    storage = Watched()
    alone(storage).prepare(7, 3)
    with pytest.raises(StorageError, match=r"memory:/job/ids/7 .*attempt 3 of the job has begun"):
        alone(storage).prepare(7, 2)
    assert alone(storage).prepare(7, 3) == 7, "it still is that of the newer one"


def test_a_job_master_that_was_replaced_gives_no_id_of_its_successor_though_its_file_is_gone():
    storage = Watched()
    old = JobMaster(storage)
    assert [old.take(), old.take()] == [1, 2]
    new = JobMaster(storage)
    assert [new.take(), new.take()] == [3, 4]
    assert storage.list(PATHS.assigned_ids) == ["job/ids/4"], "3, which the old one wants next, is gone"
    with pytest.raises(StorageError, match="attempt 2 of the job has begun"):
        old.take()
    assert "job/ids/4" in storage.list(PATHS.assigned_ids)
    assert new.take() == 5
    assert JobMaster(storage).take() == 6


def test_an_id_that_was_written_behind_the_look_of_a_successor_is_given_by_neither_of_both_twice():
    """The successor looks at the ids before the old JobMaster writes one, and asks for that one after it."""
    storage = Watched()
    old = JobMaster(storage)
    new = JobMaster(storage)
    assert old.next_id == new.next_id == 1
    with pytest.raises(StorageError, match="attempt 2 of the job has begun"):
        old.take()
    assert new.take() == 2


def test_records_that_an_attempt_writes_itself_end_nothing():
    storage = Watched()
    master = JobMaster(storage)
    master.log.drop((), 2.0)
    beside = DecisionLog(storage, PATHS)
    assert master.take() == 1
    assert master.log.newer_attempt() is None
    beside.begin_attempt(3.0)
    assert master.log.newer_attempt() == 2


# -- folders of users ---------------------------------------------------------------------------------------


def test_a_savepoint_elsewhere_is_tried_in_the_folder_that_the_user_has_named():
    storage, places = Watched(), WatchedPlaces()
    alone(storage, places).try_target("/saved")
    [(url, place)] = places.storages.items()
    assert (url, len(place.written)) == ("/saved", 1)
    assert place.list("") == []
    assert storage.list("") == [], "no id is taken before the folder is tried"


def test_a_file_that_a_dying_job_master_has_left_is_removed_by_the_next_savepoint():
    class Died(BaseException):
        pass

    class DiesBehindThePut(Watched):
        def put(self, path, data, *, create=False):
            super().put(path, data, create=create)
            self.keeps = True  # a dead process deletes nothing
            raise Died

    places = WatchedPlaces()
    place = places.storages["/saved"] = DiesBehindThePut("/saved")
    with pytest.raises(Died):
        alone(Watched(), places).try_target("/saved")
    [left] = place.list("")
    healthy = places.storages["/saved"] = Watched("/saved")
    healthy.put(left, place.get(left))
    SnapshotLocation(Watched(), SnapshotPaths("another"), lambda: None, places).try_target("/saved")
    assert healthy.list("") == []


def test_a_folder_in_which_nothing_may_be_deleted_is_not_refused():
    places = WatchedPlaces()
    places("/saved", create=True).keeps = True
    for _ in range(2):
        alone(Watched(), places).try_target("/saved")
    assert places("/saved").list("") == [".penstock-trial"]


def test_two_savepoints_at_a_time_do_not_disturb_each_other():
    places = WatchedPlaces()

    class Interrupted(Watched):
        def delete(self, paths):
            if len(self.written) == 1:
                alone(Watched(), places).try_target("/saved")
            super().delete(paths)

    place = places.storages["/saved"] = Interrupted("/saved")
    alone(Watched(), places).try_target("/saved")
    assert len(place.written) == 2
    assert place.list("") == []


def test_a_folder_that_nobody_can_open_is_named():
    with pytest.raises(StorageError, match="/saved"):
        alone(MemoryStorage()).try_target("/saved")


@pytest.mark.parametrize("all_the_same", [False, True])
def test_a_folder_that_refuses_is_named_and_keeps_nothing(all_the_same):
    places = WatchedPlaces()
    place = places("/saved", create=True)
    place.refuses, place.writes_all_the_same = True, all_the_same
    with pytest.raises(StorageError, match=r"/saved/\.penstock-trial: the disk is full"):
        alone(Watched(), places).try_target("/saved")
    assert place.list("") == []


# -- trials in the background -------------------------------------------------------------------------------


class Trials:
    """Targets of savepoints whose trials are moved by the test, and what their requests hear."""

    def __init__(self, error=None):
        self.runner, self.timers = ManualAsyncRunner(), ManualTimers(ManualClock())
        self.targets = SavepointTargets(self.try_target, self.runner, self.timers, timeout=60)
        self.error, self.said = error, []

    def try_target(self, target):
        if self.error is not None:
            raise self.error

    def request(self, name):
        self.targets.request(
            "/saved",
            lambda: self.said.append(name),
            lambda cause: self.said.append(f"{name}: {cause}"),
            lambda reason, detail: self.said.append(f"{name}: {reason.value} {detail}"),
        )


def test_requests_for_one_target_go_on_in_the_order_in_which_they_came():
    trials = Trials()
    for name in ("first", "second", "third"):
        trials.request(name)
    assert trials.runner.run_all() == 1
    assert trials.said == ["first", "second", "third"]


def test_requests_for_one_target_are_refused_in_the_order_in_which_they_came():
    trials = Trials(StorageError("read-only"))
    for name in ("first", "second"):
        trials.request(name)
    trials.runner.run_all()
    assert trials.said == ["first: read-only", "second: read-only"]


def test_requests_for_one_target_are_withdrawn_in_the_order_in_which_they_came():
    trials = Trials()
    for name in ("first", "second"):
        trials.request(name)
    trials.targets.withdraw_all(Reason.JOB_FAILURE, "killed")
    trials.runner.run_all()
    assert trials.said == ["first: job_failure killed", "second: job_failure killed"]


def test_trial_that_begins_while_another_runs_is_an_error():
    probe = WriteProbe(ManualAsyncRunner(), ManualTimers(ManualClock()), 60)
    probe.begin(lambda: None, "/saved", print, print)
    with pytest.raises(RuntimeError, match="a trial of /other can't begin"):
        probe.begin(lambda: None, "/other", print, print)
