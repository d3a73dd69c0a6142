"""The actor around a `Depot`: Spark tasks and the reader call it at the same time, and some of them wait.

It is detached, because it must outlive the subtask whose frames it holds, and named after the job, the
hand-over and the subtask, so that every attempt finds the same one. It ends with its job: it looks for the
job's JobMaster every few seconds, and ends itself when there is none any more. While the hand-over is not
complete it also looks for the desk of the program that has the DataFrame (`hand_over_desk.py`).
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

from penstock.actors.shared.names import NAMESPACE, master_name
from penstock.bridge.receive_buffer.actor_names import depot_name, desk_name
from penstock.bridge.receive_buffer.backlogs import DepotLoads
from penstock.bridge.receive_buffer.failure_texts import (
    LOST,
    NO_PROGRAM,
    OTHER_DEPOT,
    HandOverFailedError,
    different_rows,
)
from penstock.bridge.receive_buffer.frame_store import FrameStore
from penstock.bridge.receive_buffer.liveness import OtherReaders, is_there
from penstock.bridge.receive_buffer.messages import Chunk, Frame, NoLongerHeldError, PushOutcome
from penstock.bridge.receive_buffer.partition_assignment import PartitionDealer
from penstock.bridge.receive_buffer.receive_buffer import Depot
from penstock.bridge.receive_buffer.registration import announced

logger = logging.getLogger(__name__)

_WATCH: Final = 2.0
#: Looks in a row that find no JobMaster before the job counts as ended.
_MISSES: Final = 2


class DepotActor:
    """A depot that can be called from everywhere.

    Args:
        job_id: The job that reads it.
        hand_over: Id of the hand-over.
        index: Which reader's depot.
        of: How many depots this hand-over has.
        window: Bytes that may wait for the reader, and that are held in memory.
        staged: Rows come in micro-batches.
    """

    def __init__(self, job_id: str, hand_over: str, index: int, of: int, window: int, staged: bool) -> None:
        self._job_id = job_id
        self._hand_over = hand_over
        self._index = index
        self._of = of
        self._depot = Depot(index, FrameStore(memory=window), window, staged=staged)
        self._staged = staged
        #: Which depot this is: a position in another one of the same name is none in this one.
        self._stamp = secrets.token_hex(6)
        #: The depot of another job whose position a reader has gone on from here.
        self._resumed = ""
        self._dealer = PartitionDealer(of)
        self._loads = DepotLoads(tuple(depot_name(job_id, hand_over, i) for i in range(of)))
        self._changed = asyncio.Event()
        #: For those who wait for room only: a push would wake all of them for nothing.
        self._room = asyncio.Event()
        self._announced = False
        self._watch = asyncio.get_running_loop().create_task(self._watch_others())

    async def hello(self, stamp: str, epoch: int | None) -> str:
        """A reader has come: tell the desk that frames are wanted.

        Its position is one in the depot with this stamp, and in no other: one that is gone had its frames in
        another order. So with another stamp the reader can go on only behind the end of a micro-batch, with
        the first frame that this depot gets; otherwise the hand-over fails.

        Args:
            stamp: Of the depot that the position is in; empty for a reader that begins.
            epoch: The micro-batch at whose end the reader goes on, -1 for none; `None` when it is amidst one.

        Returns:
            The stamp of this depot.
        """
        passed = -1 if epoch is None else epoch
        if stamp not in ("", self._stamp, self._resumed):
            if not self._staged or epoch is None or self._announced:
                await self.fail(OTHER_DEPOT)
            else:
                self._resumed = stamp
                self._depot.epochs.resume(epoch)
        self._depot.epochs.passed = passed
        if not self._announced and self._depot.failure is None:
            self._announced = True
            await self._announce(passed)
        return self._stamp

    async def _announce(self, epoch: int) -> None:
        def call() -> Any:
            desk = ray.get_actor(desk_name(self._hand_over), namespace=NAMESPACE)
            return desk.announce.remote(self._job_id, self._index, self._of, self._stamp, epoch)

        refused = await announced(call)
        if refused is not None:
            await self.fail(refused)

    async def begin(self, epoch: int, run: str) -> bool:
        """Begin to hand an epoch over; see `Depot.begin`."""
        wanted = self._depot.begin(epoch, run)
        self._notify()
        return wanted

    async def deal(self, epoch: int, partition: int) -> int:
        """Which depot takes a partition; asked of the first one only. See `PartitionDealer`."""
        known = self._dealer.dealt(epoch, partition)
        if known is not None:
            return known
        loads = await self._loads.ask(self._index, self._depot.unread_bytes)
        return self._dealer.deal(epoch, partition, loads)

    async def dealt_is_done(self, epoch: int, partition: int) -> None:
        """An attempt of a partition has pushed all of it; see `PartitionDealer`."""
        self._dealer.done(epoch, partition)

    async def load(self) -> int:
        """Bytes that wait for the reader."""
        return self._depot.unread_bytes

    async def push(self, frame: Frame) -> str:
        """Take a frame; returns when it is stored and there is room for more.

        Returns:
            The name of the `PushOutcome`, or "failed" when the hand-over has failed.
        """
        while (outcome := self._depot.push(frame)) is PushOutcome.EARLY:
            await _wait_for(self._changed)
            if self._depot.failure is not None:
                return "failed"
        if outcome is PushOutcome.DIFFERENT:
            if not self._staged:
                await self.fail(different_rows(frame.partition))
            return str(outcome.value)
        self._notify()
        while not self._depot.has_room:
            if self._depot.failure is not None:
                return "failed"
            await _wait_for(self._room)
        return str(outcome.value)

    async def read(self, position: int, epoch: int, max_bytes: int, patience: float) -> Chunk | str:
        """Frames from a position on; waits up to `patience` seconds for one, or for the end of an epoch.

        Args:
            position: The first frame that is wanted.
            epoch: The newest epoch whose end the reader knows.
            max_bytes: More only if the first frame has more.
            patience: Seconds.

        Returns:
            The frames, or why there are none: the reason of a failure.
        """
        deadline = time.monotonic() + patience
        depot = self._depot
        while (
            depot.end <= position
            and depot.epochs.at(position) <= epoch
            and not depot.is_complete
            and depot.failure is None
        ):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            await _wait_for(self._changed, left)
        if depot.failure is not None:
            return depot.failure
        try:
            chunk = depot.read(position, max_bytes)
        except NoLongerHeldError as error:
            return f"{error}: {LOST}"
        if chunk.frames:
            self._notify()
        buffers = [replace(frame, data=pa.py_buffer(frame.data)) for frame in chunk.frames]
        return replace(chunk, frames=buffers)

    async def passed(self, epoch: int) -> None:
        """The reader has given all of an epoch on to the job."""
        self._depot.epochs.passed = epoch
        self._notify()

    async def confirm(self, position: int, epoch: int) -> None:
        """A completed checkpoint covers everything before this position, and the end of this epoch."""
        self._depot.confirm(position, epoch)
        self._notify()

    async def stage(self, epoch: int) -> str:
        """The value of an `EpochStage`."""
        return str(self._depot.stage(epoch).value)

    async def newest(self) -> int:
        """The newest epoch that is closed; -1 for none."""
        return self._depot.epochs.newest

    async def prepare(self, epoch: int, run: str, expected: Mapping[int, tuple[int, int]]) -> str | None:
        """Spark has computed an epoch; see `Depot.prepare`."""
        return self._depot.prepare(epoch, run, expected)

    async def close(self, epoch: int) -> str | None:
        """All depots have prepared an epoch; see `Depot.close`."""
        problem = self._depot.close(epoch)
        self._notify()
        return problem

    async def wait_until_covered(self, epoch: int, patience: float) -> bool:
        """Whether a completed checkpoint covers an epoch, within so many seconds.

        Raises:
            HandOverFailedError: It never will.
        """
        return await self._within(patience, lambda: epoch <= self._depot.epochs.covered)

    async def wait_until_passed(self, epoch: int, patience: float) -> bool:
        """Whether the reader has given all rows of an epoch on to the job, within so many seconds.

        Raises:
            HandOverFailedError: It never will.
        """
        return await self._within(patience, lambda: self._depot.epochs.is_passed(epoch))

    async def _within(self, patience: float, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + patience
        while not condition():
            if self._depot.failure is not None:
                raise HandOverFailedError(self._depot.failure)
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await _wait_for(self._changed, left)
        return True

    async def finish(self) -> None:
        """No rows follow."""
        self._depot.finish()
        self._notify()

    async def fail(self, reason: str) -> None:
        """The hand-over can't be finished."""
        self._depot.fail(reason)
        self._notify()

    async def statistics(self) -> dict[str, Any]:
        """The fields of `DepotStatistics`."""
        return asdict(self._depot.statistics())

    async def leave(self) -> None:
        """End, with all frames."""
        ray.actor.exit_actor()  # type: ignore[no-untyped-call]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self._depot.has_room or self._depot.failure is not None:
            self._room.set()
            self._room = asyncio.Event()

    async def _watch_others(self) -> None:
        misses, others = 0, OtherReaders(self._hand_over, self._job_id, self._of)
        while True:
            await asyncio.sleep(_WATCH)
            misses = 0 if await is_there(master_name(self._job_id)) else misses + 1
            if misses >= _MISSES:
                logger.info("job %s has ended: leaving", self._job_id)
                # Only a call may end an actor in peace.
                ray.get_runtime_context().current_actor.leave.remote()
                return
            waiting = self._announced and not self._depot.is_complete and self._depot.failure is None
            if waiting and not await is_there(desk_name(self._hand_over)):
                await self.fail(NO_PROGRAM)
            if waiting and await others.are_missing():
                await self.fail(OTHER_DEPOT)


async def _wait_for(event: asyncio.Event, seconds: float = _WATCH) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
