"""The state of a complete checkpoint, from acknowledgements and from the state of finished subtasks.

Every checkpoint takes over the last state of finished subtasks from the previous snapshot. A restart needs
their empty lists of splits and their last transactions. The checkpoint also names the finished subtasks
(`restore.py`). Usually the new checkpoint names the same files as the previous one. Files are copied if they
have another owner or location:

* The job was started from the previous snapshot, which belongs to another job or is a savepoint.
* The previous snapshot is a savepoint of the job, whose files the user owns.
* The new checkpoint is a savepoint, which needs all its files in its own folder.

After a region has restarted, the subtasks of other regions keep their attempt. For a savepoint in the job's
own storage they write into the folder of their attempt. These files are copied into the folder of the
savepoint's metadata, which users move as a whole.

If a file that must be copied is damaged, no later checkpoint can be completed either. So a checkpoint then
fails the attempt (`CarriedStateError`); a savepoint fails alone. The next attempt finds the damage and names
it, or starts from an older checkpoint if the user allows that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.restore import finished_in_checkpoint
from penstock.runtime.snapshot.checkpoint_record import CompletedCheckpointStatistics
from penstock.runtime.snapshot.completed_checkpoint import CarriedState, CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    OperatorState,
    OperatorSubtaskState,
    StateHandle,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import read_state, write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths


def completed_checkpoint(
    pending: PendingCheckpoint,
    graph: ExecutionGraph,
    previous: CompletedCheckpoint | None,
    completed_at: float,
    statistics: CompletedCheckpointStatistics,
) -> CompletedCheckpoint:
    """Make the completed checkpoint from all acknowledgements, before its metadata is written.

    `previous` is the newest completed checkpoint, or the snapshot that the attempt started from.
    """
    known = {} if previous is None else previous.operators
    finished = pending.plan.finished
    operators = collect_states(graph, pending.snapshots, finished, known)
    carried = _carried(graph, finished, known)
    return CompletedCheckpoint(
        pending.checkpoint_id,
        pending.attempt,
        pending.kind,
        with_coordinators(graph, operators, pending.coordinator_states),
        pending.triggered_at,
        completed_at,
        location=pending.location,
        master_states=pending.master_states,
        carried=CarriedState(carried, previous.location) if carried and previous is not None else None,
        statistics=statistics,
        drained=pending.drained,
    )


def collect_states(
    graph: ExecutionGraph,
    snapshots: Mapping[SubtaskId, SubtaskSnapshot | None],
    finished: Iterable[SubtaskId],
    previous: Mapping[str, OperatorState],
) -> dict[str, OperatorState]:
    """Turn subtask snapshots into operator states; finished subtasks keep their `previous` state."""
    gone = tuple(finished)
    ended = [subtask for subtask, snapshot in snapshots.items() if snapshot is not None and snapshot.ended]
    done: dict[str, set[int]] = {}
    for subtask in finished_in_checkpoint(graph, [*gone, *ended]):
        done.setdefault(subtask.vertex, set()).add(subtask.index)
    parts: dict[str, dict[int, OperatorSubtaskState]] = {}
    for subtask, snapshot in snapshots.items():
        for operator, state in (snapshot.operators if snapshot is not None else {}).items():
            parts.setdefault(operator, {})[subtask.index] = state
    for operator, indices in _carried(graph, gone, previous).items():
        # A finished subtask has consumed the in-flight data of its last checkpoint.
        kept = previous[operator].subtasks
        parts.setdefault(operator, {}).update({i: replace(kept[i], channels=None) for i in indices})
    return {
        spec.id: OperatorState(
            spec.id,
            vertex.parallelism,
            vertex.max_parallelism,
            dict(sorted(parts.get(spec.id, {}).items())),
            frozenset(done.get(vertex.id, ())),
        )
        for vertex in graph.job.vertices
        for spec in vertex.operators
        if spec.id in parts or vertex.id in done
    }


def _carried(
    graph: ExecutionGraph, finished: Iterable[SubtaskId], previous: Mapping[str, OperatorState]
) -> dict[str, tuple[int, ...]]:
    carried: dict[str, list[int]] = {}
    for subtask in finished:
        vertex = graph.job.vertex(subtask.vertex)
        for spec in vertex.operators:
            before = previous.get(spec.id)
            same = before is not None and before.parallelism == vertex.parallelism
            if before is not None and same and subtask.index in before.subtasks:
                carried.setdefault(spec.id, []).append(subtask.index)
    return {operator: tuple(indices) for operator, indices in carried.items()}


def with_coordinators(
    graph: ExecutionGraph, operators: Mapping[str, OperatorState], coordinators: Mapping[str, StateHandle]
) -> dict[str, OperatorState]:
    states = dict(operators)
    for vertex in graph.job.vertices:
        for spec in vertex.operators:
            if spec.id in coordinators:
                state = states.get(spec.id) or OperatorState(
                    spec.id, vertex.parallelism, vertex.max_parallelism
                )
                states[spec.id] = replace(state, coordinator=coordinators[spec.id])
    return states


class CarriedStateError(CorruptSnapshotError):
    """State of a finished subtask that must be copied is damaged or missing."""


def bring_along(
    checkpoint: CompletedCheckpoint,
    storage: SnapshotStorage,
    paths: SnapshotPaths,
    open_location: StorageOpener | None,
) -> CompletedCheckpoint:
    """Copy carried files if necessary, and return the checkpoint with the copies; blocks.

    Raises:
        CarriedStateError: A file of the previous snapshot is missing or damaged.
    """
    carried = checkpoint.carried
    if carried is None:
        return _gathered(checkpoint, storage, paths)
    copier = _Copier(checkpoint, carried, storage, paths, open_location)
    operators = dict(checkpoint.operators)
    for operator_id, indices in carried.subtasks.items():
        state = operators[operator_id]
        copied = {i: _with_files(state.subtasks[i], copier.of(operator_id, i)) for i in indices}
        operators[operator_id] = replace(state, subtasks={**state.subtasks, **copied})
    return _gathered(replace(checkpoint, operators=operators, carried=None), storage, paths)


def left_behind(
    before: CompletedCheckpoint, after: CompletedCheckpoint, paths: SnapshotPaths
) -> tuple[str, ...]:
    """Files that a completed savepoint has replaced by copies."""
    if not after.is_savepoint:
        return ()
    named = {handle.path for handle in after.files()}
    return tuple(
        handle.path
        for handle in before.files()
        if handle.path not in named and _is_of_savepoint(handle.path, after.checkpoint_id, paths)
    )


def _is_of_savepoint(path: str, checkpoint_id: int, paths: SnapshotPaths) -> bool:
    """Whether a subtask wrote this file for the savepoint with this id, in any attempt."""
    return paths.writer_of(path) is None and paths.checkpoint_of(path) == checkpoint_id


def _gathered(
    checkpoint: CompletedCheckpoint, storage: SnapshotStorage, paths: SnapshotPaths
) -> CompletedCheckpoint:
    """Copy the files of a savepoint in the job's own storage into the folder of its metadata."""
    if not checkpoint.is_savepoint or checkpoint.location is not None:
        return checkpoint
    folder = paths.snapshot_folder(checkpoint.kind, checkpoint.checkpoint_id, checkpoint.attempt)
    copies: dict[str, FileHandle] = {}

    def copied(handle: StateHandle) -> StateHandle:
        if not isinstance(handle, FileHandle) or handle.path.startswith(folder):
            return handle
        if not _is_of_savepoint(handle.path, checkpoint.checkpoint_id, paths):
            return handle
        if handle.path not in copies:
            # Unique: the name has operator, subtask and number, and a subtask writes in one attempt only.
            name = folder + handle.path.rpartition("/")[2]
            copies[handle.path] = write_state_file(storage, name, read_state(storage, handle))
        return copies[handle.path]

    operators = {
        operator_id: replace(
            state, subtasks={index: _with_files(part, copied) for index, part in state.subtasks.items()}
        )
        for operator_id, state in checkpoint.operators.items()
    }
    return replace(checkpoint, operators=operators) if copies else checkpoint


