"""One attempt of one subtask inside its actor: its thread, its gateway, and its end.

The actor's event loop only receives. The attempt's thread builds and restores the subtask, steps it, and
takes arrivals in the order in which they were posted. So users' code may block without stopping
deliveries, and no part of the subtask needs a lock.

`running_call` finds the user's code that a stuck thread is running, from the thread's stack. So operators
record nothing while they run. Every call of an operator goes through `OperatorChain.call`, and every call
of a source's reader through `SourceOperator.guarded`. The stack frames of these two refer to the operator.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.cycle_collector import FullCollections
from penstock.actors.shared.system_ports import BackgroundRunner, SystemClock
from penstock.actors.subtask.event_loop import ThreadedEventLoop
from penstock.actors.subtask.gateway import MasterLink, RemoteChannels, RemotePeer
from penstock.actors.subtask.metrics import SubtaskMetrics
from penstock.runtime.execution.failure_causes import as_failure, describe_failure
from penstock.runtime.execution.processes import Counters, LongCall, SubtaskFinished, SubtaskStopped
from penstock.runtime.execution.role import Role
from penstock.runtime.execution.subtask_process import AttemptEvents, OnBuilt
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.io.rocksdb.backend import open_state_backend
from penstock.runtime.io.scratch import open_spill_file
from penstock.runtime.io.storage import check_proof, open_location, open_storage
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.functions.fused_loop import FILE_OF_LOOPS
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.user_code.failure import close_after
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.element_codec import EncodedElement
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.task.build import build_subtask
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.task.output_samples import OutputEdge, OutputSample, SampledRecord
from penstock.runtime.task.statistics import SubtaskStatistics
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.time.durations import as_seconds


def running_call(frame: FrameType | None) -> str | None:
    """The user's function that a thread is running: `map function parse (job.py:12)`; `None` without one."""
    loop: FrameType | None = None
    while frame is not None:
        describe = _CALLERS.get(frame.f_code)
        if describe is not None:
            return describe(frame.f_locals, loop)
        if loop is None and frame.f_code.co_filename == FILE_OF_LOOPS:
            loop = frame
        frame = frame.f_back
    return None


def _of_operator(found: Mapping[str, Any], loop: FrameType | None) -> str:
    doing: str = found["self"].doing(found["index"], loop)
    return doing


def _of_source(found: Mapping[str, Any], loop: FrameType | None) -> str:
    doing: str = found["self"].doing(found["what"])
    return doing


#: Functions that describe a call from the local variables of a frame, by the frame's code.
_CALLERS: Final[Mapping[CodeType, Callable[[Mapping[str, Any], FrameType | None], str]]] = {
    OperatorChain.call.__code__: _of_operator,
    SourceOperator.guarded.__code__: _of_source,
}


Mail: TypeAlias = Callable[[], None]

BuildSubtask: TypeAlias = Callable[[], Subtask]

#: Seconds after which a call of a user's function is reported.
_LONG_CALL = 5.0
#: Maximum sleep of an idle task thread, in seconds; the thread checks its stop flag at least this often.
_MAX_IDLE = 5.0


class TaskThread:
    """Runs one attempt of a subtask in a thread of its own; its futures belong to the actor's event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        build: BuildSubtask,
        collections: FullCollections,
    ) -> None:
        self._loop = loop
        self._collections = collections
        self._build = build
        self._mailbox: SimpleQueue[Mail] = SimpleQueue()
        self._may_run = threading.Event()
        self._stopping = False
        #: Start time of the thread's current piece of work; `None` while the thread waits.
        self._busy_since: float | None = None
        self.subtask: Subtask | None = None
        self.deployed: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def post(self, mail: Mail) -> None:
        self._mailbox.put(mail)

    def deploy(self) -> None:
        self._thread.start()

    def start(self) -> None:
        self._may_run.set()

    def stop(self) -> None:
        """Stop after the current piece of work."""
        self._stopping = True
        self._may_run.set()
        self.post(lambda: None)

    def long_call(self) -> LongCall | None:
        """A user's function that has been running for a long time, if any; callable from any thread."""
        since = self._busy_since
        if since is None or self._thread.ident is None:
            return None
        seconds = time.monotonic() - since
        if seconds < _LONG_CALL:
            return None
        what = running_call(sys._current_frames().get(self._thread.ident))
        return None if what is None else LongCall(what, seconds)

    def _main(self) -> None:
        try:
            self._busy_since = time.monotonic()
            self.subtask = self._build()
        except BaseException as error:  # if uncaught, even SystemExit would silently end this thread only
            self._settle(self.deployed, error)
            self._settle(self.ended, None)
            return
        self._busy_since = None
        self._settle(self.deployed, None)
        failure: BaseException | None = None
        try:
            self._run(self.subtask)
        except BaseException as error:
            failure = error
        self._settle(self.ended, close_after(failure, self.subtask.close))

    def _run(self, subtask: Subtask) -> None:
        mailbox = self._mailbox
        self._may_run.wait()  # for `start` or `stop`; the lease ends an attempt that gets neither
        while not self._stopping:
            self._busy_since = time.monotonic()
            result = subtask.step()
            if result.finished:
                return
            timeout = 0.0
            if not result.more:
                timeout = _MAX_IDLE
                if result.wake_at is not None:
                    timeout = min(timeout, max(0.0, result.wake_at - time.monotonic()))
            self._collections.collect_if_due(
                is_idle=timeout > 0 and mailbox.empty(), is_taking_checkpoint=subtask.is_taking_checkpoint
            )
            self._take_mail(mailbox, timeout)

    def _take_mail(self, mailbox: SimpleQueue[Mail], timeout: float) -> None:
        self._busy_since = None
        try:
            mail = mailbox.get(timeout=timeout) if timeout > 0 else mailbox.get_nowait()
        except Empty:
            return
        self._busy_since = time.monotonic()
        while True:
            mail()  # an `Empty` that the mail raises is a failure
            try:
                mail = mailbox.get_nowait()
            except Empty:
                return

    def _settle(self, future: asyncio.Future[None], error: BaseException | None) -> None:
        def settle() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(as_failure(error))

        self._loop.call_soon_threadsafe(settle)


