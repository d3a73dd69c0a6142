"""`ReceiveBuffer`: holds the rows of one reader subtask between Spark and the job.

Spark tasks push *frames* (some Arrow batches, as bytes) of their partitions into it. The reader takes frames
out in the order of acceptance, and reports the frames that a completed checkpoint covers. This module has the
logic, without Ray or threads; `receive_buffer_actor.py` is the actor around it.

Why every row comes out exactly once:

* Frames are numbered within their partition, from 0. The buffer accepts a partition's frames in that order,
  each number once. A retried or speculative Spark task pushes the same frames again under another attempt.
  The buffer recognises them by their numbers and drops them.
* This needs the same frames from every attempt. Spark does not promise that: a shuffle may change the order
  of rows, and `rand()` gives other values. So the buffer keeps a digest of every frame. A frame that arrives
  again with other content fails the transfer; two computations are never mixed.
* Frames stay in the buffer until a checkpoint covers them. A restored reader requests frames from its
  position on and gets the same ones. Spark is not needed again, and may have ended.
* The buffer is complete when it has every frame that Spark counted in each partition.
* An epoch ends in two steps, because all buffers must agree. A buffer has *prepared* an epoch when it has
  every frame that Spark counted. The epoch is *closed* when all buffers have prepared it. If one buffer has
  closed it, the others close it, too. Spark never computes the epoch again, because its partitions might
  differ.

A DataFrame is one epoch, whose frames can be read as soon as they are accepted. Each micro-batch of a
streaming query is an epoch of its own, whose frames can be read once it is closed. So a micro-batch that
Spark abandons and runs again has never reached the job: its frames are dropped when the next run begins. A
closed epoch is never accepted again; Spark promises that its batch id stands for the same rows.

Flow control: an accepted frame is acknowledged only while at most `window` bytes wait for the reader. A Spark
task has few unacknowledged frames, so it waits when the job is slow. Frames that were read but are not yet
covered do not count; if they do not fit in memory, they are in files (`frame_store.py`).

The buffer must never acknowledge a frame that it has not stored, and never drop a frame that no checkpoint
covers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import xxhash

from penstock.bridge.frame_store import FrameLocation, FrameStore
from penstock.bridge.receive_buffer_messages import (
    DEFAULT_WINDOW,
    Chunk,
    EpochStage,
    Frame,
    NoLongerHeldError,
    PushOutcome,
    ReadFrame,
    ReceiveBufferStatistics,
)


class ClosedEpochs:
    """The closed epochs, each with the number of frames up to its end.

    Attributes:
        newest: The newest closed epoch; -1 for none.
        covered: The newest epoch that a completed checkpoint covers; -1 for none.
        emitted: The newest epoch that the reader has emitted; decreases after a restore.
        begins: Whether no epoch is closed yet, and the reader has not resumed another job's snapshot.

    Example:
        >>> epochs = ClosedEpochs()
        >>> epochs.add(0, end=2)
        >>> epochs.add(1, end=2)  # without a frame
        >>> epochs.at(1), epochs.at(2), epochs.ending_at(2)
        (-1, 1, 1)
        >>> epochs.confirm(2, epoch=0)
        >>> epochs.covered
        0
    """

    def __init__(self) -> None:
        self.newest = self.covered = self.emitted = -1
        self.begins = True
        #: Epochs that no checkpoint covers, with the number of frames up to their ends.
        self._ends: deque[tuple[int, int]] = deque()

    def resume(self, epoch: int) -> None:
        """Continue after another job's snapshot, which covers all epochs up to `epoch`; -1 for none."""
        self.newest = self.covered = self.emitted = epoch
        self.begins = False

    def add(self, epoch: int, end: int) -> None:
        self.newest = epoch
        self.begins = False
        self._ends.append((epoch, end))

    def confirm(self, position: int, epoch: int) -> None:
        """Note that a completed checkpoint covers all frames before `position`, and the end of `epoch`.

        A reader may have all frames of an epoch before it knows that the epoch has ended. A job that is
        restored from such a snapshot continues before that end, so Spark must not commit the epoch.
        """
        while self._ends and self._ends[0][1] <= position and self._ends[0][0] <= epoch:
            self.covered, _ = self._ends.popleft()

    def at(self, position: int) -> int:
        """The newest epoch whose frames are all before this position; -1 for none."""
        return max((epoch for epoch, end in self._ends if end <= position), default=self.covered)

    def ending_at(self, position: int) -> int | None:
        """The newest uncovered epoch that ends exactly before this position; `None` for none."""
        return max((epoch for epoch, end in self._ends if end == position), default=None)


