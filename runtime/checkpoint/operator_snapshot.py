"""The synchronous and the asynchronous part of a subtask's snapshot.

The synchronous part encodes list states and captures the changes of keyed state, then makes a
`SubtaskSnapshotTask`. `SubtaskSnapshotTask.run` is the asynchronous part. It uses no object of the subtask,
so it may run in any thread. `apply` and `failed` are called in the task's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from penstock.runtime.errors import (
    CodecError,
    CorruptSnapshotError,
    KeyGroupError,
    KeyTypeError,
    StorageError,
)
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.operators.operator_state import RawState, write_raw_keyed
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.metadata import RAW, StateFiles, encode_atoms
from penstock.runtime.state.state_backend import KeyedStateBackend, UnfinishedSnapshot

SPLIT: Final = RedistributionMode.SPLIT_DISTRIBUTE


@dataclass(frozen=True, slots=True)
class EncodedListState:
    """A list state after the synchronous part; `of_type` names its declared type, if any."""

    mode: RedistributionMode
    atoms: tuple[bytes, ...]
    of_type: str = ""
    is_declared: bool = False


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """An operator's state after the synchronous part."""

    lists: Mapping[str, EncodedListState] = field(default_factory=dict)
    keyed: UnfinishedSnapshot | None = None
    raw: RawState = field(default_factory=RawState)


def encode_list_states(states: Mapping[str, SavedList], codec: ValueCodec) -> dict[str, EncodedListState]:
    """Encode an operator's list states, whose values may change when the task continues."""
    return {
        name: EncodedListState(
            state.mode, tuple(map(codec.dumps, state.values)), state.of_type, state.is_declared
        )
        for name, state in states.items()
    }


class SubtaskSnapshotTask:
    """The asynchronous part of one snapshot of one subtask.

    `events` has, for each operator, the number of events that it has sent to its coordinator.
    `max_raw_bytes` limits an operator's raw state.
    """

    def __init__(
        self,
        checkpoint_id: int,
        operators: Mapping[str, OperatorSnapshot],
        backends: Mapping[str, KeyedStateBackend],
        files: Callable[[str], StateFiles],
        *,
        ended: bool = False,
        events: Mapping[str, int] | None = None,
        max_raw_bytes: int | None = None,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self._operators = operators
        self._backends = backends
        self._files = {operator: files(operator) for operator in operators}
        self._ended = ended
        self._events = dict(events or {})
        self._max_raw_bytes = max_raw_bytes
        self._abandoned = False
        self._is_written = False

    def run(self) -> SubtaskSnapshot:
        """Write all state; blocks. Deletes the written files after an error."""
        try:
            snapshot = SubtaskSnapshot(
                {operator: self._write(operator, s) for operator, s in self._operators.items()},
                self._ended,
                self._events,
            )
        except BaseException:
            self.remove()
            raise
        # This sets `_is_written`, then reads `_abandoned`. `abandon` sets `_abandoned`, then reads
        # `_is_written`. So at least one of them sees the other, and the files are removed.
        self._is_written = True
        if self._abandoned:
            self.remove()
        return snapshot

    def abandon(self) -> bool:
        """Abort; if the result is true, `run` has written all state and the caller must call `remove`."""
        self._abandoned = True
        return self._is_written

    def remove(self) -> None:
        """Delete the written files; blocks."""
        for files in self._files.values():
            # A later attempt sweeps files that can't be deleted now.
            with suppress(StorageError):
                files.remove_written()

    def apply(self, snapshot: SubtaskSnapshot) -> None:
        """Notify the keyed backends of the written handles."""
        for operator, backend in self._backends.items():
            for handle in snapshot.operators[operator].keyed:
                backend.snapshot_finished(self.checkpoint_id, handle)

    def failed(self, error: BaseException) -> None:
        """Handle a failure of `run`.

        If a merge has read a damaged or missing file, the next snapshot writes the whole state anew.
        Otherwise no checkpoint would complete again.
        """
        if isinstance(error, CorruptSnapshotError):
            for backend in self._backends.values():
                backend.start_anew()

    @property
    def written_bytes(self) -> int:
        """New bytes in files and in the metadata."""
        return sum(files.written_bytes for files in self._files.values())

    def _write(self, operator: str, snapshot: OperatorSnapshot) -> OperatorSubtaskState:
        files = self._files[operator]
        try:
            keyed = () if snapshot.keyed is None else (snapshot.keyed.finish(files),)
        except (CodecError, KeyTypeError, KeyGroupError) as error:
            msg = f"the keyed state of operator {operator!r} can't be written: {error}"
            raise type(error)(msg) from error
        lists = tuple(
            OperatorStateHandle(
                name, s.mode, files.write(encode_atoms(s.atoms)), len(s.atoms), s.of_type, s.is_declared
            )
            for name, s in snapshot.lists.items()
        )
        raw = snapshot.raw
        self._check_size(operator, raw)
        raw_keyed = write_raw_keyed(raw.keyed, files)
        raw_operator: tuple[OperatorStateHandle, ...] = ()
        if raw.operator:
            pieces = files.write(encode_atoms(raw.operator))
            raw_operator = (OperatorStateHandle(RAW, SPLIT, pieces, len(raw.operator)),)
        return OperatorSubtaskState(keyed, lists, raw_keyed=raw_keyed, raw_operator=raw_operator)

    def _check_size(self, operator: str, raw: RawState) -> None:
        size = sum(map(len, raw.operator)) + sum(map(len, raw.keyed.values()))
        if self._max_raw_bytes is not None and size > self._max_raw_bytes:
            msg = (
                f"the raw state of operator {operator!r} has {size:,} bytes, more than the "
                f"{self._max_raw_bytes:,} of AdvancedConfig(max_raw_state_bytes=...). Raise the limit, "
                "spread the operator over more subtasks, or keep the state as list state or keyed state"
            )
            raise StorageError(msg)
