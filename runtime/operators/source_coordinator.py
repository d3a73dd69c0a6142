"""`SourceCoordinator`: the operator coordinator of a source with an enumerator (Flink's class and FLIP-27).

A plain `Source` lists its splits when the job starts, and each subtask gets a fixed share. An *enumerator*
assigns splits at run time. One enumerator for the whole source lives in the JobMaster. Readers without work
request splits. The enumerator assigns some, or signals that there are no more. `OnRequest` gives any bounded
source an enumerator.

The coordinator stands between the user's enumerator and the readers, and is hosted like any other coordinator
(`coordinator_host.py`). It keeps the enumerator's state in checkpoints, and gives the splits of a failed
reader back to the enumerator. An error of the enumerator fails the attempt and names the source.

No split is lost or read twice, because the enumerator's snapshot is taken in one step. A split that was
assigned earlier reaches its reader before the barrier. A later split arrives after the barrier. So each split
is in exactly one snapshot, either the enumerator's or a reader's.

A failed reader restarts from the state of an older checkpoint, which lacks the splits assigned since.
`SplitAssignments` (Flink's `SplitAssignmentTracker`) remembers them, and the enumerator gets them back. A
restore of the whole job does not need this: the enumerator's own state is as old as the readers'.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from penstock.runtime.errors import ConfigurationError, OperatorError, OperatorLocation, PenstockError
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.coordinators import (
    CoordinatorAnswer,
    CoordinatorProvider,
    OperatorCoordinator,
    OperatorCoordinatorContext,
)
from penstock.runtime.operators.source import (
    ConnectorContext,
    EnumeratesSplits,
    FollowsCheckpoints,
    HearsOfFailedReaders,
    NeededColumns,
    ReadsInPart,
    Source,
    SourceReader,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.runtime.operators.user_code.failure import operator_error, short_repr
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.time.durations import Duration

T = TypeVar("T")

#: The event of a reader that has nothing to read. The coordinator answers with a tuple of splits, or with
#: `NO_MORE_SPLITS`: the reader then finishes after its last split.
SPLIT_REQUEST: Final = "request"

NO_MORE_SPLITS: Final = None


class OnRequest(Generic[T], metaclass=NearestNames):
    """Assigns the splits of a source on request, instead of when the job starts.

    For sources with more splits than subtasks, such as a folder of files. A subtask that finishes a split
    takes the next one, so the work is balanced. Each split must be finite, and the order in which splits are
    read is not fixed. Readers get one split at a time.

    Args:
        source: Any source; it lists its splits once, when the job starts without a snapshot.

    Example:
        >>> from penstock.runtime.graph.collection_source import CollectionSource
        >>> OnRequest(CollectionSource("abcdef")).splits(3)
        [(0, 2), (2, 4), (4, 6)]
    """

    def __init__(self, source: Source[T]) -> None:
        if isinstance(source, type) or not isinstance(source, Source):
            msg = f"OnRequest needs a source, not {short_repr(source)}"
            raise ConfigurationError(msg)
        self._source = source

    @property
    def only_reads(self) -> bool:
        """Whether the wrapped source never changes or keeps a returned record."""
        return getattr(self._source, "only_reads", False) is True

    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of the rows if the wrapped source knows it, else `None`."""
        return getattr(self._source, "arrow_schema", None)

    def reading(self, needed: NeededColumns) -> Source[T]:
        """A source of the needed columns and rows only, if the wrapped source supports that."""
        if not isinstance(self._source, ReadsInPart):
            return self
        made = copy.copy(self)
        made._source = self._source.reading(needed)
        return made

    def splits(self, parallelism: int) -> Sequence[Any]:
        """List the splits of the wrapped source."""
        return self._source.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T]:
        """Make a reader of the wrapped source."""
        return self._source.reader(context, splits)

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> OnRequestEnumerator:
        """Make an enumerator that assigns splits in the order in which the source lists them."""
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
        self._waiting.pop(subtask, None)

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        self._unassigned.extendleft(reversed(splits))
        self._serve()

    def snapshot(self) -> tuple[bool, list[Any]]:
        return self._is_listed, list(self._unassigned)

    def close(self) -> None:
        """Do nothing."""

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
    """The splits that no reader has, from the snapshot of an `OnRequestEnumerator`.

    `None` if the splits were not listed yet, or if the snapshot belongs to another enumerator.

    Example:
        >>> unassigned_splits((True, ["b", "c"]))
        ['b', 'c']
        >>> unassigned_splits({"offset": 7}) is None
        True
    """
    if type(state) is tuple and len(state) == 2 and state[0] is True and isinstance(state[1], list):
        return state[1]
    return None


