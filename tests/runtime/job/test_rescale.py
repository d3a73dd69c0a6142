"""Jobs that are brought to another parallelism while they run."""

from __future__ import annotations

import pytest
from small_graphs import read_and_count
from stop_setup import COUNT, READ, Run

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointFailed,
)
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState, RescaleRefused, RescaleStarted
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.paths import SnapshotPaths


def test_a_job_is_rescaled_and_comes_back_so_also_with_another_job_master() -> None:
    run = Run().start().rescale(count=3)
    assert (run.state, run.rescaled) == (JobState.RESCALING, [])
    run.acknowledge()
    assert run.cluster.take()[-1:] == ["stop 1"]
    run.all_stopped()
    assert run.rescaled == [RescaleStarted(1)]
    assert run.parallelism() == {"read": 1, "count": 3}
    run.come_up()
    assert run.state is JobState.RUNNING
    assert run.cluster.restored[-1].checkpoint_id == 1
    assert len(run.scheduler.statistics().subtasks) == 4
    again = Run(run.storage, run.places).start()
    assert again.parallelism() == {"read": 1, "count": 3}
    assert not again.scheduler.statistics().failures
    log = DecisionLog(run.storage, SnapshotPaths("job"), compact_every=2)
    log.begin_attempt(0.0)
    log.drop((99,), 0.0)
    assert log.replay().parallelism == (("count", 3),)


def test_an_unaligned_job_is_rescaled_from_an_unaligned_checkpoint_where_in_flight_data_fits() -> None:
    run = Run(unaligned=True).start().rescale(count=3)
    assert run.cluster.barriers[-1].options.unaligned


def test_a_rebalance_that_becomes_forward_again_is_rescaled_from_an_aligned_checkpoint() -> None:
    one_to_one = read_and_count(1, 1, Partitioner(Partitioning.FORWARD))
    run = Run(unaligned=True, submitted=one_to_one).start().rescale(count=3)
    assert run.cluster.barriers[-1].options.unaligned
    run.acknowledge()
    run.all_stopped()
    run.come_up().rescale(count=1)
    assert not run.cluster.barriers[-1].options.may_overtake


def test_a_job_goes_on_as_it_was_when_its_checkpoint_for_rescaling_fails() -> None:
    run = Run().start().rescale(count=3)
    run.scheduler.decline(1, COUNT, 1, Reason.CHECKPOINT_DECLINED, "no room")
    assert isinstance(run.rescaled[0], RescaleRefused)
    assert "no room" in run.rescaled[0].why
    assert run.state is JobState.RUNNING
    run.timers.advance(10)
    run.acknowledge()
    assert run.scheduler.latest_completed is not None


def test_a_job_that_fails_while_it_is_rescaled_restarts_as_it_was() -> None:
    run = Run().start().rescale(count=3)
    run.scheduler.on_subtask_failed(1, READ, FailureCause("out of memory"))
    assert isinstance(run.rescaled[0], RescaleRefused)
    run.all_stopped()
    run.timers.advance(0)
    run.come_up()
    assert (run.state, run.parallelism()) == (JobState.RUNNING, {"read": 1, "count": 1})


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"cuont": 2}, "no operator 'cuont'"),
        ({"count": 0}, "at least 1, not 0"),
        ({"count": 1000}, "max_parallelism 128"),
        ({}, "nothing to rescale"),
    ],
)
def test_a_parallelism_that_can_not_be_is_refused(wanted: dict[str, int], why: str) -> None:
    run = Run().start().rescale(**wanted)
    assert isinstance(run.rescaled[0], RescaleRefused)
    assert why in run.rescaled[0].why
    assert run.state is JobState.RUNNING


def test_a_job_that_does_not_run_is_neither_stopped_nor_rescaled() -> None:
    run = Run()
    run.scheduler.start()
    run.stop().rescale(count=2)
    assert isinstance(run.answers[0], CheckpointFailed)
    assert isinstance(run.rescaled[0], RescaleRefused)
    assert "it is deploying" in run.answers[0].detail
    assert "it is deploying" in run.rescaled[0].why


def test_each_rescale_is_remembered_with_what_became_of_it() -> None:
    run = Run().start().rescale(count=3)
    [under_way] = run.scheduler.statistics().rescales
    assert (under_way.before, under_way.after, under_way.attempt) == ({"count": 1}, {"count": 3}, 1)
    assert (under_way.ended_at, under_way.checkpoint_id, under_way.failure) == (None, None, "")

    run.acknowledge()
    run.all_stopped()
    [done] = run.scheduler.statistics().rescales
    assert (done.ended_at is not None, done.checkpoint_id, done.failure) == (True, 1, "")

    run.come_up()
    run.rescale(count=2)
    run.scheduler.decline(2, COUNT, 2, Reason.CHECKPOINT_DECLINED, "no room")
    first, refused = run.scheduler.statistics().rescales
    assert first == done
    assert (refused.before, refused.after, refused.attempt) == ({"count": 3}, {"count": 2}, 2)
    assert (refused.ended_at is not None, refused.checkpoint_id) == (True, None)
    assert "no room" in refused.failure
