"""One attempt of one subtask inside its actor: the runner, the gateway and how it ends."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.background import BackgroundRunner
from penstock.actors.shared.messages import (
    EventForOperator,
    NotifyAborted,
    NotifyComplete,
    SubtaskControl,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskOutcome,
    SubtaskStopped,
    TriggerCheckpoint,
)
from penstock.actors.shared.system_clock import SystemClock
from penstock.actors.subtask.deliveries import Deliveries, DeliveryAnswer
from penstock.actors.subtask.master_link import MasterLink
from penstock.actors.subtask.remote_channels import RemoteChannels
from penstock.actors.subtask.task_gateway import ActorGateway
from penstock.actors.subtask.task_on_loop import TaskOnLoop
from penstock.actors.subtask.task_thread import TaskRunner, TaskThread
from penstock.runtime.errors import (
    CorruptSnapshotError,
    OperatorError,
    PenstockError,
    RestoreError,
    SuppressRestartsError,
)
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.io.storage import check_proof, open_location, open_storage
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.build import build_subtask
from penstock.runtime.task.closing import failure_details
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.statistics import SubtaskStatistics
from penstock.runtime.task.subtask import Subtask


class Attempt:
    """One attempt of one subtask; every method but the callbacks runs on the actor's event loop.

    Args:
        descriptor: What to run.
        master: The JobMaster to report to.
        pool: Threads for uploads.
        loop: The actor's event loop.
    """

    def __init__(
        self,
        descriptor: TaskDescriptor,
        master: ActorHandle[Any],
        pool: ThreadPoolExecutor,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.descriptor = descriptor
        self._deliveries = Deliveries(loop)
        self._link = MasterLink(loop, master, descriptor.attempt)
        self._gateway = ActorGateway(descriptor.id, self._deliveries, self._link)
        self._runner: TaskRunner = (
            TaskOnLoop(loop) if descriptor.config.step_on == "loop" else TaskThread(loop, str(descriptor.id))
        )
        self._background = BackgroundRunner(pool, self._runner.post)
        self._stopped = False
        self._last_event = 0
        self.outcome: SubtaskOutcome | None = None

    async def deploy(self) -> None:
        """Build the subtask and restore its state.

        Raises:
            PenstockError: An operator could not be opened, or state could not be read.
        """
        self._runner.deploy(self._build)
        await self._runner.deployed

    def start(self, peers: Mapping[SubtaskId, ActorHandle[Any]]) -> None:
        """Begin to step, sending to these actors.

        Senders that were started earlier may have sent something by then. The runner keeps it until now: an
        unaligned barrier acts on arrival and goes on to receivers that are not known before.
        """
        self._gateway.channels = RemoteChannels(
            self.descriptor.attempt, peers, self._runner.post, self._frame_consumed
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
        waiting = self._deliveries.wait(channel, first + len(elements))
        if not waiting.done():
            self._runner.post(lambda: self._require().deliver(channel, first, elements))
        return await waiting

    def control(self, message: SubtaskControl) -> None:
        """Hand a message of the JobMaster to the subtask."""
        match message:
            case TriggerCheckpoint(barrier):
                self._runner.post(lambda: self._require().trigger_checkpoint(barrier))
            case EventForOperator(operator_id, number, event):
                if number > self._last_event:
                    self._last_event = number
                    self._runner.post(lambda: self._require().operator_event(operator_id, event))
            case NotifyComplete(checkpoint_id):
                self._runner.post(lambda: self._require().notify_checkpoint_complete(checkpoint_id))
            case NotifyAborted(checkpoint_id):
                self._runner.post(lambda: self._require().notify_checkpoint_aborted(checkpoint_id))

    async def stop(self) -> None:
        """Stop the subtask and wait until it is closed."""
        self._stopped = True
        self._link.close()
        if self._gateway.channels is not None:
            self._gateway.channels.close()
        self._runner.stop()
        await self.run()

    def statistics(self) -> SubtaskStatistics | None:
        """The subtask's counters; `None` before it is built."""
        return None if self._runner.subtask is None else self._runner.subtask.statistics()

    def _build(self) -> Subtask:
        config = self.descriptor.config
        storage: SnapshotStorage | None = None
        if config.checkpointing is not None and config.checkpointing.storage is not None:
            storage = open_storage(config.checkpointing.storage, create=False)
            paths = SnapshotPaths(self.descriptor.job_id)
            node = ray.get_runtime_context().get_node_id()
            check_proof(storage, paths.same_storage, self.descriptor.job_id, node)
        return build_subtask(
            self.descriptor, self._gateway, self._background, SystemClock(), storage, open_location
        )

    def _frame_consumed(self, channel: OutputChannelSpec, first: int) -> None:
        self._require().frame_consumed(channel, first)

    def _require(self) -> Subtask:
        if self._runner.subtask is None:
            msg = f"{self.descriptor.id} was called before it was deployed"
            raise RuntimeError(msg)
        return self._runner.subtask


def describe_failure(error: BaseException) -> SubtaskFailed:
    """A failure as plain data: the exception itself may not survive the way to another process."""
    if isinstance(error, OperatorError):
        recoverable = not isinstance(error.__cause__, SuppressRestartsError | RestoreError)
        return SubtaskFailed(str(error), failure_details(error), error.location, recoverable)
    text = "".join(traceback.format_exception(error))
    what = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    is_damage = isinstance(error, CorruptSnapshotError)
    return SubtaskFailed(what, text, recoverable=not is_damage, is_damage=is_damage)
