"""The actor around a `ReceiveBuffer`: Spark tasks and the reader call it concurrently, and some calls wait.

The actor is detached, because it must outlive the subtask whose frames it holds. Its name contains the job,
the transfer and the subtask, so that every attempt finds the same actor. It looks for the job's JobMaster
every few seconds and ends itself when the JobMaster has ended. Until the transfer is complete it also looks
for the rendezvous of the program that has the DataFrame (`transfer/transfer_service.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

import pyarrow as pa
import ray

from penstock.actors.shared.registry import NAMESPACE
from penstock.bridge.receive_buffer.frame_store import DEFAULT_MAX_DISK_BYTES, FrameStore, NoRoomError
from penstock.bridge.receive_buffer.messages import (
    DIED,
    NO_PROGRAM,
    OTHER_BUFFER,
    Chunk,
    Frame,
    NoLongerHeldError,
    PushOutcome,
    TransferError,
    buffer_name,
    different_rows,
    rendezvous_name,
)
from penstock.bridge.receive_buffer.other_readers import OtherReaders, has_job_master, is_there, registered
from penstock.bridge.receive_buffer.partition_assignment import BufferBacklogs, PartitionAssignment
from penstock.bridge.receive_buffer.receive_buffer import ReceiveBuffer

logger = logging.getLogger(__name__)

_WATCH: Final = 2.0
#: Failed checks in a row for a JobMaster before the job counts as ended. A Spark program may still ask then.
_MISSES: Final = 5
#: Maximum number of waiting calls. Each Spark task has up to four in progress. The reader's calls make
#: room, so they must still run when many pushes wait.
MAX_PENDING_CALLS: Final = 100_000


class ReceiveBufferActor:
    """A receive buffer that can be called from every process of the cluster.

    Args:
        window: Bytes that may wait for the reader, and that are held in memory.
        max_disk_bytes: Bytes that may be held in files.
    """

    def __init__(
        self,
        job_id: str,
        transfer: str,
        index: int,
        of: int,
        window: int,
        staged: bool,
        max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES,
    ) -> None:
        self._job_id = job_id
        self._transfer = transfer
        self._index = index
        self._of = of
        self._buffer = ReceiveBuffer(
            index, FrameStore(memory=window, max_disk_bytes=max_disk_bytes), window, staged=staged
        )
        self._staged = staged
        #: Incarnation of this receive buffer; positions in another incarnation mean nothing here.
        self._instance = secrets.token_hex(6)
        #: The other incarnation, mostly of another job, from whose position a reader has continued here.
        self._resumed = ""
        self._assignment = PartitionAssignment(of)
        self._backlogs = BufferBacklogs(tuple(buffer_name(job_id, transfer, i) for i in range(of)))
        self._changed = asyncio.Event()
        #: Wakes pushes that wait for room; `_changed` would wake them for every frame.
        self._room = asyncio.Event()
        self._registered = False
        self._watch = asyncio.get_running_loop().create_task(self._watch_others())

    async def attach(self, instance: str, epoch: int | None) -> str:
        """Attach a reader, and register at the rendezvous so that Spark begins to push.

        The reader's position belongs to one incarnation of the receive buffer: another one had its frames in
        another order. A reader of another incarnation can continue only at the end of a micro-batch, with the
        first frame that this buffer gets. Otherwise the transfer fails.

        Args:
            instance: Incarnation of the position; empty for a new reader.
            epoch: The micro-batch at whose end the reader continues; -1 for none, `None` inside of one.
        """
        emitted = -1 if epoch is None else epoch
        if instance not in ("", self._instance, self._resumed):
            if not self._staged or epoch is None or self._registered:
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
            rendezvous = ray.get_actor(rendezvous_name(self._transfer), namespace=NAMESPACE)
            return rendezvous.register.remote(self._job_id, self._index, self._of, self._instance, epoch)

        refused = await registered(call)
        if refused is not None:
            await self.fail(refused)

    async def begin(self, epoch: int, run: str) -> bool:
        wanted = self._buffer.begin(epoch, run)
        self._notify()
        return wanted

    async def assign(self, epoch: int, partition: int) -> int:
        """Choose the receive buffer of a partition; only buffer 0 may be asked. See `PartitionAssignment`."""
        known = self._assignment.assigned(epoch, partition)
        if known is not None:
            return known
        backlogs = await self._backlogs.ask(self._index, self._buffer.unread_bytes)
        return self._assignment.assign(epoch, partition, backlogs)

    async def partition_done(self, epoch: int, partition: int) -> None:
        """Note that an attempt has pushed a whole partition; see `PartitionAssignment`."""
        self._assignment.done(epoch, partition)

    async def backlog(self) -> int:
        """Bytes that wait for the reader."""
        return self._buffer.unread_bytes

    async def push(self, frame: Frame) -> str:
        """Take a frame; returns when it is stored and there is room for more.

        Returns:
            The name of the `PushOutcome`, or "failed" when the transfer has failed.
        """
        try:
            while (outcome := self._buffer.push(frame)) is PushOutcome.EARLY:
                await _wait_for(self._changed)
                if self._buffer.failure is not None:
                    return "failed"
        except NoRoomError as error:
            await self.fail(str(error))
            return "failed"
        if outcome is PushOutcome.DIFFERENT:
            if not self._staged:
                await self.fail(different_rows(frame.partition))
            return str(outcome.value)
        self._notify()
        while not self._buffer.has_room:
            if self._buffer.failure is not None:
                return "failed"
            await _wait_for(self._room)
        return str(outcome.value)

    async def read(self, position: int, epoch: int, max_bytes: int, patience: float) -> Chunk | str:
        """Read frames; waits up to `patience` seconds for a frame or the end of an epoch.

        Args:
            epoch: The newest epoch whose end the reader knows.
            max_bytes: Limit, exceeded only by a larger first frame.
        """
        deadline = time.monotonic() + patience
        buffer = self._buffer
        while (
            buffer.end <= position
            and buffer.epochs.at(position) <= epoch
            and not buffer.is_complete
            and buffer.failure is None
        ):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            await _wait_for(self._changed, left)
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

    async def stage(self, epoch: int) -> str:
        """The value of an `EpochStage`."""
        return str(self._buffer.stage(epoch).value)

    async def newest(self) -> int:
        return self._buffer.epochs.newest

    async def prepare(self, epoch: int, run: str, expected: Mapping[int, tuple[int, int]]) -> str | None:
        return self._buffer.prepare(epoch, run, expected)

    async def close(self, epoch: int) -> str | None:
        problem = self._buffer.close(epoch)
        self._notify()
        return problem

    async def wait_until_covered(self, epoch: int, patience: float) -> bool:
        """Wait up to `patience` seconds for a completed checkpoint that covers an epoch.

        Raises:
            TransferError: The transfer has failed.
        """
        return await self._within(patience, lambda: epoch <= self._buffer.epochs.covered)

    async def wait_until_emitted(self, epoch: int, patience: float) -> bool:
        """Wait up to `patience` seconds until the reader has emitted all rows of an epoch.

        Raises:
            TransferError: The transfer has failed.
        """
        return await self._within(patience, lambda: self._buffer.epochs.is_emitted(epoch))

    async def _within(self, patience: float, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + patience
        while not condition():
            if self._buffer.failure is not None:
                raise TransferError(self._buffer.failure)
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await _wait_for(self._changed, left)
        return True

    async def finish(self) -> None:
        self._buffer.finish()
        self._notify()

    async def fail(self, reason: str) -> None:
        self._buffer.fail(reason)
        self._notify()

    async def statistics(self) -> dict[str, Any]:
        return asdict(self._buffer.statistics())

    async def leave(self) -> None:
        ray.actor.exit_actor()  # type: ignore[no-untyped-call]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self._buffer.has_room or self._buffer.failure is not None:
            self._room.set()
            self._room = asyncio.Event()

    async def _watch_others(self) -> None:
        misses, others = 0, OtherReaders(self._transfer, self._job_id, self._of)
        while True:
            await asyncio.sleep(_WATCH)
            misses = 0 if await has_job_master(self._job_id) else misses + 1
            if misses >= _MISSES:
                logger.info("job %s has ended: leaving", self._job_id)
                # An actor can only end itself inside a call.
                ray.get_runtime_context().current_actor.leave.remote()
                return
            waiting = self._registered and not self._buffer.is_complete and self._buffer.failure is None
            if waiting and not await is_there(rendezvous_name(self._transfer)):
                await self.fail(NO_PROGRAM)
            if waiting and await others.are_missing():
                await self.fail(OTHER_BUFFER)


async def _wait_for(event: asyncio.Event, seconds: float = _WATCH) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def receive_buffer_actor(
    job_id: str,
    transfer: str,
    index: int,
    of: int,
    window: int,
    staged: bool,
    max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES,
) -> Any:
    """Find a receive buffer, or start it.

    Raises:
        ray.exceptions.RayError: The receive buffer can't be started.
    """
    actor: Any = ray.remote(ReceiveBufferActor)
    return actor.options(
        name=buffer_name(job_id, transfer, index),
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=0,
        max_concurrency=MAX_PENDING_CALLS,
    ).remote(job_id, transfer, index, of, window, staged, max_disk_bytes)
