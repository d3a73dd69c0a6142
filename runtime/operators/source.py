"""`SourceOperator`: the reader of one subtask, its splits in snapshots, and its errors located.

It is not an `Operator`: nothing flows into it. The subtask polls it and hands what it gave to the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.externally_induced import ExternallyInducedReader
from penstock.runtime.operators.failure import operator_error, short_repr
from penstock.runtime.operators.operator import OperatorContext, SavedList
from penstock.runtime.operators.protocols import (
    FollowsCheckpoints,
    OperatorStatistics,
    Polled,
    Source,
    SourceReader,
)
from penstock.runtime.operators.requested_splits import RequestedSplits
from penstock.runtime.operators.split_enumerator import EnumeratesSplits

#: Name of the list state with the unfinished splits.
SPLITS: Final = "splits"

T = TypeVar("T")


class SourceOperator:
    """Reads a source's splits in one subtask.

    Args:
        source: The user's source.

    Attributes:
        mark: The checkpoint whose mark the reader has met, until it is taken or aborted.
    """

    def __init__(self, source: Source[Any]) -> None:
        self._source = source
        self._context: OperatorContext | None = None
        self._reader: SourceReader[Any] | None = None
        self._induced: ExternallyInducedReader | None = None
        self._follower: FollowsCheckpoints | None = None
        self.mark: int | None = None
        self._requested: RequestedSplits[Any] | None = None
        self._records = self._dead_letters = self._skipped = 0

    def open(
        self,
        context: OperatorContext,
        splits: Sequence[Any] = (),
        send_event: Callable[[Any], None] | None = None,
    ) -> None:
        """Make the reader for the restored splits, or for fresh ones where nothing was restored.

        Args:
            context: Where it runs and what was restored.
            splits: This subtask's share of a fresh start.
            send_event: Carries events to the source's coordinator; for sources that have one.

        Raises:
            OperatorError: The reader could not be made.
        """
        self._context = context
        mine = list(context.restored.get(SPLITS, splits))
        if send_event is not None and isinstance(self._source, EnumeratesSplits):
            self._requested = RequestedSplits(self._source, context.connector, mine, send_event)
            self._reader = self._requested
        else:
            self._reader = self.guarded("reader", lambda: self._source.reader(context.connector, mine))
        # Asked once: looking whether a class fits a protocol takes longer than many a poll.
        self._induced = self._reader if isinstance(self._reader, ExternallyInducedReader) else None
        self._follower = self._reader if isinstance(self._reader, FollowsCheckpoints) else None

    def handle_event(self, event: Any) -> None:
        """The source's coordinator has sent something.

        Raises:
            PenstockError: The source has no coordinator.
            OperatorError: The reader failed.
        """
        requested = self._requested
        if requested is None:
            msg = f"{type(self._source).__name__} has no coordinator but was sent {event!r:.80}"
            raise PenstockError(msg)
        self.guarded("handle_event", lambda: requested.handle_event(event))

    def poll(self, max_rows: int) -> Polled[Any]:
        """Ask the reader for about `max_rows` records.

        Raises:
            OperatorError: The reader failed, or gave something that is not a `Polled`.
        """
        reader = self._opened_reader
        polled = self.guarded("poll", lambda: _checked(reader.poll(max_rows)))
        if self._induced is not None:
            self.mark = self.guarded("should_trigger_checkpoint", self._induced.should_trigger_checkpoint)
        self._records += 0 if polled.batch is None else len(polled.batch)
        self._dead_letters += len(polled.dead_letters)
        self._skipped += polled.skipped
        return polled

    @property
    def is_externally_induced(self) -> bool:
        """Whether the reader says when checkpoints are taken."""
        return self._induced is not None

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        """The unfinished splits, positioned after the last record that `poll` returned.

        Raises:
            OperatorError: The reader failed.
        """
        reader = self._opened_reader
        splits = self.guarded("snapshot", lambda: tuple(reader.snapshot()))
        follower = self._follower
        if follower is not None:
            self.guarded("snapshot_taken", lambda: follower.snapshot_taken(checkpoint_id))
        return {SPLITS: SavedList(splits)}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell a reader that wants to know.

        Raises:
            OperatorError: The reader failed.
        """
        follower = self._follower
        if follower is not None:
            self.guarded(
                "notify_checkpoint_complete", lambda: follower.notify_checkpoint_complete(checkpoint_id)
            )

    def statistics(self) -> OperatorStatistics:
        """Records read, skipped and set aside."""
        return OperatorStatistics(
            records_out=self._records, records_skipped=self._skipped, dead_letters=self._dead_letters
        )

    def close(self) -> None:
        """Close the reader.

        Raises:
            OperatorError: The reader failed.
        """
        reader, self._reader = self._reader, None
        if reader is not None:
            self.guarded("close", reader.close)

    @property
    def _opened_reader(self) -> SourceReader[Any]:
        assert self._reader is not None, "open() comes first"
        return self._reader

    def doing(self, what: str) -> str:
        """What the source runs, as errors call it: `source Numbers: poll`."""
        return f"source {type(self._source).__name__}: {what}"

    def guarded(self, what: str, call: Callable[[], T]) -> T:
        """Call something of the reader.

        Raises:
            OperatorError: It failed.
        """
        assert self._context is not None, "open() comes first"
        try:
            return call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise operator_error(self._context.location, self.doing(what), error) from error


def _checked(polled: Any) -> Polled[Any]:
    if not isinstance(polled, Polled):
        msg = f"poll returned {short_repr(polled)} of type {type(polled).__name__}; return a Polled(...)"
        raise PenstockError(msg)
    return polled
