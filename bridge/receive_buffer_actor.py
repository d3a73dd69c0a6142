"""The actor around a `ReceiveBuffer`: Spark tasks and the reader call it concurrently, and some calls wait.

The actor is detached, because it must outlive the subtask whose frames it holds. Its name contains the job,
the transfer and the subtask, so that every attempt finds the same actor. It checks for the job's JobMaster
every few seconds and ends itself when the JobMaster has ended. Until the transfer is complete it also checks
for the rendezvous of the program that has the DataFrame (`transfer_service.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import ray

from penstock.actors.shared.actor_calls import ANSWER, NoAnswerError, RepeatedCall, while_unavailable
from penstock.actors.shared.registry import find_actor, has_master, is_living, start_actor
from penstock.bridge.frame_store import FrameStore, NoRoomError
from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.receive_buffer_messages import (
    DIED,
    NO_PROGRAM,
    OTHER_BUFFER,
    UNREACHABLE_PROGRAM,
    BufferSettings,
    Chunk,
    EpochStage,
    Frame,
    NoLongerHeldError,
    PushOutcome,
    ReceiveBufferStatistics,
    TransferError,
    buffer_name,
    different_rows,
    find_buffer,
    rendezvous_name,
)


class PartitionAssignment:
    """Assigns the partitions of a DataFrame to readers, each when its Spark task begins.

    A partition goes to the least loaded reader, so a skewed partition or a slow reader does not delay other
    partitions. This is the split enumerator of a transfer. It is in the first receive buffer and not in the
    JobMaster, because it must live exactly as long as the rows. A new JobMaster would not know which buffer
    has half of a partition, and might send the rest to another reader.

    Every attempt of a partition must get the same answer, even when Spark repeats a micro-batch that some
    receive buffers have closed. So an epoch's answers are kept until the next epoch begins.
    """

    def __init__(self, buffers: int) -> None:
        self._epoch = -1
        self._buffer_of: dict[int, int] = {}
        self._counts = [0] * buffers
        #: Partitions whose tasks are pushing, by receive buffer.
        self._pushing: list[set[int]] = [set() for _ in range(buffers)]

    def assign(self, epoch: int, partition: int, backlogs: Sequence[int]) -> int:
        """The index of a partition's receive buffer, given the bytes that wait in each buffer."""
        if epoch < self._epoch:
            # A slow copy of a task whose epoch is closed everywhere; the receive buffers drop its frames.
            return partition % len(self._counts)
        if epoch > self._epoch:
            self._begin(epoch)
        buffer = self._buffer_of.get(partition)
        if buffer is None:
            buffer = min(
                range(len(self._counts)),
                key=lambda i: (len(self._pushing[i]), backlogs[i], self._counts[i], i),
            )
            self._buffer_of[partition] = buffer
            self._counts[buffer] += 1
            self._pushing[buffer].add(partition)
        return buffer

    def assigned(self, epoch: int, partition: int) -> int | None:
        return self._buffer_of.get(partition) if epoch == self._epoch else None

    def done(self, epoch: int, partition: int) -> None:
        if epoch == self._epoch and partition in self._buffer_of:
            self._pushing[self._buffer_of[partition]].discard(partition)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._buffer_of.clear()
        for pushing in self._pushing:
            pushing.clear()


#: Seconds for a receive buffer to answer.
_BACKLOG_PATIENCE: Final = 2.0


async def _backlog_of(buffer: str) -> int:
    """Bytes that wait in another receive buffer."""
    try:
        backlog: int = await asyncio.wait_for(find_buffer(buffer).backlog.remote(), _BACKLOG_PATIENCE)
    except TimeoutError:
        return sys.maxsize  # too busy to answer
    except (ValueError, ray.exceptions.RayActorError):
        return 0  # dead: the task that pushes there gets an error
    return backlog


logger = logging.getLogger(__name__)

#: Watch rounds until all readers of a job must have registered.
LOOKS: Final = 150
#: Seconds for the rendezvous to answer.
_PATIENCE: Final = 60.0


async def _may_exist(exists: Callable[[str], bool], name: str) -> bool:
    """The answer of `exists`; true if Ray does not answer."""
    try:
        return await asyncio.to_thread(exists, name)
    except Exception as error:  # the error does not show whether the actor exists; the next check may
        logger.warning("can't look up %s: %s", name, error)
        return True


class OtherReaders:
    """Watches the registration of a job's readers at the rendezvous of a transfer.

    Readers that were finished in a snapshot do not register, and without them no row is transferred.
    """

    def __init__(self, transfer: str, job_id: str, of: int) -> None:
        self._rendezvous = rendezvous_name(transfer)
        self._job_id = job_id
        self._of = of
        self._looks = 0
        self._have_come = False

    async def are_missing(self) -> bool:
        """Whether some readers have not registered in time; called in each watch round of a transfer.

        Asks the rendezvous once in `LOOKS` rounds, until all readers have registered.
        """
        self._looks += 1
        if self._have_come or self._looks % LOOKS:
            return False
        try:
            rendezvous = find_actor(self._rendezvous)
            self._have_come = await asyncio.wait_for(
                rendezvous.has_all.remote(self._job_id, self._of), _PATIENCE
            )
        except (TimeoutError, ValueError, ray.exceptions.RayActorError) as error:
            logger.warning(
                "can't ask %s for the readers of job %s: %r", self._rendezvous, self._job_id, error
            )
            return False
        return not self._have_come


