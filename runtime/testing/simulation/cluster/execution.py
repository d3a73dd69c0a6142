"""`SimulatedExecution`: what the job's scheduler asks for, carried out in simulated processes.

It stands for the part of the JobMaster that talks to actors. Every message to a subtask is a call of its own:
late, in any order, and repeated when its answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock.runtime.errors import DeploymentError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.operators.operator_coordinator import EventAnswer
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.testing.simulation.cluster.deployment import Deployment
from penstock.runtime.testing.simulation.cluster.fleet import Fleet
from penstock.runtime.testing.simulation.cluster.master import Master
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger
from penstock.runtime.testing.simulation.cluster.ordered_messages import OrderedMessages
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.world.world import World


class SimulatedExecution:
    """The `ExecutionGateway` of a simulated job; see the module's text.

    Args:
        world: Time, chance and storage.
        master: Whom it serves.
        fleet: Where subtasks run; other JobMasters use it, too.
        ledger: Knows what the job's master hooks do.

    Attributes:
        running_checkpoints: Checkpoints that were triggered and have not ended, as far as is known here.
        end: How the job ended, and why; `None` while it lives.
    """

    def __init__(self, world: World, master: Master, fleet: Fleet, ledger: HookLedger) -> None:
        self._world = world
        self._graph = master.job.graph
        self._all = tuple(subtask.id for subtask in self._graph.subtasks)
        self._master = master
        self._fleet = fleet
        self._ledger = ledger
        self._deployment: Deployment | None = None
        self._ordered = OrderedMessages(world)
        self._stopped_through: dict[SubtaskId, int] = {}
        self._refuse_next = False
        self._attempts: dict[SubtaskId, int] = {}
        self.running_checkpoints: list[int] = []
        self.end: tuple[JobState, str] | None = None
        fleet.watchers.append(self._process_ended)

    @property
    def deployment(self) -> Deployment | None:
        """The newest deployment."""
        return self._deployment

    def refuse_next_deployment(self) -> None:
        """Let the next deployment find no room, or the one that is under way."""
        deployment = self._deployment
        if deployment is not None and not deployment.is_over:
            self._fail_deployment(deployment)
        else:
            self._refuse_next = True

    # -- ExecutionGateway ---------------------------------------------------------------------------------

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        """Bring all subtasks up for this attempt."""
        self.running_checkpoints.clear()
        self._ledger.check_restored(self._master.hooks, restore)
        self.deploy_region(attempt, self._all, restore)

    def deploy_region(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        """Bring these subtasks up for this attempt."""
        restored = "nothing" if restore is None else f"checkpoint {restore.checkpoint_id}"
        part = "" if len(subtasks) == len(self._all) else f" for {len(subtasks)} subtasks"
        self._world.trace.note(f"== {self._master}: attempt {attempt} begins{part} from {restored} ==")

        def done(failure: FailureCause | None) -> None:
            if failure is None:
                self._master.answer(attempt, lambda s: s.on_deployed(attempt), "all are deployed")
            else:
                text = f"the deployment failed: {failure}"
                self._master.answer(attempt, lambda s: s.on_deployment_failed(attempt, failure), text)

        self._attempts.update(dict.fromkeys(subtasks, attempt))
        some = self._some(subtasks)
        deployment = Deployment(self._world, attempt, self._graph, restore, self._master, some, done)
        self._deployment = deployment
        deployment.begin()
        if self._refuse_next and not self._world.is_calm:
            self._refuse_next = False
            self._fail_deployment(deployment)
        self._world.on_moment(Moment.DEPLOYING)

    def start(self, attempt: int) -> None:
        """Let all subtasks run."""
        self.start_region(attempt, self._all)

    def start_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """Let these subtasks run; the calls are on their way when the scheduler is told."""
        for process in self._some(subtasks).values():
            self._call(f"start {process}", self._starter(attempt, process))
        self._master.answer(attempt, lambda s: self._started(s.on_started, attempt), "all are started")

    def stop_all(self, attempt: int) -> None:
        """Stop all subtasks."""
        if self._deployment is not None:
            self._deployment.give_up()
        self._stop(attempt, self._all, lambda s: s.on_all_stopped(attempt))

    def stop_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """Stop these subtasks."""
        self._stop(attempt, subtasks, lambda s: s.on_region_stopped(attempt))

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        """Tell subtasks to start a checkpoint."""
        self.running_checkpoints.append(barrier.checkpoint_id)
        self._ledger.check_triggered(self._master.hooks, barrier.checkpoint_id)
        what = f"trigger {barrier.checkpoint_id}"

        def trigger(subtask: Subtask) -> None:
            subtask.trigger_checkpoint(barrier)

        for subtask in subtasks:
            self._in_order(attempt, subtask, trigger, what)
            if self._world.repeats(FaultKind.MESSAGE_REPEATED):
                self._send_control(attempt, subtask, trigger, f"{what} (again)")
        self._world.on_moment(Moment.TRIGGERED)

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Tell subtasks that they may commit."""
        self._ended(checkpoint_id)
        what = f"checkpoint {checkpoint_id} is complete"
        self._control(attempt, subtasks, lambda s: s.notify_checkpoint_complete(checkpoint_id), what)
        self._world.on_moment(Moment.COMPLETED)

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Tell subtasks that a checkpoint was given up."""
        self._ended(checkpoint_id)
        what = f"checkpoint {checkpoint_id} is given up"
        self._control(attempt, subtasks, lambda s: s.notify_checkpoint_aborted(checkpoint_id), what)

    def send_operator_event(
        self, attempt: int, subtask: SubtaskId, operator_id: str, event: Any, answer: EventAnswer
    ) -> None:
        """Hand an event of a coordinator to a subtask; one that comes twice is known there by its number."""

        def deliver(task: Subtask) -> None:
            task.operator_event(operator_id, event)

        def answered(arrived: bool) -> None:
            if arrived:
                answer.sent()
            else:
                answer.failed(DeploymentError(f"{subtask} is gone, and an event for it with it"))

        self._in_order(attempt, subtask, deliver, f"{type(event).__name__} of {operator_id}", answered)

    def job_ended(self, state: JobState, cause: str) -> None:
        """The job is over."""
        self._world.trace.note(f"== the job has ended: {state.value} {cause} ==")
        self.end = state, cause

    def fenced(self) -> None:
        """Another JobMaster owns the job: this one leaves."""
        self._world.trace.note(f"== {self._master} is fenced and leaves ==")
        self.leave(work_goes_on=True)

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The job was rescaled: the next deployment is for this graph."""
        self._fleet.change_graph(self._graph, graph)
        self._graph = graph
        self._all = tuple(subtask.id for subtask in graph.subtasks)

    def leave(self, *, work_goes_on: bool) -> None:
        """The JobMaster is gone: calls on their way arrive, nothing follows them."""
        self._master.die(work_goes_on=work_goes_on)
        if self._deployment is not None:
            self._deployment.give_up()

    # -- how it is done -----------------------------------------------------------------------------------

    def _some(self, subtasks: Collection[SubtaskId]) -> dict[SubtaskId, SimulatedProcess]:
        self._fleet.ensure(self._graph)  # another JobMaster may have rescaled the job
        return {id: self._fleet.processes[id] for id in self._all if id in subtasks}

    def _stop(
        self, attempt: int, subtasks: Collection[SubtaskId], stopped: Callable[[JobScheduler], None]
    ) -> None:
        stopping = list(self._some(subtasks).values())
        left = [len(stopping)]

        def stopper(process: SimulatedProcess) -> Callable[[], None]:
            def stop() -> None:
                process.stop(attempt)
                left[0] -= 1
                if not left[0]:
                    self._master.answer(attempt, stopped, "all have stopped")

            return stop

        for process in stopping:
            self._stopped_through[process.id] = attempt
            self._call(f"stop {process}", stopper(process))

    def _fail_deployment(self, deployment: Deployment) -> None:
        self._world.counts.happened(FaultKind.DEPLOYMENT_FAILED)
        deployment.fail(FailureCause("the cluster has no room"))

    def _started(self, on_started: Callable[[int], None], attempt: int) -> None:
        on_started(attempt)
        self._world.on_moment(Moment.STARTED)

    def _starter(self, attempt: int, process: SimulatedProcess) -> Callable[[], None]:
        def start() -> None:
            if not process.start(attempt) and attempt > self._stopped_through.get(process.id, 0):
                self._report_failure(process, attempt, "its process died")

        return start

    def _process_ended(self, process: SimulatedProcess, attempt: int, why: str) -> None:
        is_ours = self._attempts.get(process.id) == attempt
        if is_ours and attempt > self._stopped_through.get(process.id, 0):
            self._report_failure(process, attempt, why)

    def _report_failure(self, process: SimulatedProcess, attempt: int, why: str) -> None:
        cause = FailureCause(why, process.id)
        self._master.answer(
            attempt,
            lambda s: s.on_subtask_failed(attempt, process.id, cause),
            f"{process}: {why}",
            process.id,
        )

    def _ended(self, checkpoint_id: int) -> None:
        if checkpoint_id in self.running_checkpoints:
            self.running_checkpoints.remove(checkpoint_id)

    def _control(
        self, attempt: int, subtasks: Sequence[SubtaskId], message: Callable[..., None], what: str
    ) -> None:
        for subtask in subtasks:
            self._send_control(attempt, subtask, message, what)
            if self._world.repeats(FaultKind.MESSAGE_REPEATED):
                self._send_control(attempt, subtask, message, f"{what} (again)")

    def _in_order(
        self,
        attempt: int,
        subtask: SubtaskId,
        message: Callable[[Subtask], None],
        what: str,
        then: Callable[[bool], None] | None = None,
    ) -> None:
        """Send a message behind all others of its lane; `then` hears at this JobMaster if it arrived."""

        def arrive() -> None:
            process = self._fleet.processes.get(subtask)
            arrived = process is not None and process.control(attempt, lambda task: task.receive(message))
            if then is not None and self._master.is_alive:
                then(arrived)

        self._ordered.put(subtask, arrive, what)

    def _send_control(
        self, attempt: int, subtask: SubtaskId, message: Callable[..., None], what: str
    ) -> None:
        def arrive() -> None:
            process = self._fleet.processes.get(subtask)
            if process is not None:
                process.control(attempt, lambda task: task.receive(message))

        self._world.send(Happening.MESSAGE, arrive, f"{subtask} is told:", what)

    def _call(self, what: str, act: Callable[[], None]) -> None:
        self._world.send(Happening.OPERATION, act, what)
