"""Records of a run's restores, damaged files and fallbacks; and `RunObserver`, the base of other checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind


class Restores:
    """Notes the restores after which two guarantees do not hold, by design.

    In-flight data of a rebalanced exchange goes to other subtasks, so its order is lost. A finished subtask
    runs again if its operator or an upstream one was rescaled. Then its state, whose effects are visible
    already, is lost.

    Attributes:
        is_reordered: Whether in-flight data was restored at another parallelism.
        left_behind: Operators that have lost the state of a finished subtask.
    """

    def __init__(self, counts: FaultCounts) -> None:
        self._counts = counts
        self.is_reordered = False
        self.left_behind: set[str] = set()

    def note(
        self,
        graph: ExecutionGraph,
        restore: CompletedCheckpoint | None,
        descriptors: Iterable[TaskDescriptor],
    ) -> None:
        if restore is None:
            return
        descriptors = tuple(descriptors)
        restores = [descriptor.restore for descriptor in descriptors]
        if any(r is not None and r.channels is not None and r.channels.is_rescaled for r in restores):
            self._counts.happened(FaultKind.IN_FLIGHT_RESCALED)
            self.is_reordered = True
        again = {d.subtask.id for d in descriptors if d.restore is not None and not d.restore.finished}
        for vertex in graph.job.vertices:
            for operator in vertex.operators:
                state = restore.operators.get(operator.id)
                if state is None:
                    continue
                is_rescaled = state.parallelism != vertex.parallelism
                if any(is_rescaled or SubtaskId(vertex.id, index) in again for index in state.finished):
                    self.left_behind.add(operator.id)


class Damage(dict[str, FaultKind]):
    """The damaged and lost files of the storage, by path.

    Example:
        >>> damage = Damage({"j/chk-7-1/metadata": FaultKind.METADATA_GONE})
        >>> damage.explains("memory:/j/chk-7-1/metadata is not there"), damage.explains("j/chk-6-1/metadata")
        (True, False)
    """

    def explains(self, text: object) -> bool:
        """Whether an error or a cause names one of these files."""
        text = str(text)
        return any(path in text for path in self)


class Fallbacks:
    """Checks the checkpoint from which each deployment of a whole job starts.

    A job continues from its newest completed checkpoint. It may start from an older checkpoint only if its
    user allows this and a file was damaged. Then sinks may repeat rows that were committed since. The
    simulation acts like such a user: it resets the external world, and blocks commits of earlier attempts.

    A slow JobMaster may deploy an attempt after a later attempt has completed checkpoints. It is fenced and
    does not know that yet, and its attempts can't commit. So attempts before the newest attempt with a
    completed checkpoint are not checked.
    """

    def __init__(self, damage: Damage, counts: FaultCounts) -> None:
        self._damage = damage
        self._counts = counts
        self._newest: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._allow_older = False
        self._on_deployment: Callable[[str, int, int | None], None] | None = None

    def watch(self, on_deployment: Callable[[str, int, int | None], None], *, allow_older: bool) -> None:
        """Begin to check every deployment.

        If older checkpoints are allowed and a file was damaged, `on_deployment` gets the job, the attempt and
        the id of the older checkpoint. The id is `None` if the job starts from the newest checkpoint.
        """
        self._on_deployment, self._allow_older = on_deployment, allow_older

    def completed(self, job_id: str, attempt: int, checkpoint_id: int) -> None:
        self._newest[job_id] = max(checkpoint_id, self._newest.get(job_id, -1))
        self._attempts[job_id] = max(attempt, self._attempts.get(job_id, -1))

    def is_past(self, job_id: str, attempt: int) -> bool:
        return attempt < self._attempts.get(job_id, -1)

    def deployed(self, job_id: str, attempt: int, restore: CompletedCheckpoint | None) -> None:
        """Fail if the job starts from an older checkpoint without permission."""
        if self._on_deployment is None or self.is_past(job_id, attempt):
            return
        newest, checkpoint_id = self._newest.get(job_id, -1), -1 if restore is None else restore.checkpoint_id
        is_older = checkpoint_id < newest
        may_be_older = self._allow_older and bool(self._damage)
        if is_older and not may_be_older:
            msg = f"attempt {attempt} starts from checkpoint {checkpoint_id}, although {newest} is complete"
            raise AssertionError(msg)
        if may_be_older:
            self._counts.happened(FaultKind.FELL_BACK, int(is_older))
            self._on_deployment(job_id, attempt, checkpoint_id if is_older else None)


class RunObserver:
    """Base of a caller's own checks of a run; does nothing by default.

    The project's tests check master hooks with it (`tests/simulated_jobs/observer.py`).
    """

    def process_died(self) -> None: ...

    def jobmaster_begun(self, master: object) -> None:
        """Called after a JobMaster has made its scheduler, and before the scheduler starts."""

    def jobmaster_died(self) -> None: ...

    def job_deployed(self, master: object, restore: CompletedCheckpoint | None) -> None:
        """Called before a JobMaster deploys the whole job."""

    def checkpoint_triggered(self, master: object, checkpoint_id: int) -> None:
        """Called before the triggers of a checkpoint are sent to the subtasks."""

    def fail_next_hook(self) -> None: ...

    def delay_next_hook(self, seconds: float) -> None: ...
