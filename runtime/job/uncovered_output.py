"""`UncoveredOutput`: removes the output of an ended job that can't be committed any more.

Uncommitted output of a sink can be committed only if a completed snapshot names it. The newest snapshot names
all of it, because a sink keeps its uncommitted output in every later snapshot. So everything else can be
removed, under two conditions:

1. *The end of the job is in the log.* From then on no checkpoint completes, so nothing becomes covered later.
A process that is cut off and still runs gets no permit to commit what was removed. What it writes afterwards
stays where it is. 2. *The newest snapshot could be read.* Otherwise nothing is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.runtime.errors import StorageError
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.operators.protocols import RemovesUncovered
from penstock.runtime.operators.sinks.sink import COMMITTABLES, SinkOperator
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.list_state import decode_atoms
from penstock.runtime.snapshot.metadata import read_state


class UncoveredOutput:
    """The uncommitted output of a job's sinks.

    Args:
        graph: Its operators.
        codec: Decodes the sinks' state in snapshots.
        storage: Has the snapshots.
        open_location: Opens storages of snapshots that are not in `storage`.
    """

    def __init__(
        self,
        job_id: str,
        graph: JobGraph,
        codec: ValueCodec,
        storage: SnapshotStorage,
        open_location: StorageOpener | None,
    ) -> None:
        self._job_id = job_id
        self._codec = codec
        self._storage = storage
        self._open_location = open_location
        self._sinks = dict(_sinks_of(graph))

    @property
    def is_known(self) -> bool:
        """Whether any sink of the job can remove its output."""
        return bool(self._sinks)

    def remove(self, newest: CompletedCheckpoint | None) -> None:
        """Remove what is not covered; blocks. The job's end must be in the log.

        Args:
            newest: The job's newest completed checkpoint or savepoint.

        Raises:
            StorageError: The snapshot could not be read: nothing was removed.
            Exception: Whatever a sink raises.
        """
        covered = {operator: list(self._covered(operator, newest)) for operator in self._sinks}
        for operator, sink in self._sinks.items():
            sink.remove_uncovered(self._job_id, operator, covered[operator])

    def _covered(self, operator: str, newest: CompletedCheckpoint | None) -> Iterator[Any]:
        state = None if newest is None else newest.operators.get(operator)
        if newest is None or state is None:
            return
        place = self._place(newest)
        for subtask in state.subtasks.values():
            for handle in subtask.operator:
                if handle.name == COMMITTABLES:
                    for atom in decode_atoms(read_state(place, handle.state), "the newest snapshot"):
                        _, committable = self._codec.loads(atom)
                        yield committable

    def _place(self, checkpoint: CompletedCheckpoint) -> SnapshotStorage:
        if checkpoint.location is None:
            return self._storage
        if self._open_location is None:
            msg = f"nobody can open {checkpoint.location}, where the job's newest savepoint is"
            raise StorageError(msg)
        return self._open_location(checkpoint.location)


def _sinks_of(graph: JobGraph) -> Iterator[tuple[str, RemovesUncovered]]:
    for spec in (spec for vertex in graph.vertices for spec in vertex.operators):
        if not spec.is_sink or spec.factory is None:
            continue
        operator = spec.factory()
        if isinstance(operator, SinkOperator) and isinstance(operator.sink, RemovesUncovered):
            yield spec.id, operator.sink
