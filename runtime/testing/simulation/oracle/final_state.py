"""The state in the last checkpoint of a job, read as a job that starts from it would read it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.operators.sources.source import SPLITS
from penstock.runtime.operators.timers.function_timers import PROCESSING_TIMERS
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import KeyGroupRange, StateHandle
from penstock.runtime.snapshot.list_state import decode_atoms
from penstock.runtime.snapshot.metadata import read_metadata, read_state
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.testing.simulation.jobs.operators import COUNTED, SEEN
from penstock.runtime.testing.simulation.jobs.timed import DUE, Item


def newest_checkpoint(storage: SnapshotStorage, job_id: str) -> CompletedCheckpoint | None:
    """The newest checkpoint that stands in a job's log; `None` when there is none.

    Raises:
        CorruptSnapshotError: It is damaged or missing.
    """
    newest = DecisionLog(storage, SnapshotPaths(job_id)).replay().newest
    return None if newest is None else read_metadata(storage, newest.metadata)


class FinalState:
    """The state in the last checkpoint.

    Args:
        storage: Where it is.

    Raises:
        CorruptSnapshotError: Something of it is damaged or missing.
    """

    def __init__(self, storage: SnapshotStorage, checkpoint: CompletedCheckpoint) -> None:
        self._storage = storage
        self._codec = ValueCodec()
        self._checkpoint = checkpoint

    def keyed(self, operator: str, number: int) -> dict[Any, tuple[int, int]]:
        """Number and digest of each key of a keyed operator."""
        entries = self._backend(operator).table(SEEN).entries
        return {key: (seen[0], seen[1]) for key, seen in entries.items()}

    def waiting_items(self, operator: str) -> Counter[Item]:
        """The records that wait for timers in the part that lives by time."""
        due = self._backend(operator).table(DUE, nested=True).entries
        return Counter(item for moments in due.values() for items in moments.values() for item in items)

    def timer_problems(self, operator: str) -> list[str]:
        """What is wrong with the timers of processing time: each is that of records which wait for it."""
        backend = self._backend(operator)
        due = backend.table(DUE, nested=True).entries
        timers = backend.table(PROCESSING_TIMERS, nested=True).entries
        return [
            f"{operator}, key {key}: timers at {sorted(timers.get(key, ()))} instead of {sorted(moments)}"
            for key, moments in due.items()
            if timers.get(key, {}).keys() != moments.keys()
        ]

    def counted(self, operator: str) -> int:
        """How many records the subtasks of a step have counted."""
        return sum(self._values(operator, COUNTED))

    def unread(self, operator: str) -> list[Any]:
        """Splits of a source that are not finished, with its readers or with its coordinator."""
        state = self._checkpoint.operators.get(operator)
        if state is None or state.coordinator is None:
            return self._values(operator, SPLITS)
        _, unassigned = self._codec.loads(self.read(state.coordinator))
        return self._values(operator, SPLITS) + list(unassigned)

    def read(self, handle: StateHandle) -> bytes:
        """The bytes behind a handle."""
        return read_state(self._storage, handle)

    def _backend(self, operator: str) -> HeapKeyedStateBackend:
        """The keyed state of an operator, of all its subtasks; empty for one that has none."""
        state = self._checkpoint.operators.get(operator)
        if state is None:
            return HeapKeyedStateBackend(1, KeyGroupRange(0, 0), self._codec)
        groups = KeyGroupRange(0, state.max_parallelism - 1)
        backend = HeapKeyedStateBackend(state.max_parallelism, groups, self._codec)
        backend.restore([handle for s in state.subtasks.values() for handle in s.keyed], self)
        return backend

    def _values(self, operator: str, name: str) -> list[Any]:
        state = self._checkpoint.operators.get(operator)
        if state is None:
            return []
        return [
            self._codec.loads(atom)
            for subtask in state.subtasks.values()
            for handle in subtask.operator
            if handle.name == name
            for atom in decode_atoms(self.read(handle.state), operator)
        ]
