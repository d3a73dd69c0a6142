"""`SimulatedProcess`: where the attempts of one subtask run, one after the other, until it dies.

It keeps the promises of the actor that it stands for: a deployment that comes after a newer one, or after a
stop that covers it, is refused; a stop never touches a newer attempt; a frame of an older attempt is answered
"stale" and one of an attempt that is still to come is called again later. What it had in memory is gone when
it dies; what it had sent is on its way all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.cluster.frames import AttemptNetwork, Frame
from penstock.runtime.testing.simulation.cluster.master import Master, Masters
from penstock.runtime.testing.simulation.cluster.running_task import RunningTask
from penstock.runtime.testing.simulation.cluster.task_supervisor import ProcessDied, TaskState
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World


class SimulatedProcess:
    """Runs the attempts of one subtask; see the module's text.

    Args:
        world: Time, chance and storage.
        id: The subtask.
        masters: Take reports.
        watchers: Told when an attempt in it has died or was stopped: this process, the attempt, and why.

    Attributes:
        id: The subtask.
        is_alive: Whether the process lives.
        task: The newest attempt that was deployed.
    """

    def __init__(
        self,
        world: World,
        id: SubtaskId,
        masters: Masters,
        watchers: Sequence[Callable[[SimulatedProcess, int, str], None]],
    ) -> None:
        self.id = id
        self.is_alive = True
        self.task: RunningTask | None = None
        self._world = world
        self._masters = masters
        self._watchers = watchers
        self._past = 0
        self._dies_after_effects: int | None = None
        self._dies_after_uploads: int | None = None

    def __str__(self) -> str:
        return str(self.id)

    @property
    def runs(self) -> bool:
        """Whether it lives and something that is not over runs in it."""
        return self.is_alive and self.task is not None and self.task.state.is_open

    @property
    def may_die(self) -> bool:
        """Whether somebody would miss it: it lives, and its work is not done."""
        return self.is_alive and (self.task is None or self.task.state is not TaskState.FINISHED)

    # -- its life -----------------------------------------------------------------------------------------

    def die(self, kind: FaultKind) -> None:
        """Lose everything."""
        if not self.is_alive:
            return
        self._world.trace.note("!!", self.id, "dies:", kind.value)
        self._world.counts.happened(kind)
        self._world.valves.somebody_dies()
        scheduler = self._masters.last.scheduler
        is_restart = scheduler.attempt > 1 and scheduler.state is not JobState.RUNNING
        self._world.counts.happened(FaultKind.CRASH_IN_RESTART, int(is_restart))
        self.end()

    def end(self) -> None:
        """It is gone, whatever the reason."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._dies_after_effects = self._dies_after_uploads = None
        if self.task is not None:
            self.task.die()
            self._ended(self.task.attempt, "its process died")

    def revive(self) -> None:
        """A new process takes its place; it knows nothing."""
        self.is_alive = True
        self.task = None
        self._past = 0

    def die_after_effects(self, effects: int) -> None:
        """Die in front of the effect after so many."""
        self._dies_after_effects = effects

    def die_after_uploads(self, files: int) -> None:
        """Die when so many more files were written."""
        self._dies_after_uploads = files

    def before_effect(self) -> None:
        """Something is about to be done to the world.

        Raises:
            ProcessDied: The process dies first.
        """
        if self._dies_after_effects is not None and not self._world.is_calm:
            self._dies_after_effects -= 1
            if self._dies_after_effects < 0:
                raise ProcessDied

    def before_upload(self) -> None:
        """A file is about to be written.

        Raises:
            ProcessDied: The process dies first.
        """
        if self._dies_after_uploads is not None and not self._world.is_calm:
            self._dies_after_uploads -= 1
            if self._dies_after_uploads < 0:
                raise ProcessDied
        self.before_effect()

    def died(self) -> None:
        """It has died in the middle of something."""
        uploads = self._dies_after_uploads
        self.die(
            FaultKind.CRASH_IN_UPLOAD if uploads is not None and uploads < 0 else FaultKind.CRASH_IN_STEP
        )

    # -- calls of the JobMaster ---------------------------------------------------------------------------

    def deploy(
        self, descriptor: TaskDescriptor, network: AttemptNetwork, master: Master
    ) -> FailureCause | None:
        """Build the subtask of a new attempt; what went wrong, if anything did."""
        if not self.is_alive:
            return FailureCause("its process died while it was deployed", self.id)
        if descriptor.attempt <= self._past:
            return FailureCause(f"attempt {descriptor.attempt} is past", self.id)
        self._past = descriptor.attempt - 1
        self._stop_task()
        supervisor = AttemptSupervisor(self, self._masters, master, descriptor.attempt)
        self.task = task = RunningTask(self._world, descriptor, network, supervisor)
        try:
            failure = task.build()
        except ProcessDied:
            self.died()
            return FailureCause("its process died while it was deployed", self.id)
        return failure

    def start(self, attempt: int) -> bool:
        """Let a deployed attempt run; whether it does."""
        task = self.task
        if not self.is_alive or task is None or task.attempt != attempt:
            return False
        if task.state is TaskState.DEPLOYED:
            task.start()
        return True

    def stop(self, attempt: int) -> None:
        """Stop this attempt, or an older one that still runs."""
        self._past = max(self._past, attempt)
        if self.is_alive and self.task is not None and self.task.attempt <= attempt:
            self._stop_task()

    def control(self, attempt: int, message: Callable[[RunningTask], None]) -> bool:
        """Take a message of the JobMaster; whether it arrived: one for another attempt is ignored."""
        if not self.is_alive or self.task is None or self.task.attempt != attempt:
            return False
        message(self.task)
        return True

    def _stop_task(self) -> None:
        task = self.task
        if task is not None and task.state.is_open:
            task.stop()
            self._ended(task.attempt, "it was stopped although the job runs: another attempt has its process")

    def _ended(self, attempt: int, why: str) -> None:
        for told in self._watchers:
            told(self, attempt, why)

    # -- frames -------------------------------------------------------------------------------------------

    def deliver(self, frame: Frame) -> None:
        """Take a frame."""
        task = self.task
        if not self.is_alive:
            return
        if task is None or task.attempt < frame.attempt or task.state is TaskState.DEPLOYING:
            frame.network.send_again(frame)
        elif task.attempt == frame.attempt:
            task.deliver(frame)


