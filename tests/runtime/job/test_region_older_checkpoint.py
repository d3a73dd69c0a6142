"""A region whose newest checkpoint is damaged does not start from an older one: the whole job does.

Subtasks elsewhere have finished with the damaged checkpoint, and the coordinators of the region's sources
have forgotten what it covers. A region alone lost records and kept old state of finished subtasks.
"""

from __future__ import annotations

from region_setup import A_READ, A_WRITE, B_READ, B_WRITE, A, Run

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import CheckpointCompleted
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths

PATHS = SnapshotPaths("job")


def with_two_checkpoints(*, allow_older: bool = True) -> Run:
    """A job that has completed checkpoints 1 and 2 and may restart once."""
    checkpointing = Checkpointing(every=10, retain=2, allow_older=allow_older)
    run = Run(checkpointing=checkpointing, restart=FixedDelay(1, 1)).start()
    assert (run.checkpoint(), run.checkpoint()) == (1, 2)
    run.cluster.take()
    return run


def lose_metadata(run: Run) -> None:
    newest = run.scheduler.latest_completed
    assert newest is not None
    assert newest.metadata is not None
    run.storage.delete([newest.metadata.path])


def damage_the_record(run: Run) -> None:
    reader = DecisionLogReader(run.storage, PATHS)
    (slot,) = (
        slot
        for slot in range(reader.replay().next_slot)
        if isinstance(record := reader.read(slot), CheckpointCompleted) and record.checkpoint_id == 2
    )
    path = PATHS.log_slot(slot)
    data = bytearray(run.storage.get(path))
    data[len(data) // 2] ^= 1
    run.storage.put(path, bytes(data))


def restart_all(run: Run) -> None:
    """The whole job was stopped, waits for nothing, and is deployed."""
    assert run.state is JobState.FAILING
    assert run.cluster.take()[-1] == ("stop", run.scheduler.attempt, "all")
    run.cluster.stopped()
    run.timers.advance(0)
    run.runner.run_all()


def test_the_whole_job_starts_from_the_older_checkpoint() -> None:
    run = with_two_checkpoints()
    lose_metadata(run)
    run.fail()
    run.until_deployed()
    restart_all(run)
    assert run.cluster.take() == [("deploy", 3, "all", 1)]
    warning = run.scheduler.statistics().warning or ""
    assert warning.startswith("the job starts from checkpoint 1, because newer state is damaged")


def test_that_is_one_failure_and_one_restart() -> None:
    run = with_two_checkpoints()
    lose_metadata(run)
    run.fail()
    run.until_deployed()
    restart_all(run)
    status = run.scheduler.statistics()
    assert status.restarts == 1
    assert [str(failure.root) for failure in status.failures] == ["a-write[0]: division by zero"]


def test_who_had_finished_with_the_damaged_checkpoint_is_started_again() -> None:
    run = with_two_checkpoints()
    for subtask in (B_READ, B_WRITE):
        run.scheduler.on_subtask_finished(1, subtask)
    lose_metadata(run)
    run.fail()
    run.until_deployed()
    restart_all(run)
    run.come_up()
    run.scheduler.trigger_checkpoint()
    triggered: set[SubtaskId] = {
        who for said in run.cluster.take() if said[0] == "trigger" for who in said[2]
    }
    assert triggered == {A_READ, B_READ}


def test_so_it_is_when_the_record_of_the_newest_checkpoint_is_damaged() -> None:
    run = with_two_checkpoints()
    damage_the_record(run)
    run.fail()
    run.until_deployed()
    restart_all(run)
    (deployed,) = run.cluster.take()
    assert (deployed[0], deployed[2:]) == ("deploy", ("all", 1))
    assert "without damaged records of its decision log" in (run.scheduler.statistics().warning or "")


def test_a_cancel_meanwhile_is_not_forgotten() -> None:
    run = with_two_checkpoints()
    lose_metadata(run)
    run.fail()
    run.cluster.stopped()
    run.timers.advance(1)
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.state is JobState.CANCELLING


def test_the_job_fails_where_older_checkpoints_are_not_allowed() -> None:
    run = with_two_checkpoints(allow_older=False)
    lose_metadata(run)
    run.fail()
    run.until_deployed()
    restart_all(run)
    assert run.state is JobState.FAILED


def test_a_region_starts_from_the_newest_checkpoint_although_an_older_one_is_damaged() -> None:
    run = with_two_checkpoints()
    run.storage.delete(
        [record.metadata.path for record in DecisionLogReader(run.storage, PATHS).replay().completed[:1]]
    )
    run.fail(A_WRITE)
    run.until_deployed()
    assert run.cluster.take()[-1] == ("deploy", 2, A, 2)