#: Seconds for which calls are repeated while Ray can't reach the rendezvous.
_AWAY: Final = ANSWER


async def registered(register: Callable[[], Any], away: float = _AWAY) -> str | None:
    """Register a receive buffer; return the reason why no rows will arrive, or `None`.

    Repeats the call for `away` seconds while Ray can't reach the rendezvous, which recognises a repeated
    registration by the buffer's incarnation.
    """
    try:
        return await RepeatedCall[str | None](register, "the rendezvous", while_unavailable(away)).awaited()
    except NoAnswerError:
        return UNREACHABLE_PROGRAM
    except (ValueError, ray.exceptions.RayActorError):
        return NO_PROGRAM


_WATCH: Final = 2.0
#: Consecutive failed checks for a JobMaster after which the job counts as ended.
_MISSES: Final = 5
#: Maximum number of waiting calls. Each Spark task has up to four calls in progress. The reader's calls make
#: room, so they must still run when many pushes wait.
MAX_PENDING_CALLS: Final = 100_000


class ReceiveBufferActor:
    """A receive buffer that can be called from every process of the cluster."""

    def __init__(self, job_id: str, index: int, of: int, settings: BufferSettings) -> None:
        self._job_id = job_id
        self._index = index
        self._of = of
        self._settings = settings
        window = settings.window
        store = FrameStore(memory=window, max_disk_bytes=settings.max_disk_bytes)
        self._buffer = ReceiveBuffer(index, store, window, staged=settings.staged)
        #: Incarnation of this receive buffer; positions of another incarnation are invalid here.
        self._instance = secrets.token_hex(6)
        #: Another incarnation whose position the reader was restored from; empty without one.
        self._resumed = ""
        self._assignment = PartitionAssignment(of)
        self._changed = asyncio.Event()
        #: Wakes pushes that wait for room, because `_changed` would wake them for every frame.
        self._room = asyncio.Event()
        self._registered = False
        self._watch = asyncio.get_running_loop().create_task(self._watch_others())

    async def attach(self, instance: str, epoch: int | None) -> str:
        """Attach a reader, and register at the rendezvous so that Spark begins to push.

        The reader's position belongs to one incarnation of the receive buffer, because the order of frames
        differs between incarnations. A reader with a position of another incarnation can continue only at the
        end of a micro-batch, with the first frame of this buffer. Otherwise the transfer fails.

        Args:
            instance: Incarnation of the position; empty for a new reader.
            epoch: The micro-batch after which the reader continues; -1 for none, `None` inside a micro-batch.
        """
        emitted = -1 if epoch is None else epoch
        if instance not in ("", self._instance, self._resumed):
            if not self._settings.staged or epoch is None or self._registered:
                await self.fail(OTHER_BUFFER)
            else:
                self._resumed = instance
                self._buffer.epochs.resume(epoch)
        self._buffer.epochs.emitted = emitted
        if not self._registered and self._buffer.failure is None:
            self._registered = True
            await self._register(emitted)
        return self._instance

    async def _register(self, epoch: int) -> None:
        def call() -> Any:
            rendezvous = find_actor(rendezvous_name(self._settings.transfer))
            return rendezvous.register.remote(
                self._job_id, self._index, self._of, self._instance, epoch, self._settings.part
            )

        refused = await registered(call)
        if refused is not None:
            await self.fail(refused)

    async def begin(self, epoch: int, run: str) -> bool:
        wanted = self._buffer.begin(epoch, run)
        self._notify()
        return wanted

    async def assign(self, epoch: int, partition: int) -> int:
        """Choose the receive buffer of a partition; only buffer 0 does that. See `PartitionAssignment`."""
        known = self._assignment.assigned(epoch, partition)
        if known is not None:
            return known
        transfer = self._settings.transfer
        others = (buffer_name(self._job_id, transfer, i) for i in range(1, self._of))
        backlogs = await asyncio.gather(*map(_backlog_of, others))
        return self._assignment.assign(epoch, partition, [self._buffer.unread_bytes, *backlogs])

    async def partition_done(self, epoch: int, partition: int) -> None:
        """Note that an attempt has pushed a whole partition; see `PartitionAssignment`."""
        self._assignment.done(epoch, partition)

    async def backlog(self) -> int:
        """Bytes that wait for the reader."""
        return self._buffer.unread_bytes

    async def push(self, frame: Frame) -> PushOutcome:
        """Take a frame; return when it is stored and there is room for more."""
        try:
            while (outcome := self._buffer.push(frame)) is PushOutcome.EARLY:
                await _wait_for(self._changed)
                if self._buffer.failure is not None:
                    return PushOutcome.FAILED
        except NoRoomError as error:
            await self.fail(str(error))
            return PushOutcome.FAILED
        if outcome is PushOutcome.DIFFERENT:
            if not self._settings.staged:
                await self.fail(different_rows(frame.partition))
            return outcome
        self._notify()
        while not self._buffer.has_room:
            if self._buffer.failure is not None:
                return PushOutcome.FAILED
            await _wait_for(self._room)
        return outcome

    async def read(self, position: int, epoch: int, max_bytes: int, patience: float) -> Chunk | str:
        """Read frames; waits up to `patience` seconds for a frame or the end of an epoch.

        Args:
            epoch: The newest epoch whose end the reader knows.
            max_bytes: Limit, exceeded only by a larger first frame.
        """
        buffer = self._buffer

        def has_news() -> bool:
            return buffer.end > position or buffer.epochs.at(position) > epoch or buffer.is_complete

        await self._happens(patience, has_news)
        if buffer.failure is not None:
            return buffer.failure
        try:
            chunk = buffer.read(position, max_bytes)
        except NoLongerHeldError as error:
            return f"{error}: {DIED}"
        if chunk.frames:
            self._notify()
        buffers = [replace(frame, data=pa.py_buffer(frame.data)) for frame in chunk.frames]
        return replace(chunk, frames=buffers)

    async def emitted(self, epoch: int) -> None:
        self._buffer.epochs.emitted = epoch
        self._notify()

    async def confirm(self, position: int, epoch: int) -> None:
        self._buffer.confirm(position, epoch)
        self._notify()

    async def stage(self, epoch: int) -> EpochStage:
        return self._buffer.stage(epoch)

    async def newest(self) -> int:
        return self._buffer.epochs.newest

    async def prepare(self, epoch: int, run: str, expected: Mapping[int, tuple[int, int]]) -> str | None:
        return self._buffer.prepare(epoch, run, expected)

    async def close(self, epoch: int) -> str | None:
        problem = self._buffer.close(epoch)
        self._notify()
        return problem

    async def wait_until_covered(self, epoch: int, patience: float) -> bool:
        """Wait up to `patience` seconds for a completed checkpoint that covers an epoch."""
        return await self._within(patience, lambda: epoch <= self._buffer.epochs.covered)

    async def wait_until_emitted(self, epoch: int, patience: float) -> bool:
        """Wait up to `patience` seconds until the reader has emitted all rows of an epoch."""
        return await self._within(patience, lambda: epoch <= self._buffer.epochs.emitted)

    async def _within(self, patience: float, condition: Callable[[], bool]) -> bool:
        happens = await self._happens(patience, condition)
        if not happens and self._buffer.failure is not None:
            raise TransferError(self._buffer.failure)
        return happens

    async def _happens(self, patience: float, condition: Callable[[], bool]) -> bool:
        """Wait for a condition or a failure, up to `patience` seconds; return whether the condition holds."""
        deadline = time.monotonic() + patience
        while not (happens := condition()) and self._buffer.failure is None:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            await _wait_for(self._changed, left)
        return happens

    async def finish(self) -> None:
        self._buffer.finish()
        self._notify()

    async def fail(self, reason: str) -> None:
        self._buffer.fail(reason)
        self._notify()

    async def statistics(self) -> ReceiveBufferStatistics:
        return self._buffer.statistics()

    async def leave(self) -> None:
        ray.actor.exit_actor()  # type: ignore[no-untyped-call]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self._buffer.has_room or self._buffer.failure is not None:
            self._room.set()
            self._room = asyncio.Event()

    async def _watch_others(self) -> None:
        transfer = self._settings.transfer
        misses, others = 0, OtherReaders(transfer, self._job_id, self._of)
        while True:
            await asyncio.sleep(_WATCH)
            misses = 0 if await _may_exist(has_master, self._job_id) else misses + 1
            if misses >= _MISSES:
                logger.info("job %s has ended: leaving", self._job_id)
                # An actor can only end itself inside a call.
                ray.get_runtime_context().current_actor.leave.remote()
                return
            waiting = self._registered and not self._buffer.is_complete and self._buffer.failure is None
            if waiting and not await _may_exist(is_living, rendezvous_name(transfer)):
                await self.fail(NO_PROGRAM)
            if waiting and await others.are_missing():
                await self.fail(OTHER_BUFFER)


async def _wait_for(event: asyncio.Event, seconds: float = _WATCH) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def receive_buffer_actor(job_id: str, index: int, of: int, settings: BufferSettings) -> Any:
    """Find a receive buffer, or start it."""
    return start_actor(
        ReceiveBufferActor,
        buffer_name(job_id, settings.transfer, index),
        job_id,
        index,
        of,
        settings,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=0,
        max_concurrency=MAX_PENDING_CALLS,
    )
