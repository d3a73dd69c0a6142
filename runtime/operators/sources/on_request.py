"""`OnRequest`: any bounded source, its splits assigned one by one to idle readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from penstock.runtime.misspelt_names import NearestNames
from penstock.runtime.operators.protocols import ConnectorContext, Source, SourceReader
from penstock.runtime.operators.sources.split_enumerator import SplitEnumeratorContext

T = TypeVar("T")


class OnRequest(Generic[T], metaclass=NearestNames):
    """Hands the splits of a source out on request, instead of sharing them out when the job starts.

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
        """The source's."""
        return self._source.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T]:
        """The source's."""
        return self._source.reader(context, splits)

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> OnRequestEnumerator:
        """Hands splits out in the order in which the source lists them."""
        return OnRequestEnumerator(self._source, context, state)


class OnRequestEnumerator:
    """A queue of splits and a queue of readers that wait.

    Args:
        source: Lists the splits.
        context: What it may do.
        state: What `snapshot` gave; `None` for a fresh start.
    """

    def __init__(self, source: Source[Any], context: SplitEnumeratorContext, state: Any | None) -> None:
        self._source = source
        self._context = context
        self._is_listed: bool = state is not None and state[0]
        self._unassigned: deque[Any] = deque(() if state is None else state[1])
        self._waiting: dict[int, None] = {}

    def start(self) -> None:
        """List the splits, unless that was done before the job was restored."""
        if not self._is_listed:
            parallelism = self._context.parallelism
            self._context.run_in_background(lambda: list(self._source.splits(parallelism)), self._listed)

    def handle_split_request(self, subtask: int) -> None:
        """Give the reader the next split, when it is known."""
        self._waiting[subtask] = None
        self._serve()

    def reader_failed(self, subtask: int) -> None:
        """It waits no longer, and asks again when it comes back."""
        self._waiting.pop(subtask, None)

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        """They are next."""
        self._unassigned.extendleft(reversed(splits))
        self._serve()

    def snapshot(self) -> tuple[bool, list[Any]]:
        """Whether the splits were listed, and those that no reader has."""
        return self._is_listed, list(self._unassigned)

    def close(self) -> None:
        """Nothing is held."""

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
    """The splits that no reader has, out of what an enumerator of `OnRequest` gave for a snapshot.

    Args:
        state: What any enumerator gave; a snapshot does not name its owner, so its form decides.

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
