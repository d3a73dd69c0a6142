"""`AcknowledgingReader`: gives out messages, and acknowledges them when a completed checkpoint covers them.

A broker forgets a message when it is acknowledged. So the reader acknowledges a message only when a
*completed* checkpoint covers it (Flink's `MessageAcknowledgingSourceBase`):

- Each batch comes with *tokens*, which acknowledge its messages, and with the split's next *position*.
- A snapshot holds the positions. The tokens since the previous snapshot belong to its checkpoint.
- When that checkpoint is complete, its tokens and those of all earlier checkpoints go to the broker.

A message whose checkpoint is not complete is never acknowledged, so the broker delivers it again. A message
may be delivered again although a checkpoint covers it. The split's receiver then drops it, if the position
identifies it. Only with such positions is delivery exactly once. The position of a stream is a number or an
id, and the position of a webhook is the keys of its latest requests. MQTT has no positions, so its delivery
is at least once.

A lost acknowledgement loses no message, because the message is delivered again. The reader never acknowledges
in `snapshot` or at its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import replace
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from penstock.runtime.io.connectors.arrow_batches import arrow_rows
from penstock.runtime.io.connectors.messages.fetcher import MessageFetcher
from penstock.runtime.operators.lag import SourceLag, SplitLag
from penstock.runtime.operators.source import Polled, SplitProgress

T = TypeVar("T")


class MessageSplit(Protocol):
    """One stream, subscription or listener, with the position after the last record."""

    @property
    def name(self) -> Hashable: ...

    def moved_to(self, position: Any) -> Self: ...


@runtime_checkable
class SplitWithLag(Protocol):
    """Optional for a split: computes its lag from the end that its receiver finds."""

    def lag(self, end: Any) -> int | None:
        """Return the number of records between the position and the end; `None` if it is not known."""
        ...


class AcknowledgingReader(Generic[T]):
    """Reads the splits of one subtask.

    Args:
        is_arrow: Whether batches are Arrow batches, which have more rows.
    """

    makes_new_records = True

    def __init__(
        self, splits: Sequence[MessageSplit], fetcher: MessageFetcher, *, is_arrow: bool = False
    ) -> None:
        self._fetcher = fetcher
        self._is_arrow = is_arrow
        self._splits = {split.name: split for split in splits}
        self._tokens: list[tuple[Hashable, Sequence[Any]]] = []
        self._covered: dict[int, list[tuple[Hashable, Sequence[Any]]]] = {}
        self.split_progress = SplitProgress(tuple(self._splits))

    def poll(self, max_rows: int) -> Polled[T]:
        self._fetcher.max_rows = arrow_rows(max_rows) if self._is_arrow else max_rows
        if not self._splits:
            return Polled(finished=True)
        fetched = self._fetcher.take()
        if fetched is None:
            return Polled()
        name = fetched.split
        self._splits[name] = self._splits[name].moved_to(fetched.position)
        if fetched.tokens:
            self._tokens.append((name, fetched.tokens))
        if fetched.is_last:
            del self._splits[name]
            self.split_progress = SplitProgress(tuple(self._splits))
        return replace(fetched.polled, split=name, finished=not self._splits)

    def pause_splits(self, paused: Set[Hashable]) -> None:
        self._fetcher.pause(paused)

    def snapshot(self) -> Sequence[Any]:
        return list(self._splits.values())

    def snapshot_taken(self, checkpoint_id: int) -> None:
        self._covered[checkpoint_id] = self._tokens
        self._tokens = []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for known in sorted(self._covered):
            if known <= checkpoint_id:
                for name, tokens in self._covered.pop(known):
                    self._fetcher.acknowledge(name, tokens)

    def lag(self) -> SourceLag | None:
        """The number of messages between each split's position and its end; `None` unless all are known."""
        left: dict[str, int] = {}
        for name, split in self._splits.copy().items():
            end = self._fetcher.end(name)
            records = split.lag(end) if end is not None and isinstance(split, SplitWithLag) else None
            if records is None:
                return None
            left[str(name)] = records
        return SourceLag.of(SplitLag(name, records) for name, records in left.items())

    def close(self) -> None:
        self._fetcher.close()
