"""Checkpoints of an `OperatorHarness`: encoded as in a job, kept in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.runtime.operators.operator_state import RawState
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    KeyedStateHandle,
    RedistributionMode,
    StateHandle,
)
from penstock.runtime.snapshot.metadata import RAW


@dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """One checkpoint of one harness, encoded as in a job.

    Attributes:
        lists: Each list state's mode and encoded values.
        keyed: Keyed state, if the operator has any.
        raw: State that the operator has encoded itself.
    """

    checkpoint_id: int
    lists: Mapping[str, tuple[RedistributionMode, Sequence[bytes]]] = field(default_factory=dict)
    keyed: KeyedStateHandle | None = None
    raw: RawState = field(default_factory=RawState)

    @property
    def old_states(self) -> dict[str, tuple[RedistributionMode, Sequence[bytes]]]:
        """List states and raw operator state, in the form of `redistribute`."""
        return {**self.lists, RAW: (RedistributionMode.SPLIT_DISTRIBUTE, self.raw.operator)}


class FilesInHandles:
    """Keeps the contents of state files in their handles.

    Example:
        >>> files = FilesInHandles()
        >>> files.read(files.write(b"state"))
        b'state'
    """

    def write(self, data: bytes) -> StateHandle:
        """A handle that holds `data`."""
        return InlineHandle(data)

    def read(self, handle: StateHandle) -> bytes:
        """The content of a handle of `write`."""
        assert isinstance(handle, InlineHandle), "a harness restores what a harness has written"
        return handle.data
