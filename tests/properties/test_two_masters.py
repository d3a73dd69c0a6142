"""Several JobMasters of one job alive at once: only what the newest one writes counts.

An older one does not know that it is past. It works on: it triggers, collects, writes, restarts, ends the
job, each of its steps at any moment between steps of the others. Each has a scheduler, a coordinator and a
log of its own; the storage is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from manual_work import ManualAsyncRunner
from small_graphs import read_and_count

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import (
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import read_metadata, write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

SUBTASKS = (SubtaskId("read", 0), SubtaskId("count", 0))
PATHS = SnapshotPaths("job")
MOST_MASTERS = 3

EVENTS = st.tuples(
    st.integers(0, MOST_MASTERS - 1),
    st.sampled_from(
        [
            *["checkpoint", "acknowledge", "acknowledge", "work", "work", "work"],
            *["everything", "everything", "another", "fail", "delay", "finish", "cancel"],
            *["whole_checkpoint", "whole_checkpoint", "whole_checkpoint"],
        ]
    ),
)


class Master:
    """One JobMaster; what it asks of subtasks is answered when `do` says so."""

    def __init__(self, job: Job) -> None:
        self.job = job
        clock = ManualClock()
        self.timers = ManualTimers(clock)
        self.runner = ManualAsyncRunner()
        config = JobConfig(
            checkpointing=Checkpointing(every=500, keep_after="always", retain=2), restart=FixedDelay(50, 1)
        )
        gateway: Any = self
        self.scheduler = JobScheduler(
            "job",
            CurrentGraph(read_and_count(reads=1)),
            config,
            gateway,
            job.storage,
            clock,
            self.timers,
            self.runner,
        )
        self.asked: list[Callable[[], None]] = []
        self.newest = 0
        self.is_fenced = False
        self.scheduler.start()

    # -- the gateway ----------------------------------------------------------------------------------------

    def deploy(self, attempt: int, subtasks: Any, restore: Any) -> None:
        expected = self.job.log().completed
        if attempt == self.job.log().last_attempt:
            newest = expected[-1].checkpoint_id if expected else None
            assert (None if restore is None else restore.checkpoint_id) == newest, "it restores the newest"
        self.asked.append(lambda: self.scheduler.on_deployed(attempt))

    def start(self, attempt: int, subtasks: Any) -> None:
        self.asked.append(lambda: self.scheduler.on_started(attempt))

    def stop(self, attempt: int, subtasks: Any, stopped: Callable[[], None]) -> None:
        self.asked.append(stopped)

    def trigger_checkpoint(self, attempt: int, subtasks: Any, barrier: Any) -> None:
        self.newest = barrier.checkpoint_id

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Iterable[SubtaskId], checkpoint_id: int
    ) -> None:
        self.job.told(attempt, checkpoint_id)

    def notify_checkpoint_aborted(self, attempt: int, subtasks: Any, checkpoint_id: int) -> None:
        pass

    def job_ended(self, state: JobState, cause: str) -> None:
        self.job.ends.append(state)

    def fenced(self) -> None:
        assert not self.is_fenced, "said once"
        self.is_fenced = True

    # -- what happens ---------------------------------------------------------------------------------------

    def do(self, what: str) -> None:
        scheduler = self.scheduler
        match what:
            case "checkpoint":
                scheduler.trigger_checkpoint()
            case "acknowledge" if self.newest:
                for subtask in SUBTASKS:
                    self._acknowledge(subtask)
            case "whole_checkpoint":
                for step in ("everything", "checkpoint", "acknowledge", "work", "work"):
                    self.do(step)
            case "work":
                self.runner.run_next(0)
            case "everything":
                self._everything()
            case "fail":
                scheduler.on_subtask_failed(scheduler.attempt, SUBTASKS[0], FailureCause("it broke"))
            case "delay":
                self.timers.advance(1)
            case "finish":
                for subtask in SUBTASKS:
                    scheduler.on_subtask_finished(scheduler.attempt, subtask)
            case "cancel":
                scheduler.cancel()

    def _everything(self) -> None:
        for _ in range(4):
            while self.asked:
                self.asked.pop(0)()
            self.runner.run_all()
            self.timers.advance(1)

    def _acknowledge(self, subtask: SubtaskId) -> None:
        attempt = self.scheduler.attempt
        path = PATHS.shared_file(
            checkpoint_id=self.newest,
            attempt=attempt,
            operator_id=subtask.vertex,
            subtask=subtask.index,
            number=0,
        )
        file = write_state_file(self.job.storage, path, f"state of {attempt}".encode())
        handle = OperatorStateHandle("s", RedistributionMode.UNION, file, 1)
        snapshot = SubtaskSnapshot({subtask.vertex: OperatorSubtaskState(operator=(handle,))})
        self.scheduler.acknowledge(attempt, subtask, self.newest, snapshot, CheckpointMetrics())


class Job:
    """The storage that all masters share, and what may be in it."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.ends: list[JobState] = []
        self.complete: dict[int, int] = {}
        self.masters = [Master(self)]

    def log(self) -> Any:
        return DecisionLog(self.storage, PATHS).replay()

    def told(self, attempt: int, checkpoint_id: int) -> None:
        """Subtasks may commit: the record must stand, and be of the attempt that says so."""
        by_id = {record.checkpoint_id: record.attempt for record in self.log().completed}
        assert self.complete.setdefault(checkpoint_id, attempt) == attempt, "an id is complete once"
        assert by_id.get(checkpoint_id, attempt) == attempt
        assert checkpoint_id <= self.log().highest_checkpoint_id

    def check(self) -> None:
        """Every checkpoint of the log is whole, whichever process swept and deleted meanwhile."""
        for record in self.log().completed:
            checkpoint = read_metadata(self.storage, record.metadata)
            for handle in checkpoint.files():
                assert self.storage.get(handle.path), f"{handle.path} is gone"


@settings(deadline=None)
@given(st.lists(EVENTS, min_size=10, max_size=80))
def test_only_the_newest_masters_writes_count(events: list[tuple[int, str]]) -> None:
    job = Job()
    job.masters[0].do("everything")
    for who, what in events:
        if what == "another":
            if len(job.masters) < MOST_MASTERS:
                job.masters.append(Master(job))
        else:
            job.masters[who % len(job.masters)].do(what)
        job.check()
    for master in job.masters:
        for what in ("everything", "checkpoint", "acknowledge", "everything", "fail", "everything"):
            master.do(what)
            job.check()
    attempts = [master.scheduler.attempt for master in job.masters if not master.is_fenced]
    event(f"{len(job.masters)} masters, {sum(master.is_fenced for master in job.masters)} fenced")
    event(f"{len(job.complete)} checkpoints")
    assert max(attempts, default=0) >= job.log().last_attempt or job.log().ended is not None
    assert len(set(job.ends)) <= 1, "a job ends in one way"
