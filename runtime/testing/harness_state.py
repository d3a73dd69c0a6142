"""Checkpoints of a harness, encoded as in a job and kept in memory; and its backends on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, TypeAlias

from penstock.runtime.config.job_config import HeapState, StateBackend
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.operators.operator_state import RawState, SavedList
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    KeyedStateHandle,
    RedistributionMode,
    StateHandle,
)
from penstock.runtime.snapshot.metadata import RAW
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend, StateBackendOpener
from penstock.runtime.testing.manual_time import ManualClock

#: Each list state's mode and encoded values.
ListsInSnapshot: TypeAlias = Mapping[str, tuple[RedistributionMode, Sequence[bytes]]]


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """A checkpoint of a harness, encoded as in a job.

    Attributes:
        keyed: Keyed state, if the operator has any.
        raw: State that the operator has encoded itself.
    """

    checkpoint_id: int
    lists: ListsInSnapshot = field(default_factory=dict)
    keyed: KeyedStateHandle | None = None
    raw: RawState = field(default_factory=RawState)

    @property
    def old_states(self) -> ListsInSnapshot:
        """List states and raw operator state, in the format of `redistribute`."""
        return {**self.lists, RAW: (RedistributionMode.SPLIT_DISTRIBUTE, self.raw.operator)}


def connector_of(
    location: OperatorLocation, attempt: int, clock: ManualClock, job_id: str
) -> ConnectorContext:
    return ConnectorContext(
        job_id=job_id,
        job_name=job_id,
        operator_id=location.operator,
        subtask=location.subtask or 0,
        parallelism=location.parallelism,
        attempt=attempt,
        clock=clock,
    )


def encoded_lists(states: Mapping[str, SavedList], codec: ValueCodec) -> ListsInSnapshot:
    return {name: (state.mode, tuple(map(codec.dumps, state.values))) for name, state in states.items()}


class FilesInHandles:
    """Keeps the contents of state files in their handles.

    Example:
        >>> files = FilesInHandles()
        >>> files.read(files.write(b"state"))
        b'state'
    """

    def write(self, data: bytes) -> StateHandle:
        return InlineHandle(data)

    def read(self, handle: StateHandle) -> bytes:
        assert isinstance(handle, InlineHandle), "a harness restores what a harness has written"
        return handle.data


#: Loaded by name when a backend is opened, because `testing` must not import `io`.
_OPENER: Final = "penstock.runtime.io.rocksdb.backend"


def open_state_backend(config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
    """Open a new, empty backend: a real database in a temporary folder.

    Raises:
        ConfigurationError: The package of RocksDB is not installed.
    """
    opener: StateBackendOpener = import_module(_OPENER).open_state_backend
    return opener(config, setup)


def restored_backend(
    config: StateBackend, setup: BackendSetup, snapshots: Sequence[HarnessSnapshot], files: FilesInHandles
) -> KeyedStateBackend:
    """Open a backend with the keyed state of the snapshots that belongs to its key groups."""
    is_heap = isinstance(config, HeapState)
    backend = HeapKeyedStateBackend(setup) if is_heap else open_state_backend(config, setup)
    if snapshots:
        keyed = [snapshot.keyed for snapshot in snapshots if snapshot.keyed is not None]
        own = [handle for handle in keyed if len(handle.key_groups.intersection(setup.key_groups))]
        newest = max(snapshot.checkpoint_id for snapshot in snapshots)
        backend.restore(own, files, restored_checkpoint_id=newest)
    return backend
