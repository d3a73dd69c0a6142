"""The messages of a receive buffer: frames, answers, counters and errors; and the names of actors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.actors.shared.registry import find_actor
from penstock.bridge.needed_part import NeededPart
from penstock.runtime.errors import PenstockError

#: An Arrow IPC stream. Ray sends a `pa.Buffer` without copying it.
FrameData: TypeAlias = bytes | pa.Buffer


#: Bytes that may wait for the reader before Spark has to wait.
DEFAULT_WINDOW: Final = 64 * 1024 * 1024
#: Bytes that one receive buffer may hold in files.
DEFAULT_MAX_DISK_BYTES: Final = 64 * 1024**3


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """Settings of all receive buffers of a transfer.

    Attributes:
        transfer: Id of the transfer, by which the buffers find the program with the Spark session.
        window: Bytes that may wait for the reader before Spark has to wait, unless `staged`; also the maximum
            held in memory.
        staged: Whether frames of an epoch can be read only after it is closed.
        max_disk_bytes: Maximum bytes in files.
        part: Part of the DataFrame that Spark transfers to these buffers.
    """

    transfer: str
    window: int = DEFAULT_WINDOW
    staged: bool = False
    max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES
    part: NeededPart = field(default_factory=NeededPart)


@dataclass(frozen=True, slots=True)
class Frame:
    """Some Arrow batches of one partition, as an Arrow IPC stream.

    Attributes:
        epoch: Number of the epoch; 0 for a DataFrame.
        run: Name of one attempt to transfer the epoch.
        number: Number of the frame within the partition, from 0.
    """

    epoch: int
    run: str
    partition: int
    attempt: int
    number: int
    rows: int
    data: FrameData


class PushOutcome(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    #: Earlier frames are missing; push this frame again after them.
    EARLY = "early"
    #: A frame with this number but different content was already accepted.
    DIFFERENT = "different"
    #: The partition has ended with fewer frames.
    SURPLUS = "surplus"
    #: The frame belongs to an abandoned run.
    STALE = "stale"
    #: The transfer has failed.
    FAILED = "failed"


class EpochStage(Enum):
    #: The epoch has not begun, or its frames are arriving.
    OPEN = "open"
    #: The epoch is complete here; other receive buffers may lack frames.
    PREPARED = "prepared"
    #: The epoch's rows may be read.
    CLOSED = "closed"
    #: A later epoch is closed.
    PAST = "past"
    #: An earlier epoch is missing.
    GAP = "gap"
    #: The epoch would be the first one here, although its number is not 0.
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class ReadFrame:
    """A frame for the reader; `ends` is the newest epoch that ends with it, or `None`."""

    partition: int
    data: FrameData
    ends: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The result of one read.

    Attributes:
        complete: Whether these are the last frames.
        epoch: The newest epoch that ends at or before the end of these frames; -1 for none.
    """

    frames: Sequence[ReadFrame]
    complete: bool
    epoch: int = -1


class NoLongerHeldError(Exception):
    """The frames at a position were released, or never arrived."""


@dataclass(frozen=True, slots=True)
class ReceiveBufferStatistics:
    """Counters of one receive buffer.

    Attributes:
        index: Index of the reader.
        epochs: Closed epochs: 1 for a DataFrame, else the number of micro-batches.
        partitions: Partitions with at least one pushed frame, over all epochs.
        frames: Accepted frames.
        duplicates: Frames that arrived again with the same content and were dropped.
        attempts: Task attempts that have pushed frames; equals `partitions` when nothing was retried.
        unread_bytes: Bytes that wait for the reader.
        most_unread_bytes: The highest value of `unread_bytes`.
        held_bytes: Bytes that no completed checkpoint covers yet.
        complete: Whether all partitions have been transferred.
        failure: Reason for the failure of the transfer, if it has failed.
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


#: The program that would transfer the rest has ended.
NO_PROGRAM: Final = (
    "the program with the Spark session ended, or stopped the session, before all partitions were "
    "transferred; start the job again, and keep both until wait_for_transfer(job) returns"
)
#: Ray could not reach that program's rendezvous for a long time, and does not report it dead.
UNREACHABLE_PROGRAM: Final = (
    "Ray could not reach the program with the Spark session for a minute; check the nodes and the network "
    "(`ray status`, `ray list nodes`), and start the job again"
)
#: The position belongs to another incarnation of the receive buffer.
OTHER_BUFFER: Final = (
    "the checkpoint's position refers to rows that are no longer held: their process died, or they belonged "
    "to the job that wrote the savepoint. Start the job without this snapshot"
)
#: A streaming DataFrame serves one job.
ONE_JOB: Final = "this streaming DataFrame is read by job {}; make a DataFrame for each job"
#: The receive buffer has ended.
DIED: Final = (
    "the process that holds the rows between Spark and the job died, and rows that it held are in no "
    "checkpoint; start the job again"
)
#: Ray could not reach the receive buffer for a long time, and does not report it dead.
UNREACHABLE: Final = (
    "Ray could not reach the process that holds the rows between Spark and the job for a minute; check its "
    "node and the network (`ray status`, `ray list nodes`), and start the job again"
)


class TransferError(PenstockError): ...


def different_rows(partition: int) -> str:
    """Error text: Spark computed the partition again, with different rows."""
    return (
        f"partition {partition} gave different rows when Spark computed it again, so its rows can't be told "
        "apart from those already transferred. Make the DataFrame deterministic (sortWithinPartitions "
        "after a shuffle, seeds for rand), or store it first with df.localCheckpoint() or as Parquet"
    )


_PREFIX: Final = "receive-buffer:"


def buffer_name(job_id: str, transfer: str, index: int) -> str:
    return f"{_PREFIX}{job_id}:{transfer}:{index}"


def buffer_prefix(job_id: str) -> str:
    return f"{_PREFIX}{job_id}:"


@lru_cache(maxsize=256)
def find_buffer(name: str) -> Any:
    """A receive buffer; looked up once per process, because names are never reused."""
    return find_actor(name)


def rendezvous_name(transfer: str) -> str:
    return f"rendezvous:{transfer}"