@dataclass(slots=True)
class PushedPartition:
    digests: list[bytes] = field(default_factory=list)
    rows: int = 0
    attempts: set[int] = field(default_factory=set)


@dataclass(slots=True)
class OpenEpoch:
    """The epoch that is being transferred; `begin` frames had been accepted before it."""

    number: int
    run: str
    begin: int
    partitions: dict[int, PushedPartition] = field(default_factory=dict)
    is_prepared: bool = False

    def difference(self, expected: Mapping[int, tuple[int, int]]) -> str | None:
        """Describe the difference from the frames and rows that Spark counted; `None` if they agree."""
        there = self.partitions
        for index, (frames, rows) in sorted(expected.items()):
            partition = there.get(index, PushedPartition())
            if (len(partition.digests), partition.rows) != (frames, rows):
                return (
                    f"partition {index} ended with {frames} frame(s) of {rows} row(s) in the attempt that "
                    f"Spark used, but {len(partition.digests)} of {partition.rows} row(s) were transferred"
                )
        unexpected = sorted(i for i, partition in there.items() if partition.digests and i not in expected)
        if unexpected:
            return f"rows of partition(s) {unexpected} were transferred, but Spark has not counted them"
        return None


def given_up(epoch: int) -> str:
    return f"epoch {epoch} has been abandoned"


@dataclass(frozen=True, slots=True)
class _HeldFrame:
    partition: int
    rows: int
    location: FrameLocation


