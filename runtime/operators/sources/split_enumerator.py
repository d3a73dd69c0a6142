"""Sources that hand out their splits while the job runs (Flink's FLIP-27: enumerator and reader).

A plain `Source` lists its splits when the job starts, and each subtask gets a fixed share. A source that has
an *enumerator* decides as it goes. One enumerator for the whole source lives in the JobMaster. Readers
without work ask it, and it answers with splits or says that there are no more. So a fast subtask reads more,
and splits may be found while the job runs.

The enumerator's state is part of every checkpoint, cut at the same place as the readers' state. So a split is
with the enumerator or with exactly one reader, whatever fails and when.

`OnRequest` makes such a source of any bounded one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from penstock.runtime.names import NearestNames
from penstock.runtime.operators.protocols import ConnectorContext, Source, SourceReader

T = TypeVar("T")

#: The event of a reader that has nothing to read. The coordinator answers with a tuple of splits, or with
#: `NO_MORE_SPLITS`: the reader finishes when it has read the splits that it has.
SPLIT_REQUEST: Final = "request"
NO_MORE_SPLITS: Final = None


class SplitEnumeratorContext(Protocol):
    """The calls that an enumerator may make."""

    @property
    def operator_id(self) -> str:
        """Id of the source's operator."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of readers."""
        ...

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        """Hand splits to a reader; from now on the reader owns them.

        Splits wait for a reader that has not started yet, so `start` may assign.
        """
        ...

    def signal_no_more_splits(self, subtask: int) -> None:
        """Send a reader the end of its splits: it finishes when it has read those that it has."""
        ...

    def run_in_background(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Run blocking work, such as listing a folder; the callback runs in the enumerator's thread.

        Without `on_error` an error fails the job. No callback runs after the job was restored.

        Args:
            work: The blocking call.
        """
        ...


class SplitEnumerator(Protocol):
    """Hands out the splits of one source. All calls come from one thread and must not block."""

    def start(self) -> None:
        """Begin or continue the job; called once, before anything else."""
        ...

    def handle_split_request(self, subtask: int) -> None:
        """Handle an idle reader's request: assign splits now or later, or signal that there are no more."""
        ...

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        """Take back splits of a failed reader that were not in a checkpoint yet."""
        ...

    def snapshot(self) -> Any:
        """All splits that no reader has, and any other state.

        Any value that the codec carries, but not `None`.
        """
        ...

    def close(self) -> None:
        """End the attempt or the job; called once."""
        ...


@runtime_checkable
class HearsOfFailedReaders(Protocol):
    """A `SplitEnumerator` that remembers which readers wait, so it must drop those that fail."""

    def reader_failed(self, subtask: int) -> None:
        """Drop a failed reader; it requests again after its restart if it has nothing to read."""
        ...


@runtime_checkable
class EnumeratesSplits(Protocol):
    """A `Source` that has an enumerator; its `splits` is not called by the job."""

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> SplitEnumerator:
        """Make the enumerator from a checkpoint's state; `None` is a fresh start."""
        ...


class OnRequest(Generic[T], metaclass=NearestNames):
    """Hands the splits of a source out on request, instead of assigning them when the job starts.

    For sources with more splits than subtasks, such as a folder of files. A subtask that is done early takes
    the next split, so none is left with a large share. Each split must come to an end, and the order in which
    splits are read is not fixed. Readers get one split at a time.

    Args:
        source: Any source; it lists its splits once, when the job starts from nothing.

    Example:
        >>> from penstock.runtime.graph.collection_source import CollectionSource
        >>> OnRequest(CollectionSource("abcdef")).splits(3)
        [(0, 2), (2, 4), (4, 6)]
    """

    def __init__(self, source: Source[T]) -> None:
        self._source = source

    def splits(self, parallelism: int) -> Sequence[Any]:
        """List the splits of the wrapped source."""
        return self._source.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T]:
        """Make a reader of the wrapped source."""
        return self._source.reader(context, splits)

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> OnRequestEnumerator:
        """Make an enumerator that hands splits out in the order in which the source lists them."""
        return OnRequestEnumerator(self._source, context, state)


class OnRequestEnumerator:
    """A queue of splits and a queue of readers that wait; `state` is `None` for a fresh start."""

    def __init__(self, source: Source[Any], context: SplitEnumeratorContext, state: Any | None) -> None:
        self._source = source
        self._context = context
        self._is_listed: bool = state is not None and state[0]
        self._unassigned: deque[Any] = deque(() if state is None else state[1])
        self._waiting: dict[int, None] = {}

    def start(self) -> None:
        if not self._is_listed:
            parallelism = self._context.parallelism
            self._context.run_in_background(lambda: list(self._source.splits(parallelism)), self._listed)

    def handle_split_request(self, subtask: int) -> None:
        self._waiting[subtask] = None
        self._serve()

    def reader_failed(self, subtask: int) -> None:
        """Drop the waiting reader; it requests again after its restart."""
        self._waiting.pop(subtask, None)

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        self._unassigned.extendleft(reversed(splits))
        self._serve()

    def snapshot(self) -> tuple[bool, list[Any]]:
        return self._is_listed, list(self._unassigned)

    def close(self) -> None:
        """Release nothing."""

    def _listed(self, splits: list[Any]) -> None:
        self._is_listed = True
        self._unassigned.extend(splits)
        self._serve()

    def _serve(self) -> None:
        while self._is_listed and self._waiting:
            subtask = next(iter(self._waiting))
            del self._waiting[subtask]
            if self._unassigned:
                self._context.assign(subtask, [self._unassigned.popleft()])
            else:
                self._context.signal_no_more_splits(subtask)


def unassigned_splits(state: Any) -> Sequence[Any] | None:
    """The splits that no reader has, from an enumerator's snapshot.

    Args:
        state: Any enumerator's snapshot; it does not name its owner, so its form decides.

    Returns:
        The splits; `None` when they were not listed yet, or the state is another enumerator's.

    Example:
        >>> unassigned_splits((True, ["b", "c"]))
        ['b', 'c']
        >>> unassigned_splits({"offset": 7}) is None
        True
    """
    if type(state) is tuple and len(state) == 2 and state[0] is True and isinstance(state[1], list):
        return state[1]
    return None
