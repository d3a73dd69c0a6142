"""The JobMaster's report, made of the scheduler's view, the processes and the subtasks' counters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from penstock import JobStatus
from penstock.actors.master.job_reporter import JobReporter
from penstock.actors.shared.job_report import (
    NO_CHECKPOINTS,
    JobMasterProcess,
    JobReport,
    SubtaskProcess,
    Takeover,
)
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import AwaitedAcknowledgements
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.execution.processes import Counters
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState, RescaleRecord, SchedulerStatistics, Transition
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointMetrics,
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics

FIRST, SECOND = SubtaskId("count", 0), SubtaskId("count", 1)
HERE = JobMasterProcess(7, "node")
GRAPH = JobGraph("words", (JobVertex("count", (OperatorSpec("count", "reduce(add)", None),), 2),))
STARTED = Transition(JobState.CREATED, JobState.RUNNING, 1.0)
BROKEN = FailureRecord(1, 2.0, FailureCause("broken", FIRST, "Traceback ..."))
BOTH_RUN = {FIRST: SubtaskStatus.RUNNING, SECOND: SubtaskStatus.RUNNING}


class Scheduler:
    """Returns what the test has set."""

    def __init__(self, state: JobState = JobState.RUNNING, attempt: int = 1, **seen: Any) -> None:
        self.graph = GRAPH
        self.attempt = attempt
        self.newest: CheckpointDetails | Exception | None = None
        self.awaited: AwaitedAcknowledgements | None = None
        self.seen = SchedulerStatistics("j", "words", state, attempt, subtasks=BOTH_RUN, **seen)

    def attempt_of(self, subtask: SubtaskId) -> int:
        return self.attempt

    def awaited_acknowledgements(self) -> AwaitedAcknowledgements | None:
        return self.awaited

    def newest_checkpoint(self) -> CheckpointDetails | None:
        if isinstance(self.newest, Exception):
            raise self.newest
        return self.newest

    def statistics(self) -> SchedulerStatistics:
        return self.seen


def member(pid: int) -> SimpleNamespace:
    return SimpleNamespace(place=SimpleNamespace(pid=pid, node_id="node"))


def reporter(scheduler: Scheduler | None = None, earlier: JobReport | None = None) -> JobReporter:
    made = JobReporter("j", "words", 0.0, HERE)
    if earlier is not None:
        made.carry_on(earlier)
    made.describe(GRAPH, JobConfig())
    if scheduler is not None:
        fleet = SimpleNamespace(members={FIRST: member(12), SECOND: member(13)})
        made.observe(cast("Any", scheduler), cast("Any", fleet), cast("Any", SimpleNamespace(silent={})))
    return made


def counted(records: int) -> SubtaskStatistics:
    return SubtaskStatistics(records, 0, 0, 0, 0.0, 0.0, 0, 0, {"count": OperatorStatistics(records)})


def test_counters_are_kept_for_each_subtask_and_summed_for_each_operator() -> None:
    made = reporter(Scheduler())
    made.counted(FIRST, Counters(1, counted(3)))
    made.counted(SECOND, Counters(1, counted(4)))
    report = made.report()
    assert [(each.subtask, each.statistics) for each in report.subtasks] == [
        (FIRST, counted(3)),
        (SECOND, counted(4)),
    ]
    assert report.statistics.operators["count"].records_in == 7


def test_rates_are_over_the_last_reports_of_a_subtask_that_runs() -> None:
    made = reporter(Scheduler())
    made.counted(FIRST, Counters(1, replace(counted(10), at=100.0)))
    assert [each.rates for each in made.report().subtasks] == [None, None]
    made.counted(FIRST, Counters(1, replace(counted(40), at=102.0)))
    first, second = made.report().subtasks
    assert first.rates is not None
    assert (first.rates.records_in, first.rates.seconds) == (15.0, 2.0)
    assert (first.counted_at is None, second.counted_at, second.rates) == (False, None, None)
    assert made.report().vertices[0].records_in == 15.0


def test_a_subtask_that_has_finished_has_no_rates() -> None:
    scheduler = Scheduler()
    made = reporter(scheduler)
    for records, at in ((10, 100.0), (40, 102.0)):
        made.counted(FIRST, Counters(1, replace(counted(records), at=at)))
    scheduler.seen = replace(scheduler.seen, subtasks={FIRST: SubtaskStatus.FINISHED})
    (finished,) = made.report().subtasks
    assert finished.rates is None
    assert finished.statistics is not None


def checkpoint_of(*subtasks: SubtaskId, number: int) -> CheckpointDetails:
    measured = {each: CheckpointMetrics(full_bytes=100 * number + each.index) for each in subtasks}
    record = CheckpointRecord(number, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 1.0)
    return CheckpointDetails(record, measured)


def test_the_size_of_a_subtasks_state_is_that_in_the_newest_checkpoint() -> None:
    scheduler = Scheduler(checkpoints=CoordinatorStatistics(latest_completed_id=3))
    scheduler.newest = checkpoint_of(FIRST, SECOND, number=3)
    made = reporter(scheduler)
    assert [each.state_bytes for each in made.report().subtasks] == [300, 301]
    scheduler.newest = checkpoint_of(FIRST, SECOND, number=4)
    scheduler.seen = replace(scheduler.seen, checkpoints=CoordinatorStatistics(latest_completed_id=4))
    assert [each.state_bytes for each in made.report().subtasks] == [400, 401]


def test_sizes_of_another_parallelism_are_no_subtasks_size() -> None:
    scheduler = Scheduler(checkpoints=CoordinatorStatistics(latest_completed_id=3))
    scheduler.newest = checkpoint_of(FIRST, number=3)
    assert [each.state_bytes for each in reporter(scheduler).report().subtasks] == [None, None]


def test_sizes_that_can_not_be_read_are_a_warning() -> None:
    scheduler = Scheduler(checkpoints=CoordinatorStatistics(latest_completed_id=3))
    scheduler.newest = CorruptSnapshotError("the metadata is damaged")
    report = reporter(scheduler).report()
    assert [each.state_bytes for each in report.subtasks] == [None, None]
    assert "the metadata of checkpoint 3 can't be read: the metadata is damaged" in report.warnings


def slow(number: int, seconds: float) -> CheckpointDetails:
    details = checkpoint_of(FIRST, number=number)
    measured = {FIRST: CheckpointMetrics(async_duration=seconds)}
    return replace(details, record=replace(details.record, duration=seconds), subtasks=measured)


def test_a_checkpoint_that_took_long_has_a_reason_until_a_quick_one_follows() -> None:
    scheduler = Scheduler(checkpoints=CoordinatorStatistics(latest_completed_id=3))
    scheduler.newest = slow(3, 20.0)
    made = reporter(scheduler)
    assert str(made.report().slow_checkpoint) == (
        "Checkpoint 3 took 20 s: `count[0]` uploaded its state for 20 s (asynchronous part)."
    )
    scheduler.newest = slow(4, 0.5)
    scheduler.seen = replace(scheduler.seen, checkpoints=CoordinatorStatistics(latest_completed_id=4))
    assert made.report().slow_checkpoint is None


def test_a_running_checkpoint_is_named_once_it_takes_longer_than_the_last_one() -> None:
    scheduler = Scheduler(checkpoints=CoordinatorStatistics(latest_completed_id=3))
    scheduler.newest = slow(3, 20.0)
    made = reporter(scheduler)
    for seconds in (5.0, 15.0):
        scheduler.awaited = AwaitedAcknowledgements(4, seconds, frozenset({SECOND}))
        assert "Checkpoint 3" in str(made.report().slow_checkpoint), "its reason is measured"
    scheduler.awaited = AwaitedAcknowledgements(4, 25.0, frozenset({SECOND}))
    assert str(made.report().slow_checkpoint) == (
        "Checkpoint 4 has run for 25 s: `count[1]` has not acknowledged it."
    )


def test_counters_of_an_older_attempt_are_dropped() -> None:
    scheduler = Scheduler()
    made = reporter(scheduler)
    made.counted(FIRST, Counters(1, counted(3)))
    scheduler.attempt = 2
    made.counted(SECOND, Counters(1, counted(4)))
    report = made.report()
    assert [each.statistics for each in report.subtasks] == [None, None]
    assert report.statistics.operators == {}


def test_each_subtask_has_its_process_and_its_status() -> None:
    report = reporter(Scheduler()).report()
    assert report.processes == (SubtaskProcess(FIRST, 12, "node"), SubtaskProcess(SECOND, 13, "node"))
    assert [(each.attempt, each.status) for each in report.subtasks] == [(1, SubtaskStatus.RUNNING)] * 2
    assert report.master == HERE


def test_the_graph_is_that_of_the_current_parallelism() -> None:
    scheduler = Scheduler()
    made = reporter(scheduler)
    assert made.report().graph.vertices[0].parallelism == 2
    scheduler.graph = replace(GRAPH, vertices=(replace(GRAPH.vertices[0], parallelism=3),))
    assert made.report().graph.vertices[0].parallelism == 3


def test_a_failure_counts_as_current_only_while_the_job_suffers_from_it() -> None:
    restarting = reporter(Scheduler(JobState.RESTARTING, failures=(BROKEN,))).report()
    assert (restarting.status, restarting.failure) == (JobStatus.RESTARTING, BROKEN)
    running = reporter(Scheduler(JobState.RUNNING, failures=(BROKEN,))).report()
    assert (running.failure, running.failures) == (None, (BROKEN,))


def test_a_job_that_is_rescaled_has_no_failure() -> None:
    report = reporter(Scheduler(JobState.RESCALING)).report()
    assert (report.status, report.failure) == (JobStatus.RESTARTING, None)


def test_a_job_that_failed_under_an_earlier_job_master_has_the_cause_of_its_end() -> None:
    made = reporter(Scheduler(JobState.FAILED))
    made.ended("out of memory")
    failure = made.report().failure
    assert failure is not None
    assert failure.root.message == "out of memory"


def test_long_texts_of_failures_are_shortened() -> None:
    endless = replace(BROKEN, root=FailureCause("x" * 100_000, FIRST, "y" * 100_000))
    [failure] = reporter(Scheduler(failures=(endless,))).report().failures
    assert len(failure.root.message) + len(failure.root.traceback) < 11_000


def test_a_job_that_could_not_be_started_has_failed_with_the_error() -> None:
    made = reporter()
    made.failed_to_begin(ValueError("no such module"))
    report = made.report()
    assert report.status is JobStatus.FAILED
    assert report.failure is not None
    assert report.failure.root.message == "ValueError: no such module"


def test_a_new_job_master_goes_on_with_the_records_of_the_one_before() -> None:
    settled = RescaleRecord(1.0, 1, {"count": 1}, {"count": 2}, 1.5, 3)
    under_way = RescaleRecord(3.0, 1, {"count": 2}, {"count": 3})
    before = Scheduler(transitions=(STARTED,), failures=(BROKEN,), rescales=(settled, under_way))
    earlier = reporter(before).report()

    again = Transition(JobState.CREATED, JobState.DEPLOYING, 9.0)
    report = reporter(Scheduler(attempt=2, transitions=(again,)), earlier).report()

    first, takeover, last = report.history
    assert (first, last) == (STARTED, again)
    assert isinstance(takeover, Takeover)
    assert takeover.process == HERE
    assert report.failures == (BROKEN,)
    assert report.rescales[0] == settled
    assert report.rescales[1].ended_at is not None
    assert "the JobMaster died" in report.rescales[1].failure


def test_until_the_log_is_read_the_job_restarts_without_processes() -> None:
    earlier = reporter(Scheduler(transitions=(STARTED,))).report()
    made = JobReporter("j", "words", 0.0, HERE)
    made.carry_on(earlier)
    report = made.report()
    assert (report.status, report.processes, report.history) == (JobStatus.RESTARTING, (), (STARTED,))


def test_the_report_of_an_ended_job_stays_as_it_is() -> None:
    ended = replace(reporter(Scheduler(JobState.FINISHED)).report(), master=None)
    made = JobReporter("j", "words", 0.0, HERE)
    made.carry_on(ended)
    assert made.report() == replace(ended, master=HERE)


def test_a_job_without_checkpoints_is_warned_of_once() -> None:
    made = reporter(Scheduler(warning="take care"))
    made.report()
    assert made.report().warnings == (NO_CHECKPOINTS, "take care")


def test_a_report_has_the_last_checkpoints_and_a_few_failed_ones_and_savepoints_before_them() -> None:
    def taken(number: int) -> CheckpointRecord:
        status = CheckpointStatus.FAILED if number % 100 == 0 else CheckpointStatus.COMPLETED
        kind = SnapshotKind.SAVEPOINT if number % 150 == 1 else SnapshotKind.CHECKPOINT
        return CheckpointRecord(number, 1, kind, status, float(number), detail="why")

    history = tuple(map(taken, range(1, 1_001)))
    shown = [
        each.checkpoint_id
        for each in reporter(Scheduler(checkpoint_history=history)).report().checkpoint_history
    ]
    assert shown[-20:] == list(range(981, 1_001))
    assert shown[:-20] == [301, 451, 500, 600, 601, 700, 751, 800, 900, 901]
