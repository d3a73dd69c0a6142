"""`Deployment`: brings the subtasks of one attempt up, one call after the other, in any order.

The order of the JobMaster: what still runs of older attempts is stopped, dead processes are replaced, the
attempt's descriptors are made (which reads the storage), every process is handed its own. Each of these calls
may be the one at which something dies. The scheduler is told once how it went, unless the deployment was
given up meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.describe_tasks import describe_tasks
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.cluster.frames import AttemptNetwork
from penstock.runtime.testing.simulation.cluster.master import Master
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World


class Deployment:
    """One attempt on its way up; see the module's text.

    Args:
        world: Time, chance and storage.
        attempt: The attempt.
        graph: The job.
        restore: What it starts from.
        master: Who deploys.
        processes: Where it is deployed: all processes, or those of one region.
        done: Told once: `None`, or why it failed.
    """

    def __init__(
        self,
        world: World,
        attempt: int,
        graph: ExecutionGraph,
        restore: CompletedCheckpoint | None,
        master: Master,
        processes: Mapping[SubtaskId, SimulatedProcess],
        done: Callable[[FailureCause | None], None],
    ) -> None:
        self._world = world
        self._attempt = attempt
        self._graph = graph
        self._restore = restore
        self._master = master
        self._processes = processes
        self._done = done
        self._open = 0
        self._failure: FailureCause | None = None
        self._is_over = False
        self.network = AttemptNetwork(world, attempt, dict(processes), master.job.config.credits)

    @property
    def is_over(self) -> bool:
        """Whether it has ended or was given up."""
        return self._is_over

    def begin(self) -> None:
        """Stop what older attempts have left, then go on."""
        older = [process for process in self._processes.values() if process.runs]
        self._call_all(
            [(f"stop what is left in {p}", partial(p.stop, self._attempt - 1)) for p in older],
            self._describe,
        )

    def give_up(self) -> None:
        """Nobody wants it any more."""
        self._is_over = True

    def fail(self, cause: FailureCause) -> None:
        """It can't go on: the cluster has no room, or the storage does not answer."""
        if not self._is_over:
            self._is_over = True
            self._done(cause)

    def _describe(self) -> None:
        for process in self._processes.values():
            if not process.is_alive:
                process.revive()
        self._call("describe the tasks", lambda: None if self._is_over else self._read_descriptors())

    def _read_descriptors(self) -> None:
        world = self._world
        try:
            descriptors = describe_tasks(
                self._master.job.id,
                self._attempt,
                self._graph,
                self._master.job.config,
                self._restore,
                world.storage,
                self._processes.keys(),
                world.places(world.storage),
            )
        except StorageError as error:
            if isinstance(error, CorruptSnapshotError):
                raise AssertionError(str(error)) from error
            self.fail(FailureCause(str(error)))
            return
        world.restores.note(self._graph, self._restore, descriptors)
        self._call_all(
            [(f"deploy {d.id}", partial(self._deploy, d)) for d in descriptors], self._all_answered
        )

    def _deploy(self, descriptor: TaskDescriptor) -> None:
        process = self._processes[descriptor.id]
        received = self._master.job.received_task(descriptor, process.before_effect)
        failure = process.deploy(received, self.network, self._master)
        self._failure = self._failure or failure

    def _all_answered(self) -> None:
        self._is_over = True
        if self._failure is not None:
            self._world.counts.happened(FaultKind.DEPLOYMENT_FAILED)
        self._done(self._failure)

    def _call_all(self, calls: list[tuple[str, Callable[[], None]]], then: Callable[[], None]) -> None:
        self._open = len(calls)
        if not calls:
            then()

        def answered(call: Callable[[], None]) -> None:
            call()
            self._open -= 1
            if not self._open and not self._is_over:
                then()

        for what, call in calls:
            self._call(what, partial(answered, call))

    def _call(self, what: str, act: Callable[[], None]) -> None:
        """A call that is on its way arrives, also when nobody waits for its answer any more."""
        self._world.send(Happening.OPERATION, act, f"attempt {self._attempt}:", what)