class AttemptSupervisor:
    """What one attempt of a subtask says, carried to the JobMaster with the attempt's number.

    Args:
        process: Where it runs.
        masters: Take reports.
        master: The one that has deployed it.
        attempt: The attempt.
    """

    def __init__(self, process: SimulatedProcess, masters: Masters, master: Master, attempt: int) -> None:
        self._process = process
        self._masters = masters
        self._master = master
        self._attempt = attempt
        self.before_effect = process.before_effect
        self.before_upload = process.before_upload
        self.died = process.died

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """Report that a part of a checkpoint is durable."""
        attempt, subtask = self._attempt, self._process.id
        self._masters.report(
            self._master,
            attempt,
            lambda scheduler: scheduler.acknowledge(attempt, subtask, checkpoint_id, snapshot, metrics),
            f"{subtask} acknowledges checkpoint {checkpoint_id}",
            subtask,
        )

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """Report that a checkpoint can't be taken."""
        attempt, subtask = self._attempt, self._process.id
        self._masters.report(
            self._master,
            attempt,
            lambda scheduler: scheduler.decline(attempt, subtask, checkpoint_id, reason, detail),
            f"{subtask} declines checkpoint {checkpoint_id}: {reason.value} {detail}",
            subtask,
        )

    def end_of_data(self) -> None:
        """Report the end of all inputs."""
        attempt, subtask = self._attempt, self._process.id
        self._masters.report(
            self._master,
            attempt,
            lambda scheduler: scheduler.on_end_of_data(attempt, subtask),
            f"{subtask} has reached the end of its data",
            subtask,
        )

    def operator_event(self, operator_id: str, event: Any) -> None:
        """Hand an event on to the operator's coordinator."""
        attempt, subtask = self._attempt, self._process.id
        self._masters.report(
            self._master,
            attempt,
            lambda scheduler: scheduler.on_operator_event(attempt, subtask, operator_id, event),
            f"{subtask} sends {event}",
            subtask,
        )

    def ended(self, cause: FailureCause | None) -> None:
        """The answer of the call that was open while it ran."""
        attempt, subtask = self._attempt, self._process.id
        if cause is None:
            self._master.answer(
                attempt,
                lambda scheduler: scheduler.on_subtask_finished(attempt, subtask),
                f"{subtask} has finished",
                subtask,
            )
        else:
            self._master.answer(
                attempt,
                lambda scheduler: scheduler.on_subtask_failed(attempt, subtask, cause),
                f"{subtask} has failed: {cause.message[:200]}",
                subtask,
            )
