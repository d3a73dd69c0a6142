"""`OffsetsInitializer`: the offsets at which a source starts or stops (Flink's class).

The enumerator resolves an initializer to numbers when it finds a partition. So a split always has the offset
of its next record, and a restored job never asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.kafka.partitions import PartitionMetadata, TopicPartition
from penstock.runtime.time.durations import micros_of

#: Handling of a missing offset: the job fails, or the partition is read from one of its ends.
OffsetReset: TypeAlias = Literal["error", "earliest", "latest"]
OFFSET_RESETS: Final = ("error", "earliest", "latest")


@dataclass(frozen=True, slots=True)
class OffsetsInitializer:
    """The offsets at which a `KafkaSource` starts or stops; made by one of its functions.

    Example:
        >>> from datetime import UTC, datetime
        >>> OffsetsInitializer.timestamp(datetime(2026, 5, 1, tzinfo=UTC)).milliseconds
        1777593600000
    """

    kind: Literal["earliest", "latest", "committed", "timestamp", "offsets"]
    reset: OffsetReset = "error"
    milliseconds: int = 0
    given: Mapping[TopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> OffsetsInitializer:
        """The first record that each partition still has."""
        return OffsetsInitializer("earliest")

    @staticmethod
    def latest() -> OffsetsInitializer:
        """The end of each partition when the source finds it."""
        return OffsetsInitializer("latest")

    @staticmethod
    def committed_offsets(reset: OffsetReset = "error") -> OffsetsInitializer:
        """The offsets that the source's `group_id` has committed.

        Args:
            reset: Where to start a partition without a committed offset; by default the job fails.
        """
        return OffsetsInitializer("committed", checked_setting("reset", reset, OFFSET_RESETS))

    @staticmethod
    def timestamp(moment: datetime | int) -> OffsetsInitializer:
        """The first record of each partition whose timestamp is this moment or later.

        Args:
            moment: A `datetime` with a time zone, or microseconds since the epoch.
        """
        return OffsetsInitializer("timestamp", milliseconds=-(-micros_of(moment) // 1000))

    @staticmethod
    def offsets(given: Mapping[TopicPartition, int], reset: OffsetReset = "error") -> OffsetsInitializer:
        """An offset for each `(topic, partition)`.

        Args:
            reset: Where to start a partition that is not in `given`; by default the job fails.

        Raises:
            ConfigurationError: A key is not a `(topic, partition)`, or an offset is negative.
        """
        for key, offset in given.items():
            is_partition = type(key) is tuple and [type(part) for part in key] == [str, int]
            if not is_partition or type(offset) is not int or offset < 0:
                msg = (
                    f"offsets has {key!r}: {offset!r}; write {{('topic', 0): 42}}, with offsets of at least 0"
                )
                raise ConfigurationError(msg)
        reset = checked_setting("reset", reset, OFFSET_RESETS)
        return OffsetsInitializer("offsets", reset, given=dict(given))

    def resolve(
        self, partitions: Collection[TopicPartition], known: PartitionMetadata
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition.

        Raises:
            ConnectorError: A partition has no offset, and `reset` is `"error"`.
        """
        if self.kind == "earliest":
            return known.beginning_offsets(partitions)
        if self.kind == "latest":
            return known.end_offsets(partitions)
        if self.kind == "timestamp":
            return known.offsets_for_times(partitions, self.milliseconds)
        given = known.committed(partitions) if self.kind == "committed" else self.given
        found = {partition: given[partition] for partition in partitions if partition in given}
        missing = [partition for partition in partitions if partition not in found]
        if not missing:
            return found
        if self.reset == "error":
            topic, partition = missing[0]
            what = "the group has committed none" if self.kind == "committed" else "none is given"
            msg = (
                f"partition {partition} of topic {topic!r} has no offset to start at: {what}. Give one, or "
                f"set reset='earliest' or reset='latest' ({len(missing)} of {len(partitions)} partitions)"
            )
            raise ConnectorError(msg)
        ends = known.beginning_offsets if self.reset == "earliest" else known.end_offsets
        return found | ends(missing)
