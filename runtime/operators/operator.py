"""`Operator`: one step of a chain, working on batches.

An operator is a generator of output batches. That gives slicing for free. The chain may stop after any output
(no credit, a slice is over) and go on later. Unfinished work stays in the generator's frame. Checkpoints
happen between batches only, never inside one call of `process`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.runtime.errors import OperatorLocation
from penstock.runtime.operators.protocols import ConnectorContext, OperatorStatistics
from penstock.runtime.operators.raw_state import RawState
from penstock.runtime.operators.record_cursor import CurrentRecord
from penstock.runtime.record.elements import Batch, Watermark
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.snapshot.permit import CommitPermit
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend


@dataclass(frozen=True, slots=True)
class Tagged:
    """A batch for a side output.

    Attributes:
        tag: Name of the side output.
        batch: What goes there.
    """

    tag: str
    batch: Batch


Output: TypeAlias = Batch | Tagged | Watermark


@dataclass(frozen=True, slots=True)
class ListState:
    """One named list of values that an operator puts into a snapshot.

    Attributes:
        values: What is kept; each value is an atom when the list is redistributed.
        mode: How it is redistributed on restore.
    """

    values: Sequence[Any]
    mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The context that an operator gets when it opens.

    Attributes:
        location: For errors.
        connector: Job, operator, subtask, attempt and clock.
        keyed_state: The subtask's keyed state for this operator, already restored; `None` when not keyed.
        restored: List states by name that this subtask got from the snapshot; empty on a fresh start.
        is_restored: Whether the job starts from a snapshot.
        transactional: Whether checkpoints are taken, so that sinks commit with them.
        restored_permit: Permit of the completed checkpoint that was restored; `None` on a fresh start.
        raw: Raw state that this subtask got from the snapshot; empty on a fresh start.
    """

    location: OperatorLocation
    connector: ConnectorContext
    keyed_state: HeapKeyedStateBackend | None = None
    restored: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    is_restored: bool = False
    transactional: bool = True
    restored_permit: CommitPermit | None = None
    raw: RawState = field(default_factory=RawState)


class Operator:
    """Base of all operators. Every method runs in the task thread of its subtask."""

    #: Whether the operator needs a keyed state backend.
    keyed = False

    #: Whether it yields watermarks of its own; those from before it then end here, but for the end of time.
    makes_watermarks = False

    def open(self, context: OperatorContext) -> None:
        """Get ready; called once per attempt before anything else."""

    def process(self, batch: Batch) -> Iterator[Output]:
        """Process one batch and yield what comes of it, in order."""
        raise NotImplementedError

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Event time has advanced; yield what that fires. The chain forwards the watermark afterwards."""
        return iter(())

    def end_of_data(self) -> Iterator[Output]:
        """No more input will come; yield what is left."""
        return iter(())

    def snapshot(self, checkpoint_id: int) -> Mapping[str, ListState]:
        """The operator's list states for this checkpoint (keyed state is taken by the backend)."""
        return {}

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        """State that the operator has encoded itself; called right after `snapshot`."""
        return RawState()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """A checkpoint is complete; called in the order of ids, some may be left out."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was aborted; its work stays for the next one."""

    @property
    def doing(self) -> str:
        """What the operator runs, as errors call it: `map function parse (job.py:12)`."""
        return type(self).__name__

    @property
    def current_record(self) -> CurrentRecord | None:
        """The record that is being processed, for errors; `None` where nobody can tell."""
        return None

    def statistics(self) -> OperatorStatistics:
        """The operator's counters."""
        return OperatorStatistics()

    def close(self) -> None:
        """Release everything; called once, also after a failure."""


OperatorFactory: TypeAlias = Callable[[], Operator]
