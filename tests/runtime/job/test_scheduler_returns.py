"""JobMasters that come back, are replaced, or lose their storage for a while."""

import pytest
from scheduler_setup import ALL, READS, FlakyStorage, Run

from penstock.runtime.config.restart import ExponentialBackoff, FixedDelay, NoRestart
from penstock.runtime.errors import StorageError
from penstock.runtime.job.job_state import JobState
from penstock.runtime.testing.manual_time import ManualClock


def test_a_job_master_that_comes_back_goes_on_from_the_newest_checkpoint():
    first = Run().start()
    first.checkpoint()
    first.checkpoint()
    second = Run(storage=first.storage).start()
    assert second.cluster.restored == [2]
    status = second.scheduler.statistics()
    assert (status.attempt, status.restarts) == (2, 1)
    second.scheduler.trigger_checkpoint()
    assert second.cluster.barriers[-1].checkpoint_id == 3
    assert second.cluster.barriers[-1].confirmed_id == 2


def test_files_that_a_dead_job_master_left_behind_are_swept():
    first = Run().start()
    first.checkpoint()
    first.scheduler.trigger_checkpoint()
    first.acknowledge(2, READS)
    assert len([p for p in first.storage.list("job/shared/") if "/1-2-" in p]) == 2
    second = Run(storage=first.storage).start()
    second.runner.run_all()
    assert [p.removeprefix("job/shared/") for p in second.storage.list("job/shared/")] == [
        "1-1-count-0-0",
        "1-1-read-0-0",
        "1-1-read-1-0",
    ]


def test_an_id_is_never_given_twice_whatever_became_of_its_checkpoint():
    first = Run().start()
    first.checkpoint()
    first.scheduler.trigger_checkpoint()
    second = Run(storage=first.storage, restart=FixedDelay(5, 0)).start()
    second.scheduler.trigger_checkpoint()
    assert [barrier.checkpoint_id for barrier in first.cluster.barriers] == [1, 2]
    assert [barrier.checkpoint_id for barrier in second.cluster.barriers] == [3], "2 was being taken"
    third = Run(storage=first.storage, restart=FixedDelay(5, 0)).start()
    third.checkpoint()
    assert [barrier.checkpoint_id for barrier in third.cluster.barriers] == [4], "3 was not completed, either"
    assert third.storage.list("job/ids/") == ["job/ids/4"]
    third.scheduler.cancel()
    third.stopped()
    assert third.storage.list("job/ids/") == [], "nothing of them stays after the end"


@pytest.mark.parametrize("end", ["cancelled", "finished", "failed"])
def test_a_job_that_has_ended_does_not_begin_again(end):
    first = Run(restart=NoRestart()).start()
    if end == "cancelled":
        first.scheduler.cancel()
        first.stopped()
    elif end == "failed":
        first.fail()
        first.stopped()
    else:
        for subtask in ALL:
            first.scheduler.on_subtask_finished(1, subtask)
        first.runner.run_all()
    second = Run(storage=first.storage)
    second.scheduler.start()
    second.runner.run_all()
    assert second.state is JobState(end)
    [(said, state, cause)] = second.cluster.take()
    assert (said, state) == ("ended", JobState(end))
    assert ("division by zero" in cause) == (end == "failed")
    assert second.view().last_attempt == 1


@pytest.mark.parametrize("wanted", ["cancelled", "failed"])
def test_a_job_that_has_ended_keeps_its_end_although_it_is_cancelled_or_fails_before_that_is_read(wanted):
    first = Run().start()
    for subtask in ALL:
        first.scheduler.on_subtask_finished(1, subtask)
    first.runner.run_all()
    restart = FixedDelay(attempts=3, delay=1) if wanted == "cancelled" else NoRestart()
    second = Run(storage=first.storage, restart=restart)
    second.storage.down = True
    second.scheduler.start()
    second.runner.run_all()
    if wanted == "cancelled":
        assert second.state is JobState.RESTARTING
        second.scheduler.cancel()
    second.storage.down = False
    second.runner.run_all()
    while second.timers.fire_next():
        second.runner.run_all()
    assert second.state is JobState.FINISHED
    assert second.cluster.take() == [("ended", JobState.FINISHED, "")]
    assert second.view().ended.state == "finished"


def test_the_deaths_of_job_masters_count_as_restarts():
    storage = FlakyStorage()
    for _ in range(3):
        run = Run(storage=storage, restart=FixedDelay(attempts=2)).start()
    last = Run(storage=storage, restart=FixedDelay(attempts=2))
    last.scheduler.start()
    last.runner.run_all()
    assert (run.scheduler.attempt, last.state) == (3, JobState.FAILED)
    assert [said[0] for said in last.cluster.take()] == ["ended"]
    assert "attempt 4 is one too many" in last.scheduler.statistics().cause


def test_a_job_master_that_dies_in_a_loop_waits_longer_each_time_before_it_deploys():
    storage, clock = FlakyStorage(), ManualClock()
    config = ExponentialBackoff(initial=4, maximum=60, jitter=0)
    waits = []
    for _ in range(4):
        run = Run(storage=storage, restart=config, clock=clock)
        run.scheduler.start()
        run.runner.run_all()
        waits.append(sum(timer.due - clock.monotonic() for timer in run.timers.pending))
        if waits[-1]:
            assert run.cluster.take() == []
            run.timers.fire_next()
        assert run.cluster.take()[-1][0] == "deploy"
        clock.advance(2)
    assert waits == [0, 0, 4, 8]


