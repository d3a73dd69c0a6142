"""What a depot is handed, what it answers, and its counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import pyarrow as pa

#: An Arrow IPC stream. Ray carries a `pa.Buffer` without a copy of its own.
FrameData: TypeAlias = bytes | pa.Buffer


@dataclass(frozen=True, slots=True)
class Frame:
    """Some Arrow batches of one partition, as an Arrow IPC stream.

    Attributes:
        epoch: Number of the epoch, 0 for the only one.
        run: Names one try to hand the epoch over.
        partition: Index of the Spark partition.
        attempt: Spark's id of the task attempt that computed it.
        number: Its place within the partition, from 0.
        rows: Rows in it.
        data: The IPC stream.
    """

    epoch: int
    run: str
    partition: int
    attempt: int
    number: int
    rows: int
    data: FrameData


class PushOutcome(Enum):
    """What became of a frame."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    #: Frames before it are missing; push it again when they are there.
    EARLY = "early"
    #: It was accepted before with another content.
    DIFFERENT = "different"
    #: The partition has ended with fewer frames.
    SURPLUS = "surplus"
    #: It belongs to a try that was given up.
    STALE = "stale"


class EpochStage(Enum):
    """How far an epoch is in one depot."""

    #: It has not begun, or its frames come.
    OPEN = "open"
    #: All of it is there, and the other depots are asked.
    PREPARED = "prepared"
    #: Its rows may be read.
    CLOSED = "closed"
    #: A later one is closed.
    PAST = "past"
    #: One between the newest closed one and it is missing.
    GAP = "gap"
    #: It has not begun, and would be the first one here, though it is not number 0.
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class ReadFrame:
    """A frame on its way to the reader.

    Attributes:
        partition: Index of the Spark partition.
        data: The IPC stream.
        ends: The epoch that has its end behind this frame, the newest if others are empty; `None` for none.
    """

    partition: int
    data: FrameData
    ends: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read of a depot gave.

    Attributes:
        frames: The frames from the asked position on.
        complete: These are the last ones: all partitions are handed over.
        epoch: The newest epoch that has its end at or before the end of these frames; -1 for none.
    """

    frames: Sequence[ReadFrame]
    complete: bool
    epoch: int = -1


class NoLongerHeldError(Exception):
    """A position was asked for whose frames were let go, or never came."""


@dataclass(frozen=True, slots=True)
class DepotStatistics:
    """Counters of one depot.

    Attributes:
        index: Which reader's depot.
        epochs: Epochs that were closed: 1 when a DataFrame is handed over, else micro-batches.
        partitions: Partitions of which something has come, over all epochs.
        frames: Frames accepted.
        rows: Rows in them.
        bytes: Bytes in them.
        duplicates: Frames that came again, with the same content, and were dropped.
        attempts: Task attempts that have pushed frames; as many as partitions when nothing was retried.
        unread_bytes: Bytes that wait for the reader.
        most_unread_bytes: The most that ever waited.
        held_bytes: Bytes that no completed checkpoint covers yet.
        complete: All partitions are handed over.
        failure: Why the hand-over has failed, if it has.
    """

    index: int
    epochs: int
    partitions: int
    frames: int
    rows: int
    bytes: int
    duplicates: int
    attempts: int
    unread_bytes: int
    most_unread_bytes: int
    held_bytes: int
    complete: bool
    failure: str | None
