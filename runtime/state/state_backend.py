"""The port between operators and what stores their keyed state.

Operators know these protocols and nothing else of a backend, so that a second one (state on disk) needs no
second operator. An entry of keyed state is found by key group, key and, in a nested table, a second part
(`state_table.py`). A backend saves entries in one format, whatever it stores them in (`keyed_chunk.py`). So
the savepoint of one is restored by the other.

What an operator may rely on:

* `entries` of a table behave as a dict. A value may be changed in place, if its key is then put into
  `changed`. A backend that stores bytes reads a value into memory at the first look, and writes it when its
  key is put into `changed`.
* A change is told behind the change itself, and what was changed in place no later than anything else of its
  table. A backend may write back, and drop what it has read, as soon as it is told. A value that iteration
  gives is not changed in place.
* A view that `bind` makes is for the current key, and reading it costs no more than the backend must.
* `snapshot` is short, and stops the task. What it returns is finished in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.ports import Clock
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange
from penstock.runtime.state.columns.column_table import ColumnTable
from penstock.runtime.state.keyed_snapshot import StateFileReader, StateFileWriter
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.state_table import HasCurrentKey
from penstock.runtime.state.time_to_live import StateTime


class ChangedEntries(Protocol):
    """Takes note of entries that were written or deleted."""

    @property
    def add(self) -> Callable[[Any], None]:
        """One entry was."""
        ...

    @property
    def update(self) -> Callable[[Iterable[Any]], None]:
        """All of these were."""
        ...

    def put(self, entries: Sequence[Any], values: Sequence[Any], /) -> None:
        """All of these were written, and the table has these values of them; of one entry the last counts."""
        ...

    def put_new(self, entry: Any, value: Any, /) -> None:
        """One entry was put in. Only for a table whose entries are never written over."""
        ...

    def remove(self, entry: Any, /) -> None:
        """One entry was deleted that was put in so."""
        ...


class KeyedTable(Protocol):
    """The state of one name; see `StateTable`."""

    @property
    def entries(self) -> MutableMapping[Any, Any]:
        """Value by key."""
        ...

    @property
    def changed(self) -> ChangedEntries:
        """Is told what was written or deleted."""
        ...


class UnfinishedSnapshot(Protocol):
    """Keyed state of one operator in one subtask after the synchronous half of a snapshot."""

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        """Write it; in another thread, blocks.

        Raises:
            StorageError: A file could not be written or read.
            CorruptSnapshotError: A file to be merged is damaged.
        """
        ...


class KeyedStateBackend(HasCurrentKey, Protocol):
    """The keyed state of one operator in one subtask; see `HeapKeyedStateBackend` for each method.

    Attributes:
        max_parallelism: Number of key groups.
        key_groups: The range that this subtask owns.
        time: What time it is for state with a TTL; operators tell it watermarks and timestamps.
    """

    max_parallelism: int
    key_groups: KeyGroupRange
    time: StateTime

    @property
    def sweep_in(self) -> float | None:
        """Seconds until there is work for `sweep`; not above 0 when there is, `None` for never."""
        ...

    def sweep(self, most: int) -> None:
        """Work between two batches: delete what has expired, this many entries at most."""
        ...

    @property
    def is_examination_due(self) -> bool:
        """Whether so much has changed that `examine_changes` should be called before the next batch."""
        ...

    def examine_changes(self) -> None:
        """Work between two batches, for some milliseconds: prepare the next snapshot."""
        ...

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of the tables that hold anything."""
        ...

    def table(self, name: str, *, nested: bool = False) -> KeyedTable:
        """The table of this name."""
        ...

    def column_table(self, name: str) -> ColumnTable:
        """The table in columns of this name."""
        ...

    def bind(self, declaration: KeyedState, *, is_declared: bool = False) -> KeyedState:
        """A view of a state for the current key."""
        ...

    def rename(self, declaration: KeyedState) -> None:
        """Give a restored state its new name."""
        ...

    def contents(self, name: str) -> dict[Any, Any]:
        """A copy of what a state holds that has not expired: by key a value, a list or a map."""
        ...

    def keys(self, name: str) -> list[Any]:
        """The keys of this subtask that have something in a table."""
        ...

    def snapshot(
        self, checkpoint_id: int, confirmed_id: int, *, self_contained: bool = False
    ) -> UnfinishedSnapshot:
        """The synchronous half of a snapshot."""
        ...

    def snapshot_finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """A snapshot's files are written."""
        ...

    def confirm(self, checkpoint_id: int) -> None:
        """A checkpoint is complete."""
        ...

    def forget(self, checkpoint_id: int) -> None:
        """The job gave a checkpoint up."""
        ...

    def start_anew(self) -> None:
        """The next snapshot holds all state."""
        ...

    def restore(
        self,
        handles: Sequence[KeyedStateHandle],
        files: StateFileReader,
        restored_checkpoint_id: int | None = None,
    ) -> None:
        """Replace all state by what these handles hold for this subtask's key groups; blocks."""
        ...

    def close(self) -> None:
        """Give back what it holds outside of memory; it is not used any more."""
        ...


@dataclass(frozen=True, slots=True)
class BackendSetup:
    """Whose keyed state a backend is to keep.

    Attributes:
        operator: Id of the operator, for messages.
        key_groups: The range that the subtask owns.
        codec: Encodes keys and values.
        takes_snapshots: Whether `snapshot` will ever be called.
        clock: Tells the time for state with a TTL; may be left out where there is none.
        isolates: Whether views copy what they take and give, unless it can't change.
    """

    operator: str
    max_parallelism: int
    key_groups: KeyGroupRange
    codec: ValueCodec
    takes_snapshots: bool = True
    clock: Clock | None = None
    isolates: bool = True


class StateBackendOpener(Protocol):
    """Makes backends that keep state outside of the heap."""

    def __call__(self, config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
        """A new, empty backend.

        Raises:
            ConfigurationError: What it needs is not installed.
            StorageError: There is no room for it.
        """
        ...
