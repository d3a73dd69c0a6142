"""Sources that hand out their splits while the job runs (Flink's FLIP-27: enumerator and reader).

A plain `Source` lists its splits when the job starts, and each subtask gets a fixed share. A source that has
an *enumerator* decides as it goes. One enumerator for the whole source lives in the JobMaster. Readers
without work ask it, and it answers with splits or says that there are no more. So a fast subtask reads more,
and splits may be found while the job runs.

The enumerator's state is part of every checkpoint, cut at the same place as the readers' state. So a split is
with the enumerator or with exactly one reader, whatever fails and when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


class SplitEnumeratorContext(Protocol):
    """The calls that an enumerator may make."""

    @property
    def operator_id(self) -> str:
        """Id of the source."""
        ...

    @property
    def parallelism(self) -> int:
        """How many readers there are."""
        ...

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        """Hand splits to a reader; from now on they are not the enumerator's.

        They wait for a reader that is not there yet, so `start` may assign.
        """
        ...

    def signal_no_more_splits(self, subtask: int) -> None:
        """Tell a reader that it gets no more splits: it finishes when it has read those that it has."""
        ...

    def run_in_background(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Run what blocks, such as listing a folder; its end is told in the enumerator's thread.

        Without `on_error` an error fails the job. Nothing is told after the job was restored.

        Args:
            work: What blocks.
        """
        ...


class SplitEnumerator(Protocol):
    """Hands out the splits of one source. All calls come from one thread and must not block."""

    def start(self) -> None:
        """The job begins or goes on; called once, before anything else."""
        ...

    def handle_split_request(self, subtask: int) -> None:
        """A reader has nothing to read: assign something now or later, or say that there is no more."""
        ...

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        """A reader failed before these, which it had been given, got into a checkpoint."""
        ...

    def snapshot(self) -> Any:
        """All splits that no reader has, and what else must not be forgotten.

        Any value that the codec carries, but not `None`.
        """
        ...

    def close(self) -> None:
        """The attempt or the job is over; called once."""
        ...


@runtime_checkable
class HearsOfFailedReaders(Protocol):
    """A `SplitEnumerator` that remembers which readers wait, so it must forget those that fail."""

    def reader_failed(self, subtask: int) -> None:
        """A reader is gone and comes back later; if it has nothing to read then it asks again."""
        ...


@runtime_checkable
class EnumeratesSplits(Protocol):
    """A `Source` that has an enumerator; its `splits` is not called by the job."""

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> SplitEnumerator:
        """Make the enumerator.

        Args:
            context: What it may do.
            state: What `snapshot` gave for the checkpoint that the job starts from; `None` for a fresh start.
        """
        ...
