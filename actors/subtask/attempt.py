"""One attempt of one subtask inside its actor: its runner, its gateway, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.system_ports import BackgroundRunner, SystemClock
from penstock.actors.subtask.master_link import ActorGateway, MasterLink
from penstock.actors.subtask.remote_channels import RemoteChannels, RemotePeer
from penstock.actors.subtask.task_on_loop import TaskOnLoop
from penstock.actors.subtask.task_thread import TaskRunner, TaskThread
from penstock.runtime.execution.deliveries import Deliveries, DeliveryAnswer
from penstock.runtime.execution.failure_causes import describe_failure
from penstock.runtime.execution.messages import SubtaskFinished, SubtaskOutcome, SubtaskStopped
from penstock.runtime.execution.processes import LongCall
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.io.rocksdb.backend import open_state_backend
from penstock.runtime.io.spill_file import open_spill_file
from penstock.runtime.io.storage import check_proof, open_location, open_storage
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.task.build import build_subtask
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.task.statistics import SubtaskStatistics
from penstock.runtime.task.subtask import Subtask


class Attempt:
    """One attempt of one subtask; every method but the callbacks runs on the actor's event loop.

    Args:
        role: The role of the process, in this attempt.
        descriptor: The subtask.
        master: Gets its reports.
        pool: Threads for uploads.
        loop: The actor's event loop.
    """

    def __init__(
        self,
        role: Role,
        descriptor: TaskDescriptor,
        master: ActorHandle[Any],
        pool: ThreadPoolExecutor,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.descriptor = descriptor
        self.role = role
        self._loop = loop
        self._deliveries = Deliveries()
        self._link = MasterLink(loop, master, role)
        self._gateway = ActorGateway(descriptor.id, self._consumed, self._link)
        self._runner: TaskRunner = (
            TaskOnLoop(loop) if descriptor.config.step_on == "loop" else TaskThread(loop, str(descriptor.id))
        )
        self._background = BackgroundRunner(pool, self._runner.post)
        self._stopped = False
        self.outcome: SubtaskOutcome | None = None

    async def deploy(self) -> None:
        """Build the subtask and restore its state.

        Raises:
            PenstockError: An operator could not be opened, or state could not be read.
        """
        self._runner.deploy(self._build)
        await self._runner.deployed

    def start(self, peers: Mapping[SubtaskId, RemotePeer]) -> None:
        """Begin to step, sending to these receivers.

        Senders that were started earlier may have sent frames before this call. The runner keeps them until
        now: an unaligned barrier acts on arrival and goes on to receivers, which are not known before.
        """
        self._gateway.channels = RemoteChannels(
            peers, self._runner.post, self._frame_consumed, self._receiver_gone
        )
        self._runner.start()

    async def run(self) -> SubtaskOutcome:
        """Wait for the end."""
        try:
            await asyncio.shield(self._runner.ended)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # even SystemExit is a failure of this attempt only
            self.outcome = self.outcome or describe_failure(error)
        if self.outcome is None:
            self.outcome = SubtaskStopped() if self._stopped else SubtaskFinished(self.statistics())
        finished = isinstance(self.outcome, SubtaskFinished)
        self._deliveries.close(DeliveryAnswer.CONSUMED if finished else DeliveryAnswer.STALE)
        if not finished:
            self._link.close()
        return self.outcome

    async def deliver(self, channel: int, first: int, elements: list[bytes]) -> DeliveryAnswer:
        """Take a frame; returns when it is consumed."""
        consumed: asyncio.Future[DeliveryAnswer] = self._loop.create_future()

        def answer(given: DeliveryAnswer) -> None:
            if not consumed.done():  # Ray may have cancelled the call
                consumed.set_result(given)

        if self._deliveries.wait(channel, first + len(elements), answer):
            self._runner.post(lambda: self._require().deliver(channel, first, elements))
        return await consumed

    def control(self, message: SubtaskControl) -> None:
        """Hand a message of the JobMaster to the subtask."""
        self._runner.post(lambda: self._require().control(message))

    async def stop(self) -> None:
        """Stop the subtask and wait until it is closed."""
        self._stopped = True
        self._link.close()
        if self._gateway.channels is not None:
            self._gateway.channels.close()
        self._runner.stop()
        await self.run()

    def end_reports(self) -> None:
        """Send no report again: the JobMaster needs none any more."""
        self._link.close()

    def statistics(self) -> SubtaskStatistics | None:
        """The subtask's counters; `None` before it is built."""
        return None if self._runner.subtask is None else self._runner.subtask.statistics()

    def long_call(self) -> LongCall | None:
        """The call of a user's function that the subtask is in, if that takes long."""
        return self._runner.long_call()

    def _build(self) -> Subtask:
        config = self.descriptor.config
        storage: SnapshotStorage | None = None
        place: StorageOpener = open_location
        if config.checkpointing is not None and config.checkpointing.storage is not None:
            timeout = config.checkpointing.storage_timeout_seconds
            storage = open_storage(config.checkpointing.storage, create=False, timeout=timeout)
            place = partial(open_location, timeout=timeout)
            paths = SnapshotPaths(self.descriptor.job_id)
            node = ray.get_runtime_context().get_node_id()
            check_proof(storage, paths.same_storage, self.descriptor.job_id, node)
        return build_subtask(
            self.descriptor,
            self._gateway,
            self._background,
            SystemClock(),
            storage,
            place,
            open_spill_file,
            open_state_backend,
        )

    def _consumed(self, channel: int, next_sequence_number: int) -> None:
        """Answer deliver calls; called in the task thread."""
        self._loop.call_soon_threadsafe(self._deliveries.consumed, channel, next_sequence_number)

    def _frame_consumed(self, channel: OutputChannelSpec, first: int) -> None:
        self._require().frame_consumed(channel, first)

    def _receiver_gone(self, channel: OutputChannelSpec) -> None:
        self._require().receiver_gone(channel)

    def _require(self) -> Subtask:
        if self._runner.subtask is None:
            msg = f"{self.descriptor.id} was called before it was deployed"
            raise RuntimeError(msg)
        return self._runner.subtask