class SplitAssignments:
    """Remembers assignments until a completed checkpoint covers them.

    Example:
        >>> assignments = SplitAssignments()
        >>> assignments.assigned(0, ["a"])
        >>> assignments.checkpointed(1)
        >>> assignments.assigned(0, ["b"])
        >>> assignments.take_back(0, 1)
        ['b']
    """

    def __init__(self) -> None:
        self._since: dict[int, list[Any]] = {}
        self._before: dict[int, dict[int, list[Any]]] = {}

    def assigned(self, subtask: int, splits: Sequence[Any]) -> None:
        self._since.setdefault(subtask, []).extend(splits)

    def checkpointed(self, checkpoint_id: int) -> None:
        self._before[checkpoint_id], self._since = self._since, {}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._before = {known: splits for known, splits in self._before.items() if known > checkpoint_id}

    def take_back(self, subtask: int, checkpoint_id: int | None) -> list[Any]:
        """Remove and return a subtask's splits that this checkpoint lacks; `None` means no checkpoint."""
        restored = -1 if checkpoint_id is None else checkpoint_id
        forgotten: list[Any] = []
        for known in sorted(self._before):
            if known > restored:
                forgotten += self._before[known].pop(subtask, [])
        return forgotten + self._since.pop(subtask, [])


class SourceCoordinator(OperatorCoordinator):
    """Assigns the splits of one source; also the context of its enumerator."""

    def __init__(
        self, source: EnumeratesSplits, context: OperatorCoordinatorContext, location: OperatorLocation
    ) -> None:
        self._source = source
        self._context = context
        self._location = location
        self._state: Any | None = None
        self._enumerator: SplitEnumerator | None = None
        self._assignments = SplitAssignments()
        self._failed: set[int] = set()
        self._signalled: set[int] = set()

    # -- the enumerator's context -------------------------------------------------------------------------

    @property
    def operator_id(self) -> str:
        return self._context.operator_id

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        """Send splits to a reader; the splits of a failed reader are given back when it restarts."""
        if isinstance(splits, str | bytes) or not isinstance(splits, Sequence):
            msg = f"assign takes a list of splits, not {short_repr(splits)}: assign(subtask, [split])"
            raise TypeError(msg)
        self._assignments.assigned(subtask, splits)
        if subtask not in self._failed:
            self._context.send_event(subtask, tuple(splits))

    def signal_no_more_splits(self, subtask: int) -> None:
        if subtask not in self._failed and subtask not in self._signalled:
            self._signalled.add(subtask)
            self._context.send_event(subtask, NO_MORE_SPLITS)

    def run_in_background(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Run blocking work; an error without a handler fails the attempt, and so does a callback's error."""

        def failed(error: BaseException) -> None:
            if on_error is None:
                self._context.fail_job(self._error("background work", error))
            else:
                self._call("on_error of background work", lambda: on_error(error))

        self._context.run_in_background(
            work, lambda result: self._call("background work", lambda: on_result(result)), failed
        )

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        self._context.call_later(delay, lambda: self._call("call_later", callback))

    # -- the coordinator ----------------------------------------------------------------------------------

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        self._state = state

    def start(self) -> None:
        def begin() -> None:
            self._enumerator = self._source.enumerator(self, self._state)
            start: Callable[[], Any] = self._enumerator.start
            check_has_run("start", start())

        self._call("enumerator", begin)

    def handle_event(self, subtask: int, event: Any) -> None:
        """Handle a reader's request for splits; a failed reader gets none."""
        if event != SPLIT_REQUEST:
            msg = f"a reader of {self.operator_id!r} sent {event!r:.80}"
            raise TypeError(msg)
        enumerator = self._enumerator
        if enumerator is not None and subtask not in self._failed:
            self._call("handle_split_request", lambda: enumerator.handle_split_request(subtask))

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        assert self._enumerator is not None, "start() comes first"
        state = self._call("snapshot", self._enumerator.snapshot)
        if state is None:
            what, error = "snapshot", ValueError("it returned None; return the splits that no reader has")
            raise self._error(what, error)
        self._assignments.checkpointed(checkpoint_id)
        enumerator = self._enumerator
        if isinstance(enumerator, FollowsCheckpoints):
            self._call("snapshot_taken", lambda: enumerator.snapshot_taken(checkpoint_id))
        answer.complete(state)

    def subtask_failed(self, subtask: int, reason: str) -> None:
        self._failed.add(subtask)
        self._signalled.discard(subtask)
        enumerator = self._enumerator
        if isinstance(enumerator, HearsOfFailedReaders):
            self._call("reader_failed", lambda: enumerator.reader_failed(subtask))

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """Give back the splits that a restarted reader's state lacks."""
        self._failed.discard(subtask)
        splits = self._assignments.take_back(subtask, checkpoint_id)
        enumerator = self._enumerator
        if splits and enumerator is not None:
            self._call("add_splits_back", lambda: enumerator.add_splits_back(splits))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._assignments.notify_checkpoint_complete(checkpoint_id)
        enumerator = self._enumerator
        if isinstance(enumerator, FollowsCheckpoints):
            self._call(
                "notify_checkpoint_complete", lambda: enumerator.notify_checkpoint_complete(checkpoint_id)
            )

    def close(self) -> None:
        enumerator, self._enumerator = self._enumerator, None
        if enumerator is not None:
            self._call("close", enumerator.close)

    def _call(self, what: str, call: Callable[[], T]) -> T:
        try:
            result = call()
            check_has_run(what, result)
            return result
        except BaseException as error:  # the user's enumerator
            raise self._error(what, error) from error

    def _error(self, what: str, error: BaseException) -> OperatorError:
        if isinstance(error, OperatorError):
            return error
        if isinstance(error, PenstockError):
            return OperatorError(self._location, str(error))
        return operator_error(self._location, f"source {type(self._source).__name__}: {what}", error)


class SourceCoordinatorProvider(CoordinatorProvider):
    """Makes the coordinators of a source with an enumerator (Flink's class)."""

    def __init__(self, source: EnumeratesSplits, location: OperatorLocation) -> None:
        self._source = source
        self._location = location

    def make(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        return SourceCoordinator(self._source, context, self._location)

    def name(self, coordinator: OperatorCoordinator | None) -> str:
        return f"source {type(self._source).__name__}"

    def check_restored(self, checkpoint_id: int | None, state: Any | None) -> None:
        """Refuse a checkpoint that was taken when the source had no enumerator."""
        if checkpoint_id is not None and state is None:
            msg = (
                f"{self._location}: when the checkpoint was taken, this source had no enumerator: all splits "
                "were assigned at the start of the job, so the unread ones are not known. Restore the old "
                "source, or start without a snapshot"
            )
            raise PenstockError(msg)

    def must_arrive(self, event: Any) -> bool:
        """Return true for splits: otherwise they would be lost. `NO_MORE_SPLITS` need not arrive."""
        return event is not NO_MORE_SPLITS
