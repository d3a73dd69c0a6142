"""`KafkaReader`: reads the partitions of one subtask."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, Generic, TypeVar

from penstock.runtime.io.connectors.arrow_batches import arrow_rows
from penstock.runtime.io.connectors.kafka.fetcher import KafkaFetcher
from penstock.runtime.io.connectors.kafka.partitions import KafkaPartitionSplit, TopicPartition
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.source import Polled, SplitProgress

T = TypeVar("T")


class KafkaReader(Generic[T]):
    """Returns the batches that its fetcher has decoded, and keeps the position of each partition.

    Args:
        is_arrow: Whether batches are Arrow batches, which have more rows.
        commits: Whether the offsets of completed checkpoints are committed to the consumer group.
    """

    makes_new_records = True

    def __init__(
        self,
        fetcher: KafkaFetcher,
        splits: Sequence[KafkaPartitionSplit],
        *,
        is_arrow: bool,
        commits: bool,
    ) -> None:
        self._fetcher = fetcher
        self._is_arrow = is_arrow
        self._commits = commits
        self._splits: dict[TopicPartition, KafkaPartitionSplit] = {}
        self._ended: dict[TopicPartition, int] = {}
        self._covered: dict[int, dict[TopicPartition, int]] = {}
        self.split_progress = SplitProgress(())
        self.add_splits(splits)

    def poll(self, max_rows: int) -> Polled[T]:
        self._fetcher.max_rows = arrow_rows(max_rows) if self._is_arrow else max_rows
        if not self._splits:
            return Polled(finished=True)
        fetched = self._fetcher.take()
        if fetched is None:
            return Polled()
        name = fetched.partition
        if fetched.is_last:
            del self._splits[name]
            self._ended[name] = fetched.next_offset
            self._show_progress()
        else:
            self._splits[name] = replace(self._splits[name], next_offset=fetched.next_offset)
        return replace(fetched.polled, split=name, finished=not self._splits)

    def add_splits(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        left = [split for split in splits if not split.is_finished]
        self._splits |= {split.name: split for split in left}
        self._show_progress()
        if left:
            self._fetcher.add(left)

    def pause_splits(self, paused: Set[Any]) -> None:
        self._fetcher.pause(paused)

    def snapshot(self) -> Sequence[KafkaPartitionSplit]:
        return list(self._splits.values())

    def snapshot_taken(self, checkpoint_id: int) -> None:
        if self._commits:
            reading = {name: split.next_offset for name, split in self._splits.items()}
            self._covered[checkpoint_id] = self._ended | reading

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        offsets = self._covered.get(checkpoint_id)
        self._covered = {known: at for known, at in self._covered.items() if known > checkpoint_id}
        if offsets:
            self._fetcher.commit(offsets)

    def lag(self) -> SourceLag | None:
        """The distance of each partition's position from its end, in offsets."""
        return self._fetcher.lag(self._splits.copy().values())

    def close(self) -> None:
        self._fetcher.close()

    def _show_progress(self) -> None:
        self.split_progress = SplitProgress(tuple(self._splits))
