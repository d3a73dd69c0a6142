"""`StepAttempt`: one attempt of a `StepJob`: its subtasks, what is between them, and what can happen next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import StateHandle
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.describe_tasks import describe_tasks
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.testing.choices import Choose
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.step_checkpoints import RunningCheckpoint, StepCheckpoints
from penstock.runtime.testing.step_network import StepNetwork
from penstock.runtime.testing.step_operators import StepOperators
from penstock.runtime.testing.step_task import StepTask

Move: TypeAlias = Callable[[], None]


class StepAttempt:
    """Builds the subtasks of an attempt and offers the moves that are possible in it.

    Args:
        job_id: The job.
        number: Number of the attempt.
        graph: The job.
        config: Its settings.
        restore: What it starts from; `None` for nothing.
        storage: The checkpoint storage.
        checkpoints: Told of ends of data and of subtasks that leave.
        clock: Time.
        choose: Picks one of several things that wait.
        open_location: Opens places of snapshots that are not in `storage`.

    Raises:
        OperatorError: A subtask could not be built.

    Attributes:
        network: What is between the subtasks.
        operators: Coordinators of sources.
        tasks: The subtasks.
    """

    def __init__(
        self,
        job_id: str,
        number: int,
        graph: ExecutionGraph,
        config: JobConfig,
        restore: CompletedCheckpoint | None,
        storage: SnapshotStorage,
        checkpoints: StepCheckpoints,
        clock: ManualClock,
        choose: Choose,
        open_location: StorageOpener | None,
    ) -> None:
        self._checkpoints = checkpoints
        self._clock = clock
        self._choose = choose
        self.network = StepNetwork(config.credits)
        self.operators = StepOperators(graph, restore)
        described = describe_tasks(
            job_id, number, graph, config, restore, storage, open_location=open_location
        )
        world = (self.network, checkpoints, clock, storage, open_location, self.operators)
        self.tasks = {descriptor.id: StepTask(descriptor, *world) for descriptor in described}

    def moves(self) -> list[Move]:
        """All steps, arrivals and pieces of background work that may come next."""
        return self._due_steps() + self._arrivals() + self._background()

    def pass_time(self) -> bool:
        """Let time pass until somebody wants to be stepped; `False` when nobody waits for any time."""
        times = [task.wake_at for task in self.tasks.values() if not task.is_finished]
        known = [time for time in times if time is not None]
        if known:
            self._clock.advance_to(min(known))
        return bool(known)

    def mail(self, subtask: SubtaskId, message: Callable[[Subtask], None]) -> None:
        """Put a message of the job on its way to a subtask, unless that has left."""
        task = self.tasks[subtask]
        if not task.is_finished:
            task.mail.append(lambda: message(task.subtask))

    def tell_sources(self, started: RunningCheckpoint, states: dict[str, StateHandle]) -> None:
        """The coordinators have given their snapshots: put the triggers on their way."""
        barrier = started.barrier
        started.coordinators = states
        for subtask in started.plan.trigger:
            trigger = partial(Subtask.trigger_checkpoint, barrier=barrier)
            if subtask in self.operators.lanes:
                self.operators.lanes[subtask].append((trigger, _nothing))
            else:
                self.mail(subtask, trigger)
        self.operators.barriers_injected(barrier.checkpoint_id)

    def _due_steps(self) -> list[Move]:
        return [partial(self._step, task) for task in self.tasks.values() if task.is_due]

    def _arrivals(self) -> list[Move]:
        moves: list[Move] = []
        if self.network.frames:
            moves.append(self._frame_arrives)
        if self.network.answers:
            moves.append(self._answer_arrives)
        if self.operators.requests:
            moves.append(self._request_arrives)
        moves += [
            partial(self._take_parcel, subtask) for subtask, lane in self.operators.lanes.items() if lane
        ]
        moves += [partial(self._take_mail, task) for task in self.tasks.values() if task.mail]
        return moves

    def _background(self) -> list[Move]:
        tasks = self.tasks.values()
        waiting: list[Move] = [partial(self._do_work, task) for task in tasks if task.runner.waiting]
        runner = self.operators.runner
        if runner.waiting:
            waiting.append(lambda: runner.do(self._choose(len(runner.waiting))))
        if runner.done:
            waiting.append(lambda: runner.done.pop(self._choose(len(runner.done))).tell())
        return waiting + [partial(self._tell_outcome, task) for task in tasks if task.runner.done]

    def _step(self, task: StepTask) -> None:
        had_ended = task.has_ended
        task.step()
        if task.has_ended and not had_ended:
            for barrier in self._checkpoints.data_ended(task.id):
                self.mail(task.id, partial(Subtask.trigger_checkpoint, barrier=barrier))
        if task.is_finished:
            self._checkpoints.finished(task.id)
            self.network.receiver_finished(task.id)

    def _request_arrives(self) -> None:
        self.operators.requests.pop(self._choose(len(self.operators.requests)))()

    def _take_parcel(self, subtask: SubtaskId) -> None:
        task = self.tasks[subtask]
        deliver, arrived = self.operators.lanes[subtask].pop(0)
        task.receive(lambda: deliver(task.subtask))
        arrived()

    def _take_mail(self, task: StepTask) -> None:
        task.receive(task.mail.pop(self._choose(len(task.mail))))

    def _do_work(self, task: StepTask) -> None:
        task.do_work(self._choose(len(task.runner.waiting)))

    def _tell_outcome(self, task: StepTask) -> None:
        task.tell_outcome(self._choose(len(task.runner.done)))

    def _frame_arrives(self) -> None:
        index = self._choose(len(self.network.frames))
        frame = self.network.take(index, stays=self._choose(8) == 7)
        receiver = self.tasks[frame.channel.receiver]
        if receiver.is_finished:
            self.network.receiver_finished(receiver.id)
        elements = list(frame.elements)
        receiver.receive(lambda: receiver.subtask.deliver(frame.channel.channel, frame.first, elements))

    def _answer_arrives(self) -> None:
        frame = self.network.take_answer(self._choose(len(self.network.answers)))
        sender = self.tasks[frame.sender]
        sender.receive(lambda: sender.subtask.frame_consumed(frame.channel, frame.first))


def _nothing() -> None:
    """Nobody waits for the arrival."""
