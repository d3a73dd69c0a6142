"""`RunningTask`: one attempt of one subtask in a simulated process; the counterpart of `Attempt` in an actor.

As in an actor, the task takes a step only if the last step left more to do, something arrived, or its timer
is due. So a missing wake-up shows up as a job without progress. The process may die before each external
effect: a frame, a report, a file, a commit. Earlier effects remain, and later ones never happen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.runtime.config.checkpointing import Alignment, CheckpointingMode
from penstock.runtime.errors import CorruptSnapshotError, StorageError, StorageTimeoutError
from penstock.runtime.execution.failure_causes import describe_failure
from penstock.runtime.execution.processes import Counters, SubtaskFinished, SubtaskStopped
from penstock.runtime.execution.subtask_process import AttemptEvents, OnBuilt
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.job.job_state import (
    Acknowledged,
    Declined,
    EventForCoordinator,
    ReachedEndOfData,
    SubtaskReport,
)
from penstock.runtime.operators.user_code.failure import close_after
from penstock.runtime.record.element_codec import EncodedElement
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.task.build import build_subtask
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.task.end_of_input import Phase
from penstock.runtime.task.subtask import StepResult, Subtask
from penstock.runtime.testing.simulation.cluster.network import AttemptNetwork, Receivers
from penstock.runtime.testing.simulation.cluster.process_resources import (
    SimulatedEventLoop,
    SimulatedRunner,
    StateBackendsOfProcess,
    WatchedStorage,
)
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.world.world import SimulatedUserError, World

if TYPE_CHECKING:
    from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess


class ProcessDied(BaseException):
    """The process died in the middle of an action; the task's code must not catch this."""


class TaskState(Enum):
    """The progress of an attempt of a subtask."""

    DEPLOYING = "being deployed"
    DEPLOYED = "deployed, not started"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    DEAD = "dead with its process"

    @property
    def is_open(self) -> bool:
        """Whether the attempt still accepts frames and messages."""
        return self in (TaskState.DEPLOYED, TaskState.STARTED)


#: Carries a report to the JobMaster, with its text for the trace.
Report: TypeAlias = Callable[[SubtaskReport, str], None]

#: Exact types of the injected errors; other `StorageError`s, such as a missing file, are not injected.
_INJECTED: Final = (SimulatedUserError, StorageError, StorageTimeoutError)


