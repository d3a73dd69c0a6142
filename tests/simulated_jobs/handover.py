"""`Handover`: finds the snapshots that the first job of a run has left, and makes the second job from one.

The second job has its own id. As a user would, it submits the same program, perhaps with another parallelism,
and the URL of a snapshot to start from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, with_parallelism
from penstock.runtime.job.job_state import JobState
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, snapshot_url
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.simulation.cluster.master import SECOND_JOB, SimulatedJob
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World
from simulated_jobs.records import ExternalSystem


class StartFrom(Enum):
    """The start of the second job."""

    NEWEST = "the newest snapshot"
    OLDER = "the one before the newest"


@dataclass(frozen=True, slots=True)
class SecondJob:
    """The start of a second job when the first one was stopped or cancelled.

    Attributes:
        parallelism: Of vertices that are to have another one, by their first operator.
        is_moved: Whether a savepoint in a folder of its own is moved first.
    """

    start: StartFrom
    parallelism: Mapping[str, int] = field(default_factory=dict)
    is_moved: bool = False


#: Greater than the number of every attempt.
_NO_ATTEMPT: Final = 1 << 62
#: Where a savepoint is after its user has moved it.
_MOVED: Final = "moved/by-its-user"


class Handover:
    """Finds what the first job has left, and makes the second job of it.

    Args:
        world: Has the storage.
        system: The world outside.
        first: The job that has ended.
        wanted: The second job; `None` for none.

    Attributes:
        is_damaged: Whether there is no second job because what the first one has left is damaged.
    """

    def __init__(
        self, world: World, system: ExternalSystem, first: SimulatedJob, wanted: SecondJob | None
    ) -> None:
        self._world = world
        self._system = system
        self._wanted = wanted
        self._first = first
        self.is_damaged = False
        self._storage: SnapshotStorage = world.storage.reliable()

    def second(self, state: JobState, job: JobGraph) -> SimulatedJob | None:
        """The second job; `None` when the first one is through, or has left nothing to start from.

        Args:
            state: How the first job ended.
            job: The graph as its user wrote it.

        Raises:
            CorruptSnapshotError: Something is damaged that nothing has struck.
        """
        try:
            return self._second(state, job)
        except CorruptSnapshotError as error:
            if not self._world.damage.explains(error):
                raise
            self.is_damaged = True
            return None

    def _second(self, state: JobState, job: JobGraph) -> SimulatedJob | None:
        wanted = self._wanted
        if wanted is None or self._first.config.checkpointing is None:
            return None
        left = DecisionLogReader(self._storage, SnapshotPaths(self._first.id)).replay().completed
        was_stopped = bool(left) and left[-1].kind is SnapshotKind.SYNC_SAVEPOINT
        is_older = wanted.start is StartFrom.OLDER
        if not left or (is_older and len(left) < 2) or (state is JobState.FINISHED and not was_stopped):
            return None
        if state not in (JobState.FINISHED, JobState.CANCELLED):
            return None
        snapshot = read_metadata(self._storage, left[-2 if is_older else -1].metadata)
        if is_older:
            self._system.take_back_to(snapshot.checkpoint_id)
            # An attempt of the first job may still run where it does not hear of the end of its job.
            self._system.fence(self._first.id, _NO_ATTEMPT)
        self._count(snapshot, is_older=is_older)
        url = self._url(snapshot, is_moved=wanted.is_moved)
        parallelism = self._parallelism(job, snapshot, wanted.parallelism)
        self._world.trace.note(f"== a second job starts from {url} with {parallelism} ==")
        graph = build_execution_graph(replace(with_parallelism(job, parallelism), restore_from=url))
        return replace(self._first, id=SECOND_JOB, graph=graph)

    def _count(self, snapshot: CompletedCheckpoint, *, is_older: bool) -> None:
        kind = FaultKind.STARTED_FROM_CHECKPOINT
        if is_older:
            kind = FaultKind.STARTED_FROM_OLDER
        elif snapshot.is_savepoint:
            kind = FaultKind.STARTED_FROM_SAVEPOINT
        self._world.counts.happened(kind)

    def _url(self, snapshot: CompletedCheckpoint, *, is_moved: bool) -> str:
        root = self._storage.url
        url = snapshot_url(snapshot, root)
        if not snapshot.is_savepoint or not is_moved:
            return url
        folder = url.removeprefix(f"{root}/")
        _move_folder(self._storage, folder, _MOVED)
        damage = self._world.damage
        inside = {path: kind for path, kind in damage.items() if path.startswith(f"{folder}/")}
        damage.update({_MOVED + path.removeprefix(folder): kind for path, kind in inside.items()})
        return f"{root}/{_MOVED}"

    def _parallelism(
        self, job: JobGraph, snapshot: CompletedCheckpoint, wanted: Mapping[str, int]
    ) -> dict[str, int]:
        """Of each vertex that is not as its user wrote it.

        A job that was rescaled during unaligned checkpoints keeps its parallelism. A rebalance that used to
        be a forward exchange may hold in-flight data, which a forward exchange can't restore.
        """
        had = {v.id: snapshot.operators[v.id].parallelism for v in job.vertices if v.id in snapshot.operators}
        written = {vertex.id: vertex.parallelism for vertex in job.vertices}
        config = self._first.config.checkpointing
        in_flight = config is not None and config.unaligned and not snapshot.is_savepoint
        was_rescaled = any(written[vertex] != number for vertex, number in had.items())
        new = {**written, **had, **({} if in_flight and was_rescaled else wanted)}
        is_new = any(had.get(vertex, number) != number for vertex, number in new.items())
        self._world.counts.happened(FaultKind.STARTED_RESCALED, int(is_new))
        return {vertex: number for vertex, number in new.items() if number != written[vertex]}


def _move_folder(storage: SnapshotStorage, old: str, new: str) -> None:
    files = storage.list(f"{old}/")
    for path in files:
        storage.put(new + path.removeprefix(old), storage.get(path))
    storage.delete(files)
