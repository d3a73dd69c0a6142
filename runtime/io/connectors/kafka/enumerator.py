"""`KafkaSourceEnumerator`: finds the partitions of a source and gives each to a reader (Flink's class).

No consumer group assigns partitions: a group would move them whenever a reader joins or leaves, without
regard to checkpoints. The topic and number of a partition determine its reader. A partition that is found
later starts at its first record. The start of the others is resolved once, when the job first lists them.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NotRequired, TypedDict

from penstock.runtime.io.connectors.kafka.cluster import may_pass
from penstock.runtime.io.connectors.kafka.offsets import OffsetsInitializer
from penstock.runtime.io.connectors.kafka.partitions import (
    KafkaPartitionSplit,
    PartitionMetadata,
    TopicPartition,
)
from penstock.runtime.io.connectors.kafka.sample import LearnsSchema
from penstock.runtime.operators.source import SplitEnumeratorContext

logger = logging.getLogger(__name__)


class EnumeratorState(TypedDict):
    """State in a checkpoint: the partitions that are known, and whether the first list was made.

    Attributes:
        schema: The schema of values that the job has learned, serialized.
    """

    known: list[TopicPartition]
    is_listed: bool
    schema: NotRequired[bytes]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions of a source, and where each starts and stops.

    Attributes:
        topics: Names of topics; empty with a pattern.
        pattern: Regular expression that matches whole names of topics.
        stopping: `None` for a source without an end.
        discover_every: Seconds after which the enumerator looks for new partitions again; `None` looks once.
        wait: Waits in a background thread until an event is set, or until the given seconds have passed.
        learn: Learns the schema of values.
    """

    topics: tuple[str, ...]
    pattern: str | None
    starting: OffsetsInitializer
    stopping: OffsetsInitializer | None
    discover_every: float | None
    metadata: Callable[[], PartitionMetadata]
    wait: Callable[[threading.Event, float], bool]
    learn: LearnsSchema | None = None

    def find(
        self, known: Collection[TopicPartition], *, is_first: bool, schema: bytes = b""
    ) -> list[KafkaPartitionSplit]:
        """List the partitions that are not known yet; blocks.

        Args:
            schema: The schema that the job has learned; empty before.
        """
        metadata = self.metadata()
        new = [name for name in metadata.partitions(self.topics, self.pattern) if name not in known]
        if not new:
            return []
        starts = (self.starting if is_first else OffsetsInitializer.earliest()).resolve(new, metadata)
        stops = {} if self.stopping is None else self.stopping.resolve(new, metadata)
        splits = [KafkaPartitionSplit(*name, starts[name], stops.get(name)) for name in new]
        if self.learn is None:
            return splits
        schema = schema or self.learn(splits, metadata)
        return [replace(split, schema=schema) for split in splits]


class KafkaSourceEnumerator:
    """Assigns each partition when it is found; readers of a bounded source end after their last one."""

    def __init__(
        self, subscription: Subscription, context: SplitEnumeratorContext, state: EnumeratorState | None
    ) -> None:
        self._subscription = subscription
        self._context = context
        self._known: set[TopicPartition] = set() if state is None else set(state["known"])
        self._is_listed = state is not None and state["is_listed"]
        self._schema = b"" if state is None else state.get("schema", b"")
        self._closing = threading.Event()
        self._first_looks = 0

    def start(self) -> None:
        if not self._is_listed or self._subscription.stopping is None:
            self._look(after=0.0)

    def handle_split_request(self, subtask: int) -> None:
        if self._is_listed and self._subscription.stopping is not None:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        self._assign(splits)

    def snapshot(self) -> EnumeratorState:
        return {"known": sorted(self._known), "is_listed": self._is_listed, "schema": self._schema}

    def close(self) -> None:
        self._closing.set()

    def _look(self, after: float) -> None:
        """Look for partitions in the background."""
        work = partial(self._found, after, frozenset(self._known), is_first=not self._is_listed)
        self._context.run_in_background(work, self._listed, self._unanswered)

    def _found(
        self, after: float, known: Collection[TopicPartition], *, is_first: bool
    ) -> list[KafkaPartitionSplit]:
        if self._subscription.wait(self._closing, after):
            return []
        return self._subscription.find(known, is_first=is_first, schema=self._schema)

    def _listed(self, splits: list[KafkaPartitionSplit]) -> None:
        is_first, self._is_listed = not self._is_listed, True
        self._known |= {split.name for split in splits}
        if splits:
            self._schema = splits[0].schema
        self._assign(splits)
        if self._subscription.stopping is not None:
            for subtask in range(self._context.parallelism):
                self._context.signal_no_more_splits(subtask)
            return
        if splits and not is_first:
            logger.info("%s: %d new partition(s)", self._context.operator_id, len(splits))
        self._look_again()

    def _unanswered(self, error: BaseException) -> None:
        """Repeat a failed search.

        Until a first search has succeeded, a failure fails the attempt: at once, or at the third try if the
        error may pass.
        """
        if not self._is_listed:
            self._first_looks += 1
            if self._first_looks >= _MOST_FIRST_LOOKS or not may_pass(error):
                raise error
            logger.warning("%s: the search for partitions is repeated: %s", self._context.operator_id, error)
            self._look(after=0.0)
            return
        logger.warning("%s: the search for new partitions failed: %s", self._context.operator_id, error)
        self._look_again()

    def _look_again(self) -> None:
        every = self._subscription.discover_every
        if every is not None and not self._closing.is_set():
            self._look(every)

    def _assign(self, splits: Sequence[KafkaPartitionSplit]) -> None:
        by_reader: dict[int, list[KafkaPartitionSplit]] = {}
        for split in splits:
            by_reader.setdefault(owner(split.name, self._context.parallelism), []).append(split)
        for subtask, mine in by_reader.items():
            self._context.assign(subtask, mine)


def owner(partition: TopicPartition, parallelism: int) -> int:
    """The reader of a partition; the partitions of one topic go to the readers in turn.

    Example:
        >>> sorted(owner(("orders", number), 3) for number in range(6))
        [0, 0, 1, 1, 2, 2]
    """
    topic, number = partition
    return (zlib.crc32(topic.encode()) + number) % parallelism


#: Maximum attempts to list the partitions for the first time; each waits up to `REQUEST_TIMEOUT` for brokers.
_MOST_FIRST_LOOKS: Final = 3

#: Seconds after which the enumerator looks for new partitions again.
DISCOVER_EVERY: Final[float] = 60.0