def test_cancel_while_a_job_master_that_came_back_waits_stops_nothing():
    storage = FlakyStorage()
    for _ in range(3):
        run = Run(storage=storage, restart=ExponentialBackoff(initial=4, jitter=0))
        run.scheduler.start()
        run.runner.run_all()
    run.cluster.take()
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.state is JobState.CANCELLED
    assert run.cluster.take() == [("ended", JobState.CANCELLED, "")]
    assert run.timers.pending == ()


def test_a_scheduler_whose_job_was_taken_over_leaves_quietly():
    old = Run().start()
    old.scheduler.trigger_checkpoint()
    old.cluster.take()
    new = Run(storage=old.storage).start()
    new.checkpoint()
    old.acknowledge(1)
    files = old.storage.list("job/")
    old.runner.run_all()
    assert old.cluster.take() == [("fenced",)]
    assert old.scheduler.statistics().is_fenced
    old.scheduler.cancel()
    old.fail()
    old.timers.advance(10_000)
    old.runner.run_all()
    assert old.cluster.take() == []
    assert set(files) - set(old.storage.list("job/")) == set()
    assert new.view().last_attempt == 2


def test_a_failed_attempt_that_learns_of_its_successor_does_not_restart():
    old = Run(restart=FixedDelay(delay=0)).start()
    old.scheduler.trigger_checkpoint()
    old.acknowledge(1)
    old.fail()
    old.cluster.stopped()
    Run(storage=old.storage).start()
    old.cluster.take()
    old.runner.run_all()
    assert old.cluster.take() == [("fenced",)]
    assert old.state is JobState.FAILING
    assert old.timers.pending == ()


def test_a_restart_finds_out_that_the_job_was_taken_over():
    old = Run(restart=FixedDelay(delay=1)).start()
    old.fail()
    old.stopped()
    new = Run(storage=old.storage).start()
    old.cluster.take()
    old.timers.advance(1)
    old.runner.run_all()
    assert old.cluster.take() == [("fenced",)]
    assert new.view().last_attempt == 2


def test_the_end_of_a_job_that_was_taken_over_is_not_recorded():
    old = Run().start()
    new = Run(storage=old.storage).start()
    old.scheduler.cancel()
    old.cluster.take()
    old.stopped()
    assert old.cluster.take() == [("fenced",)]
    assert new.view().ended is None


def test_a_storage_that_is_away_at_the_start_is_a_failure_that_is_tried_again_but_not_for_ever():
    run = Run(restart=FixedDelay(attempts=2, delay=1))
    run.storage.down = True
    run.scheduler.start()
    for _ in range(2):
        run.runner.run_all()
        assert run.state is JobState.RESTARTING
        run.timers.advance(1)
    run.runner.run_all()
    while run.timers.fire_next():
        run.runner.run_all()
    assert run.state is JobState.FAILED
    [ended] = run.cluster.take()
    assert ended[1] is JobState.FAILED
    assert "the attempt could not begin: StorageError: no answer" in ended[2]


def test_a_storage_that_comes_back_lets_the_job_begin():
    run = Run(restart=FixedDelay(attempts=2, delay=1))
    run.storage.down = True
    run.scheduler.start()
    run.runner.run_all()
    run.storage.down = False
    run.timers.advance(1)
    run.come_up()
    assert run.scheduler.attempt == 1


def test_a_restart_whose_record_got_lost_is_not_taken_for_another_job_master():
    run = Run(restart=FixedDelay(attempts=5, delay=1)).start()
    run.checkpoint()
    run.fail()
    run.stopped()
    log_list, calls = run.storage.list, []

    def list_fails_after_the_record(prefix):
        if prefix == "job/shared/":
            calls.append(prefix)
            if len(calls) == 1:
                raise StorageError("no answer")
        return log_list(prefix)

    run.storage.list = list_fails_after_the_record
    run.timers.advance(1)
    run.runner.run_all()
    assert run.state is JobState.RESTARTING
    run.timers.advance(1)
    run.come_up()
    assert run.scheduler.attempt == 3


def test_the_end_is_recorded_as_soon_as_the_storage_is_back():
    run = Run().start()
    run.scheduler.cancel()
    run.storage.down = True
    run.stopped()
    assert run.state is JobState.CANCELLING
    run.storage.down = False
    run.timers.advance(1)
    run.runner.run_all()
    assert run.state is JobState.CANCELLED
    assert run.view().ended.state == "cancelled"


def test_a_job_ends_even_if_its_end_can_never_be_recorded_and_says_so():
    run = Run().start()
    run.scheduler.cancel()
    run.storage.down = True
    run.stopped()
    run.cluster.take()
    while run.timers.fire_next():
        run.runner.run_all()
    assert run.state is JobState.CANCELLED
    [(_, _, cause)] = run.cluster.take()
    assert cause.startswith("its end could not be recorded: OutcomeUnknownError")