class Attempt:
    """An attempt of a subtask (`RunningAttempt`).

    Its methods run on the actor's event loop, except those that the task thread calls.
    """

    def __init__(
        self,
        role: Role,
        descriptor: TaskDescriptor,
        master: ActorHandle[Any],
        events: AttemptEvents,
        pool: ThreadPoolExecutor,
        metrics: SubtaskMetrics,
        loop: asyncio.AbstractEventLoop,
        collections: FullCollections,
    ) -> None:
        self.role = role
        self._descriptor = descriptor
        self._events = events
        self._metrics = metrics
        self._loop = loop
        self._link = MasterLink(loop, master, role, self._consumed)
        self._thread = TaskThread(loop, str(descriptor.id), self._build, collections)
        self._background = BackgroundRunner(pool, self._thread.post)
        self._stopped = False

    def build(self, on_built: OnBuilt) -> None:
        def deployed(future: asyncio.Future[None]) -> None:
            error = future.exception()
            on_built(None if error is None else describe_failure(error))

        self._thread.deployed.add_done_callback(deployed)
        self._thread.ended.add_done_callback(self._has_ended)
        try:
            self._thread.deploy()
        except RuntimeError as error:  # the system can't start another thread
            on_built(describe_failure(error))

    def start(self, peers: Mapping[SubtaskId, RemotePeer]) -> None:
        """Start the steps of the subtask.

        Senders that were started earlier may have sent frames before this call. The thread keeps such frames
        until now, because an unaligned barrier is forwarded on arrival, and only this call names the
        receivers.
        """
        self._link.channels = RemoteChannels(
            peers, self._thread.post, self._frame_consumed, self._receiver_gone
        )
        self._metrics.begin(self.role.job_id, self._descriptor.job_name, self.role.subtask, self._statistics)
        self._thread.start()

    def stop(self) -> None:
        """Stop the subtask. It then repeats no report and sends no frame, even if it stops slowly."""
        self._stopped = True
        self._link.close()
        self._thread.stop()

    def deliver(self, channel: int, first: int, elements: Sequence[EncodedElement]) -> None:
        self._thread.post(lambda: self._require().deliver(channel, first, elements))

    def control(self, message: SubtaskControl) -> None:
        self._thread.post(lambda: self._require().control(message))

    def counters(self) -> Counters:
        return Counters(self.role.attempt, self._statistics(), self._thread.long_call())

    async def sample(self, edge: OutputEdge, most: int, seconds: float) -> tuple[SampledRecord, ...]:
        """The next records on an edge: at most `most`, collected for at most `seconds`."""
        full = asyncio.Event()

        def on_full() -> None:
            self._loop.call_soon_threadsafe(full.set)

        sample = OutputSample(most, on_full, time.monotonic)
        ends: list[Callable[[], None]] = []
        self._thread.post(lambda: ends.append(self._require().sample_output(edge, sample)))
        with suppress(TimeoutError):
            await asyncio.wait_for(full.wait(), seconds)

        def end() -> None:
            for each in ends:
                each()

        self._thread.post(end)
        return sample.records

    def end_reports(self) -> None:
        self._link.close()

    def _has_ended(self, ended: asyncio.Future[None]) -> None:
        if self._thread.subtask is None:
            return  # the build failed, and `on_built` has reported it
        error = ended.exception()
        if error is not None:
            self._events.ended(describe_failure(error))
        elif self._stopped:
            self._events.ended(SubtaskStopped())
        else:
            self._events.ended(SubtaskFinished(self._statistics()))

    def _statistics(self) -> SubtaskStatistics | None:
        return None if self._thread.subtask is None else self._thread.subtask.statistics()

    def _build(self) -> Subtask:
        config = self._descriptor.config
        storage: SnapshotStorage | None = None
        place: StorageOpener = open_location
        if config.checkpointing is not None and config.checkpointing.storage is not None:
            timeout = as_seconds(config.advanced.storage_timeout)
            storage = open_storage(os.fspath(config.checkpointing.storage), create=False, timeout=timeout)
            place = partial(open_location, timeout=timeout)
            paths = SnapshotPaths(self._descriptor.job_id)
            node = ray.get_runtime_context().get_node_id()
            check_proof(storage, paths.same_storage, self._descriptor.job_id, node)
        return build_subtask(
            self._descriptor,
            self._link,
            self._background,
            SystemClock(),
            storage,
            place,
            open_spill_file,
            open_state_backend,
            partial(ThreadedEventLoop, str(self._descriptor.id), self._thread.post),
        )

    def _consumed(self, channel: int, next_sequence_number: int) -> None:
        """Answer `deliver` calls; called in the task thread."""
        self._loop.call_soon_threadsafe(self._events.consumed, channel, next_sequence_number)

    def _frame_consumed(self, channel: OutputChannelSpec, first: int) -> None:
        self._require().frame_consumed(channel, first)

    def _receiver_gone(self, channel: OutputChannelSpec) -> None:
        self._require().receiver_gone(channel)

    def _require(self) -> Subtask:
        if self._thread.subtask is None:
            msg = f"{self._descriptor.id} was called before it was deployed"
            raise RuntimeError(msg)
        return self._thread.subtask