class RunningTask:
    """An attempt of a subtask (`RunningAttempt`), and the subtask's gateway; see the module's docstring."""

    def __init__(
        self,
        world: World,
        descriptor: TaskDescriptor,
        process: SimulatedProcess,
        events: AttemptEvents,
        report: Report,
        credits: int,
        inline_limit: int | None = None,
    ) -> None:
        self.id = descriptor.id
        self.attempt = descriptor.attempt
        self.state = TaskState.DEPLOYING
        self.network = AttemptNetwork(world, self, credits, process.id, process.links)
        #: Whether it has reported the end of its data.
        self.has_ended = False
        self._world = world
        self._descriptor = descriptor
        self._process = process
        self._events = events
        self._report = report
        self._inline_limit = inline_limit
        self._runner = SimulatedRunner(
            world,
            self.id,
            self.guard,
            self._guard_work,
            lambda: world.on_moment(Moment.SNAPSHOT),
            process.holds,
        )
        self._storage = WatchedStorage(world.storage, process.before_upload)
        self._spill_files = world.new_spill_disk()
        self._external_faults = world.external_faults
        self._state_backends = StateBackendsOfProcess()
        self._event_loops: list[SimulatedEventLoop] = []
        self._subtask: Subtask | None = None
        self._result = StepResult(more=True)
        self._is_scheduled = self._is_stopping = False
        self._received: list[Callable[[Subtask], None]] = []
        checkpointing = descriptor.config.checkpointing
        mode = None if checkpointing is None else checkpointing.mode
        self._never_aligns = mode is CheckpointingMode.AT_LEAST_ONCE
        self._may_store = checkpointing is not None and checkpointing.alignment is Alignment.STORE

    @property
    def subtask(self) -> Subtask:
        assert self._subtask is not None, f"{self.id} is used before it was built"
        return self._subtask

    @property
    def is_finished(self) -> bool:
        return self.state is TaskState.FINISHED

    @property
    def wake_at(self) -> float | None:
        return self._result.wake_at if self.state is TaskState.STARTED else None

    # -- its life -----------------------------------------------------------------------------------------

    def build(self, on_built: OnBuilt) -> None:
        world = self._world
        self._process.runs_now()
        try:
            self._subtask = build_subtask(
                self._descriptor,
                self,
                self._runner,
                self._process.clock,
                self._storage,
                world.locations(self._storage),
                self._spill_files,
                self._state_backends,
                self._open_event_loop,
                inline_limit=self._inline_limit,
            )
        except ProcessDied:
            self._process.died()
        except Exception as error:
            if _is_death(error):
                self._process.died()
                return
            self._require_wanted(error)
            self.state = TaskState.FAILED
            on_built(describe_failure(error))
        else:
            self.state = TaskState.DEPLOYED
            restore = self._descriptor.restore
            self._world.restored += restore is not None and restore.channels is not None
            on_built(None)

    def start(self, peers: Receivers) -> None:
        self.network.connect(peers)
        self.state = TaskState.STARTED
        self._schedule()
        received, self._received = self._received, []
        for action in received:
            self.receive(action)

    def receive(self, action: Callable[[Subtask], None]) -> None:
        """Run an action of another process on the subtask once it is started, unless it has ended."""
        if self.state is TaskState.DEPLOYED:
            self._received.append(action)
        elif self.state is TaskState.STARTED:
            self._schedule()
            self.guard(action, self.subtask)

    def control(self, message: SubtaskControl) -> None:
        self.receive(lambda subtask: subtask.control(message))

    def stop(self) -> None:
        """Stop stepping, and close soon; frames and messages that arrive before that are still handled."""
        if self.state.is_open and not self._is_stopping:
            self._is_stopping = True
            if self._process.stops_take_time:
                self._world.agenda.add(Happening.STEP, self._close, self.id, "is closed")
            else:
                self._close()

    def _close(self) -> None:
        if self.state.is_open and not self._process.holds(Happening.STEP, self._close, self.id, "is closed"):
            self._guard_work(lambda: self._end(TaskState.STOPPED, None))

    def counters(self) -> Counters:
        return Counters(self.attempt, None)

    def end_reports(self) -> None: ...

    def die(self) -> None:
        if self.state.is_open:
            self._count_alignments()
        self._world.storing.discard(self.id)
        self.state = TaskState.DEAD
        self._runner.die()
        self._spill_files.die()
        self._state_backends.die()
        for loop in self._event_loops:
            loop.die()

    def guard(self, action: Callable[..., object], *arguments: object) -> None:
        """Run an action of the task; an injected error fails the task, `ProcessDied` ends the process."""
        self._process.runs_now()
        try:
            action(*arguments)
        except ProcessDied:
            self._process.died()
        except Exception as error:
            if self.state is TaskState.DEAD or _is_death(error):
                self._process.died()
                return
            self._require_wanted(error)
            failure = error
            self._guard_work(lambda: self._end(TaskState.FAILED, failure))

    # -- frames -------------------------------------------------------------------------------------------

    def deliver(self, channel: int, first: int, elements: Sequence[EncodedElement]) -> None:
        self.receive(lambda subtask: subtask.deliver(channel, first, elements))

    def frame_consumed(self, channel: OutputChannelSpec, first: int) -> None:
        if self._process.holds(Happening.CREDIT, lambda: self.frame_consumed(channel, first), "a credit"):
            return
        self.receive(lambda subtask: subtask.frame_consumed(channel, first))

    def receiver_gone(self, channel: OutputChannelSpec) -> None:
        """End a channel whose receiver has ended; wake the subtask only if it is leaving."""
        if self._process.holds(Happening.CREDIT, lambda: self.receiver_gone(channel), "an end"):
            return
        if self.state is TaskState.STARTED:
            self.guard(lambda: self.subtask.receiver_gone(channel))
            if self.subtask.phase is Phase.LEAVING:
                self._schedule()

    # -- the gateway --------------------------------------------------------------------------------------

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        assert self.state is not TaskState.DEPLOYED, f"{self.id} sent a frame before it was started"
        if not self._is_stopping:
            self._process.before_effect()
            self.network.send(channel, first_sequence_number, elements)

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        self._events.consumed(channel, next_sequence_number)

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        assert not (self._never_aligns and metrics.alignment_duration), (
            f"{self.id} has aligned {checkpoint_id}"
        )
        self._process.before_effect()
        report = Acknowledged(self.id, checkpoint_id, snapshot, metrics)
        self._report(report, f"acknowledges checkpoint {checkpoint_id}")
        self._world.captured += metrics.in_flight_bytes > 0
        self._world.stored += metrics.stored_bytes > 0
        self._world.spilled += metrics.spilled_bytes > 0
        self._world.on_moment(Moment.ACKNOWLEDGED)

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        self._process.before_effect()
        report = Declined(self.id, checkpoint_id, reason, detail)
        self._report(report, f"declines checkpoint {checkpoint_id}: {reason.value} {detail}")
        has_ended = reason is CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
        self._world.counts.happened(FaultKind.CHECKPOINT_INPUT_ENDED, int(has_ended))

    def end_of_data(self) -> None:
        self._process.before_effect()
        self._report(ReachedEndOfData(self.id), "has reached the end of its data")
        self.has_ended = True
        self._world.on_moment(Moment.END_OF_DATA)

    def warn(self, operator_id: str, text: str) -> None:
        """Do nothing: a simulation ignores warnings."""

    def operator_event(self, operator_id: str, event: Any) -> None:
        self._process.before_effect()
        self._report(EventForCoordinator(self.id, operator_id, event), f"sends {event}")

    # -- inside -------------------------------------------------------------------------------------------

    def _open_event_loop(self, on_blocked: Callable[[str, float], None]) -> SimulatedEventLoop:
        process = self._process
        loop = SimulatedEventLoop(
            self._world,
            self.id,
            process.clock,
            lambda callback: self.receive(lambda _: callback()),
            self._guard_work,
            process.before_effect,
            process.holds,
        )
        self._event_loops.append(loop)
        return loop

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_stopping and self.state is TaskState.STARTED:
            self._is_scheduled = True
            self._world.agenda.add(Happening.STEP, self._take_turn, self.id, "steps")

    def _take_turn(self) -> None:
        if self._process.holds(Happening.STEP, self._take_turn, self.id, "steps"):
            return
        self._is_scheduled = False
        if self.state is not TaskState.STARTED or self._is_stopping:
            return
        self.guard(self._step)
        wake_at = self._result.wake_at
        if self._result.more:
            self._schedule()
        elif wake_at is not None and self.state is TaskState.STARTED:
            at = self._world.clocks.in_world(self._process.clock, wake_at)
            self._world.agenda.add(
                Happening.STEP, lambda: self._wake(wake_at), self.id, "steps, its timer is due", at=at
            )

    def _wake(self, at: float) -> None:
        """Step at the time that the last step requested, unless a later step has changed it."""
        if self._result.wake_at == at and not self._is_scheduled:
            self._take_turn()

    def _step(self) -> None:
        self._result = self.subtask.step()
        if self._never_aligns:
            assert not self.subtask.blocked, f"{self.id} holds a channel back"
        if self._may_store:
            self._look_at_alignment()
        if self._result.finished:
            self._world.on_moment(Moment.FINISHED)
            self._end(TaskState.FINISHED, None)

    def _count_alignments(self) -> None:
        barriers = None if self._subtask is None else self._subtask.barriers
        if barriers is not None:
            self._world.counts.happened(FaultKind.ALIGNMENT_CANCELLED, barriers.cancelled_alignments)

    def _look_at_alignment(self) -> None:
        storing, stores = self._world.storing, self.subtask.stored_bytes > 0
        if stores and self.id not in storing:
            storing.add(self.id)
            self._world.on_moment(Moment.STORING)
        elif storing and not stores:
            storing.discard(self.id)

    def _end(self, state: TaskState, failure: BaseException | None) -> None:
        """Close the subtask, and report its outcome; raises `ProcessDied` if the process dies first."""
        self.state = state
        self._count_alignments()
        self._world.storing.discard(self.id)
        self._runner.close()
        self._process.runs_now()
        closing = close_after(None, self.subtask.close)
        if _is_death(closing):
            raise ProcessDied from closing
        left = self._spill_files.open_files
        assert not left, f"{self.id} is closed and leaves {left} spill files open"
        if closing is not None:  # a bug in `close` must not hide behind an injected failure
            self._require_wanted(closing)
        failure = closing if failure is None else failure
        if failure is not None:
            self.state = TaskState.FAILED
            self._events.ended(describe_failure(failure))
        else:
            self._events.ended(SubtaskStopped() if state is TaskState.STOPPED else SubtaskFinished(None))

    def _guard_work(self, work: Callable[[], object]) -> None:
        """Run background work; `ProcessDied` ends the process."""
        self._process.runs_now()
        try:
            work()
        except ProcessDied:
            self._process.died()

    def _require_wanted(self, error: BaseException) -> None:
        """Raise an error that the simulation did not inject, because it shows a bug.

        An error that was raised while an injected error was handled is a bug, too. An error of a task may
        follow from a fault of the external world since its deployment, unless it shows a mistake in a
        program. Other errors must name what that world has lost, or show an injected error as their cause.
        """
        world = self._world
        if world.may_come_from_outside(error, self._external_faults) or world.external_explains(str(error)):
            return
        cause: BaseException | None = error
        while cause is not None:
            if self._is_injected(cause):
                return
            cause = cause.__cause__
        raise error

    def _is_injected(self, error: BaseException) -> bool:
        if isinstance(error, CorruptSnapshotError):
            return self._world.damage.explains(error)
        return type(error) in _INJECTED


def _is_death(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ProcessDied):
        error = error.__cause__ or error.__context__
    return error is not None