class _Copier:
    """Copies each file that can't stay in place, once."""

    def __init__(
        self,
        checkpoint: CompletedCheckpoint,
        carried: CarriedState,
        storage: SnapshotStorage,
        paths: SnapshotPaths,
        open_location: StorageOpener | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._carried = carried
        self._storage = storage
        self._paths = paths
        self._open_location = open_location
        self._copies: dict[str, FileHandle] = {}

    def of(self, operator_id: str, subtask: int) -> Callable[[StateHandle], StateHandle]:
        """Return a function that replaces a handle of one subtask with a copy if necessary."""
        numbers = count()

        def copied(handle: StateHandle) -> StateHandle:
            if not isinstance(handle, FileHandle) or self._may_stay(handle):
                return handle
            if handle.path not in self._copies:
                path = self._path(operator_id, subtask, next(numbers))
                data = self._read(handle)
                place = self._place(self._checkpoint.location, create=True)
                self._copies[handle.path] = write_state_file(place, path, data)
            return self._copies[handle.path]

        return copied

    def _read(self, handle: FileHandle) -> bytes:
        try:
            return read_state(self._place(self._carried.location), handle)
        except CorruptSnapshotError as error:
            raise CarriedStateError(str(error)) from error

    def _may_stay(self, handle: FileHandle) -> bool:
        is_of_this_job = self._carried.location is None and self._paths.may_delete(handle)
        return is_of_this_job and not self._checkpoint.is_savepoint

    def _path(self, operator_id: str, subtask: int, number: int) -> str:
        if self._checkpoint.location is not None:
            return self._paths.savepoint_file_name(operator_id=operator_id, subtask=subtask, number=number)
        name = self._paths.savepoint_file if self._checkpoint.is_savepoint else self._paths.shared_file
        return name(
            checkpoint_id=self._checkpoint.checkpoint_id,
            attempt=self._checkpoint.attempt,
            operator_id=operator_id,
            subtask=subtask,
            number=number,
        )

    def _place(self, location: str | None, *, create: bool = False) -> SnapshotStorage:
        if location is None:
            return self._storage
        if self._open_location is None:
            msg = f"{location} can't be opened to copy state of finished subtasks: no file system was given"
            raise StorageError(msg)
        return self._open_location(location, create=create)


def _with_files(
    state: OperatorSubtaskState, copied: Callable[[StateHandle], StateHandle]
) -> OperatorSubtaskState:
    return replace(
        state,
        keyed=tuple(replace(keyed, files=tuple(map(copied, keyed.files))) for keyed in state.keyed),
        raw_keyed=tuple(replace(keyed, files=tuple(map(copied, keyed.files))) for keyed in state.raw_keyed),
        operator=tuple(replace(handle, state=copied(handle.state)) for handle in state.operator),
        raw_operator=tuple(replace(handle, state=copied(handle.state)) for handle in state.raw_operator),
    )