class ReceiveBuffer:
    """Holds the frames of one reader's partitions; see the module's docstring.

    Args:
        staged: Frames of an epoch can be read only after it is closed.
    """

    def __init__(
        self, index: int, store: FrameStore, window: int = DEFAULT_WINDOW, *, staged: bool = False
    ) -> None:
        self._index = index
        self._store = store
        self._window = window
        self._staged = staged
        self._epoch: OpenEpoch | None = None
        self.epochs = ClosedEpochs()
        self._visible = 0
        self._epochs = self._partitions = self._attempts = self._rows = 0
        #: Uncovered frames; the first one is number `_first` in the order of acceptance.
        self._held: deque[_HeldFrame] = deque()
        self._first = 0
        self._read = 0
        self.unread_bytes = self._most_unread = self._duplicates = self._bytes = 0
        self.is_complete = False
        self.failure: str | None = None

    @property
    def has_room(self) -> bool:
        """Whether accepted frames may be acknowledged.

        Always true for a staged epoch: no reader can take its frames yet, so waiting would never end.
        """
        return self._staged or self.unread_bytes <= self._window

    @property
    def end(self) -> int:
        """Number of frames that were accepted and can be read."""
        return self._visible if self._staged else self._accepted

    def begin(self, epoch: int, run: str) -> bool:
        """Begin to receive an epoch; drops frames of an earlier run that no reader could read.

        Returns false if the epoch is already closed, or if no more epochs may follow.
        """
        if epoch <= self.epochs.newest or self.is_complete:
            return False
        self._drop_open_epoch()
        self._epoch = OpenEpoch(epoch, run, self._accepted)
        return True

    def push(self, frame: Frame) -> PushOutcome:
        epoch = self._epoch
        if epoch is None or (epoch.number, epoch.run) != (frame.epoch, frame.run):
            # A slow copy of a task may push frames of a closed epoch, which has them already.
            return PushOutcome.DUPLICATE if frame.epoch <= self.epochs.newest else PushOutcome.STALE
        partition = epoch.partitions.setdefault(frame.partition, PushedPartition())
        partition.attempts.add(frame.attempt)
        accepted = len(partition.digests)
        if frame.number > accepted and not epoch.is_prepared:
            return PushOutcome.EARLY
        digest = xxhash.xxh3_128_digest(frame.data)
        if frame.number < accepted:
            if partition.digests[frame.number] != digest:
                return PushOutcome.DIFFERENT
            self._duplicates += 1
            return PushOutcome.DUPLICATE
        if epoch.is_prepared:
            return PushOutcome.SURPLUS
        self._held.append(_HeldFrame(frame.partition, frame.rows, self._store.append(frame.data)))
        partition.digests.append(digest)
        partition.rows += frame.rows
        size = len(frame.data)
        self._rows += frame.rows
        self._bytes += size
        self.unread_bytes += size
        self._most_unread = max(self._most_unread, self.unread_bytes)
        return PushOutcome.ACCEPTED

    def read(self, position: int, max_bytes: int) -> Chunk:
        if not self._first <= position <= self.end:
            released = f"frames before {self._first} are released"
            msg = f"frame {position} was requested, but {released}, and frame {self.end} has not arrived"
            raise NoLongerHeldError(msg)
        frames: list[ReadFrame] = []
        size = 0
        for number in range(position, self.end):
            held = self._held[number - self._first]
            if frames and size + held.location.size > max_bytes:
                break
            ends = self.epochs.ending_at(number + 1)
            frames.append(ReadFrame(held.partition, self._store.read(held.location), ends))
            size += held.location.size
        end = position + len(frames)
        self._note_read(end)
        return Chunk(frames, self.is_complete and end == self.end, self.epochs.at(end))

    def _note_read(self, position: int) -> None:
        """Note that all frames before `position` have been read; repeated reads count once."""
        for number in range(self._read, position):
            self.unread_bytes -= self._held[number - self._first].location.size
        self._read = max(self._read, position)

    def confirm(self, position: int, epoch: int) -> None:
        """Release frames before `position`; a completed checkpoint covers them and the end of `epoch`."""
        while self._first < min(position, self._read):
            self._store.release(self._held.popleft().location)
            self._first += 1
        self.epochs.confirm(self._first, epoch)

    def stage(self, epoch: int) -> EpochStage:
        if epoch <= self.epochs.newest:
            return EpochStage.CLOSED if epoch == self.epochs.newest else EpochStage.PAST
        opened = self._epoch
        if opened is not None and opened.number == epoch and opened.is_prepared:
            return EpochStage.PREPARED
        if epoch == self.epochs.newest + 1:
            return EpochStage.OPEN
        return EpochStage.AHEAD if self.epochs.begins else EpochStage.GAP

    def prepare(self, epoch: int, run: str, expected: Mapping[int, tuple[int, int]]) -> str | None:
        """Compare an epoch with Spark's counts; return the difference.

        `None` means that the epoch can be closed and accepts no more frames.
        """
        if epoch <= self.epochs.newest:
            return None
        opened = self._epoch
        if opened is None or (opened.number, opened.run) != (epoch, run):
            return given_up(epoch)
        problem = opened.difference(expected)
        opened.is_prepared = problem is None
        return problem

    def close(self, epoch: int) -> str | None:
        """Make an epoch readable that all buffers have prepared; return an error text, or `None`."""
        opened = self._epoch
        if epoch > self.epochs.newest:
            if opened is None or opened.number != epoch or not opened.is_prepared:
                return given_up(epoch)
            self._visible = self._accepted
            self.epochs.add(epoch, self._accepted)
            self._epochs += 1
            self._partitions += len(opened.partitions)
            self._attempts += sum(len(p.attempts) for p in opened.partitions.values())
        return None

    def finish(self) -> None:
        """Note that no epoch follows; drops frames of an open epoch that no reader could read."""
        if self._epoch is not None and self._epoch.number > self.epochs.newest:
            self._drop_open_epoch()
        self.is_complete = True

    def _drop_open_epoch(self) -> None:
        opened, self._epoch = self._epoch, None
        if opened is None or opened.number <= self.epochs.newest or not self._staged:
            return  # frames that could be read are never taken back
        while self._accepted > opened.begin:
            dropped = self._held.pop()
            self._store.release(dropped.location)
            self._rows -= dropped.rows
            self._bytes -= dropped.location.size
            self.unread_bytes -= dropped.location.size

    @property
    def _accepted(self) -> int:
        return self._first + len(self._held)

    def fail(self, reason: str) -> None:
        """Record the reason of a failure; later reasons, and failures after completion, are ignored."""
        if not self.is_complete and self.failure is None:
            self.failure = reason

    def statistics(self) -> ReceiveBufferStatistics:
        opened = self._epoch
        pending = {} if opened is None or opened.number <= self.epochs.newest else opened.partitions
        return ReceiveBufferStatistics(
            index=self._index,
            epochs=self._epochs,
            partitions=self._partitions + len(pending),
            frames=self._accepted,
            rows=self._rows,
            bytes=self._bytes,
            duplicates=self._duplicates,
            attempts=self._attempts + sum(len(p.attempts) for p in pending.values()),
            unread_bytes=self.unread_bytes,
            most_unread_bytes=self._most_unread,
            held_bytes=sum(held.location.size for held in self._held),
            complete=self.is_complete,
            failure=self.failure,
        )
