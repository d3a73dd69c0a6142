"""The descriptors of one attempt: every subtask's operators, channels, state and splits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import OperatorError, OperatorLocation, PenstockError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, sinks_of
from penstock.runtime.operators.sinks import PreparesDestination
from penstock.runtime.operators.source import EnumeratesSplits, SplitsWithWarnings
from penstock.runtime.operators.user_code.failure import operator_error
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.restore import assign_states
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, TaskRestore
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import read_state
from penstock.runtime.snapshot.paths import highest_assigned_id
from penstock.runtime.task.descriptor import OpenedLater, TaskDescriptor


def describe_tasks(
    job_id: str,
    attempt: int,
    graph: ExecutionGraph,
    config: JobConfig,
    restore: CompletedCheckpoint | None,
    storage: SnapshotStorage,
    subtasks: Collection[SubtaskId] | None = None,
    open_location: StorageOpener | None = None,
    *,
    is_first: bool = True,
    warn: Callable[[str], None] = lambda warning: None,
) -> list[TaskDescriptor]:
    """Make one descriptor per subtask; blocks, because it reads state and lists sources' splits.

    Args:
        subtasks: The subtasks to describe: all subtasks of some vertices; `None` for all vertices.
        open_location: Opens the place of a snapshot that is not in the checkpoint storage.
        is_first: Whether this JobMaster has described no attempt before. Without a snapshot, sinks then check
            their destinations.
        warn: Called with a source's warnings about its splits, for the user.

    Raises:
        OperatorError: A source can't list its splits, or a sink refuses its destination.
        CorruptSnapshotError: A file of the checkpoint is damaged.
        StateMismatchError: The checkpoint does not fit the graph.
    """
    restores = {}
    if restore is not None:
        place = storage if restore.location is None else OpenedLater(restore.location, open_location)
        restores = assign_states(
            graph,
            restore,
            lambda handle: read_state(place, handle),
            allow_non_restored_state=graph.job.allow_non_restored_state,
        )
        _check_carried(restore, graph, restores, place)
    elif is_first:
        _prepare_destinations(job_id, graph.job)
    splits = _fresh_splits(graph, restore, subtasks, warn)
    assigned_id = -1 if attempt == 1 or config.checkpointing is None else highest_assigned_id(storage, job_id)
    return [
        TaskDescriptor(
            job_id,
            graph.job.name,
            attempt,
            subtask,
            config,
            restores.get(subtask.id),
            splits.get(subtask.id, ()),
            graph.job.classes,
            assigned_id,
        )
        for subtask in graph.subtasks
        if subtasks is None or subtask.id in subtasks
    ]


def _check_carried(
    restore: CompletedCheckpoint,
    graph: ExecutionGraph,
    restores: Mapping[SubtaskId, TaskRestore],
    place: SnapshotStorage,
) -> None:
    """Check, by reading it, the state that no subtask restores but that the next checkpoint must copy.

    Otherwise each checkpoint would fail at a damaged file, and the job would restart for ever.
    """
    if not restore.is_savepoint and restore.location is None:
        return  # the next checkpoint references these files again, without a copy
    for vertex in graph.job.vertices:
        for operator in vertex.operators:
            state = restore.operators.get(operator.id)
            for index, part in {} if state is None else state.subtasks.items():
                subtask = restores.get(SubtaskId(vertex.id, index))
                if subtask is not None and subtask.finished:
                    for handle in part.files():
                        read_state(place, handle)


def _prepare_destinations(job_id: str, job: JobGraph) -> None:
    parallelism = {spec.id: vertex.parallelism for vertex in job.vertices for spec in vertex.operators}
    for spec, sink in sinks_of(job):
        if isinstance(sink, PreparesDestination):
            location = OperatorLocation(spec.id, None, parallelism[spec.id], spec.defined_at)
            with _errors_at(location, f"sink {type(sink).__name__}: prepare_destination"):
                sink.prepare_destination(job_id)


def _fresh_splits(
    graph: ExecutionGraph,
    restore: CompletedCheckpoint | None,
    subtasks: Collection[SubtaskId] | None,
    warn: Callable[[str], None],
) -> dict[SubtaskId, Sequence[Any]]:
    """The splits of sources without restored state; restored sources have their splits in their state."""
    splits: dict[SubtaskId, Sequence[Any]] = {}
    for vertex in graph.job.vertices:
        if subtasks is not None and SubtaskId(vertex.id, 0) not in subtasks:
            continue
        if isinstance(vertex.operators[0].source, EnumeratesSplits):
            continue  # its coordinator assigns them
        if vertex.is_source and (restore is None or vertex.operators[0].id not in restore.operators):
            listed = _list_splits(vertex, warn)
            for index in range(vertex.parallelism):
                splits[SubtaskId(vertex.id, index)] = listed[index :: vertex.parallelism]
    return splits


def _list_splits(vertex: JobVertex, warn: Callable[[str], None]) -> Sequence[Any]:
    spec = vertex.operators[0]
    assert spec.source is not None, f"{spec.id} is not a source"
    location = OperatorLocation(spec.id, None, vertex.parallelism, spec.defined_at)
    with _errors_at(location, f"source {type(spec.source).__name__}: splits"):
        splits = spec.source.splits(vertex.parallelism)
        if isinstance(splits, SplitsWithWarnings):
            for warning in splits.warnings:
                warn(f"source {spec.id!r}: {warning}")
        return list(splits)


@contextmanager
def _errors_at(location: OperatorLocation, doing: str) -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        raise OperatorError(location, str(error)) from error
    except BaseException as error:  # the user's source or sink
        raise operator_error(location, doing, error) from error
