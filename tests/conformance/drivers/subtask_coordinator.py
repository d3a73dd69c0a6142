"""Replays the suite of what a subtask does with one checkpoint, with the real channel state writer.

The task is a recording one with one operator. What a barrier handler does when it is notified of an unaligned
checkpoint (`init`) is to open the channel state. Asynchronous halves run at once, or as the case says: they
count as running from `async_begin` until the coordinator has ended them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from drivers.barrier import same_order
from drivers.differences import different
from manual_work import ManualAsyncRunner, ManualWork

from penstock import DiscardSink, GeneratorSource, RocksDB, StreamEnvironment
from penstock.runtime.checkpoint.channel_state_writer import AsyncChannelStateWriter, BarrierSender, InFlight
from penstock.runtime.checkpoint.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import SubtaskCheckpointCoordinator
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig, Semantics, StateBackend
from penstock.runtime.graph.execution_graph import OutputChannelSpec, build_execution_graph
from penstock.runtime.network.result_partition import Overtaken
from penstock.runtime.operators.operator import Operator, Output, SavedList
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import (
    Batch,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfData,
    Event,
    SnapshotKind,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import (
    NOTHING_STORED,
    CheckpointFailureReason,
    CheckpointMetrics,
)
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.task.build import build_subtask
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.end_of_input import Phase
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

SUITES = ("subtask_coordinator",)

Recorded = dict[str, Any]
T = TypeVar("T")


class DirectRunner(ManualAsyncRunner):
    """Does work at once; but asynchronous parts of checkpoints wait for the case, if they are to."""

    def __init__(self, *, is_manual: bool) -> None:
        super().__init__()
        self.is_manual = is_manual
        self.halves: list[ManualWork] = []

    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> ManualWork:
        item = super().run(work, on_result, on_error)
        self._queue.clear()
        if self.is_manual and isinstance(getattr(work, "__self__", None), SubtaskSnapshotTask):
            self.halves.append(item)
        else:
            item.run()
        return item


class RecordingChannelState(AsyncChannelStateWriter):
    """The real writer, observed; saying the same of one checkpoint twice says nothing new."""

    def __init__(self, storage: MemoryStorage, runner: DirectRunner, events: list[Recorded]) -> None:
        super().__init__([], {}, lambda i: StateFiles(storage, lambda: f"channels/{i}"), runner)
        self.events = events
        self.said: set[tuple[str, int]] = set()

    def record(self, what: str, checkpoint_id: int) -> None:
        if (what, checkpoint_id) not in self.said:
            self.said.add((what, checkpoint_id))
            self.events.append({"channel_state": what, "checkpoint": checkpoint_id})

    def start(self, checkpoint_id: int) -> None:
        self.record("start", checkpoint_id)
        super().start(checkpoint_id)

    def finish_input(self, checkpoint_id: int) -> None:
        self.record("finish_input", checkpoint_id)
        super().finish_input(checkpoint_id)

    def finish_output(self, checkpoint_id: int) -> None:
        self.record("finish_output", checkpoint_id)
        super().finish_output(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        self.record("abort", checkpoint_id)
        super().abort(checkpoint_id)


class RecordedSnapshot(SubtaskSnapshotTask):
    """A snapshot whose end without acknowledgement is observed."""

    events: list[Recorded]

    def abandon(self) -> bool:
        self.events.append({"snapshot_cancelled": self.checkpoint_id})
        return super().abandon()


class Notified(Operator):
    """A keyed operator that writes down its notices."""

    def __init__(self, events: list[Recorded]) -> None:
        self.events = events

    def process(self, batch: Batch) -> Iterator[Output]:
        yield batch

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.events.append({"operator": "notify_complete", "checkpoint": permit.checkpoint_id})


class NotifiedBackend(HeapKeyedStateBackend):
    """A backend that writes down its notices."""

    events: list[Recorded]

    def confirm(self, checkpoint_id: int) -> None:
        self.events.append({"state_manager": "complete", "checkpoint": checkpoint_id})
        super().confirm(checkpoint_id)


class NotifiedSubtask:
    """A real subtask: `Subtask` itself takes a notice that Flink passes through the coordinator."""

    def __init__(self, events: list[Recorded]) -> None:
        env = StreamEnvironment()
        numbers = env.from_source("numbers", GeneratorSource(lambda n: n))
        sums = numbers.key_by(lambda n: n).reduce("sum", lambda a, b: a + b)
        object.__setattr__(sums._builder.graph.nodes[-1].operator, "factory", lambda: Notified(events))
        sums.sink("out", DiscardSink())
        spec = build_execution_graph(env.build()).subtask(SubtaskId("sum", 0))
        descriptor = TaskDescriptor("job", "job", 1, spec, JobConfig(state_backend=RocksDB()))

        def open_backend(config: StateBackend, setup: BackendSetup) -> NotifiedBackend:
            backend = NotifiedBackend(setup)
            backend.events = events
            return backend

        self.subtask = build_subtask(
            descriptor, self, ManualAsyncRunner(), ManualClock(), None, open_state_backend=open_backend
        )

    def leave(self) -> None:
        """End its data; a job without checkpoints then leaves at once."""
        self.subtask.deliver(0, 0, [encode_element(EndOfData(drain=True))])
        while self.subtask.step().more:
            pass
        assert self.subtask.phase is Phase.LEAVING

    def send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        """Its receivers take nothing."""

    def consumed(self, channel: int, next_sequence_number: int) -> None: ...

    def acknowledge(
        self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics
    ) -> None: ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None: ...

    def operator_event(self, operator_id: str, event: Any) -> None: ...

    def warn(self, operator_id: str, text: str) -> None: ...

    def end_of_data(self) -> None: ...


class SubtaskRun:
    """One coordinator under test; it is the state, the outputs and the responder."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.events: list[Recorded] = []
        self.checkpointing = Checkpointing(every=10, unaligned=config["unaligned"])
        self.storage = MemoryStorage()
        self.runner = DirectRunner(is_manual=config["async"] == "manual")
        self.begun: dict[int, bool] = {}
        self.is_closed = self.snapshot_fails = False
        self.notified: NotifiedSubtask | None = None
        clock = ManualClock()
        self.in_flight: InFlight | None = None
        if config["unaligned"]:
            writer = RecordingChannelState(self.storage, self.runner, self.events)
            self.in_flight = InFlight(BarrierSender(self, writer, ManualTimers(clock)), writer)
        self.coordinator = SubtaskCheckpointCoordinator(
            self,
            self,
            self,
            self.runner,
            clock,
            self.in_flight,
            max_recorded_aborted=config["max_recorded_aborted"],
            semantics=Semantics.flink_1_11(),
        )

    # -- the state and the outputs ----------------------------------------------------------------------

    def prepare_barrier(self, checkpoint_id: int) -> None:
        self.events.append({"prepare": checkpoint_id})

    def broadcast_event(self, event: Event) -> None:
        match event:
            case CancelCheckpointMarker(checkpoint_id):
                self.events.append({"broadcast": "cancel", "checkpoint": checkpoint_id})
            case CheckpointBarrier():
                self.broadcast_barrier(event)

    def broadcast_barrier(self, barrier: CheckpointBarrier) -> list[Overtaken]:
        sent = {"broadcast": "barrier", "checkpoint": barrier.checkpoint_id}
        self.events.append(sent | {"priority": barrier.options.unaligned})
        return []

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        return False

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        return []

    stored = NOTHING_STORED

    def capture_rest(self, checkpoint_id: int) -> None:
        self.events.append({"prepare_input": checkpoint_id})

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        if self.snapshot_fails:
            self.snapshot_fails = False
            msg = "the case says that it fails"
            raise OSError(msg)
        self.events.append({"snapshot": barrier.checkpoint_id})
        lists = encode_list_states({"value": SavedList(["x"])}, ValueCodec())
        task = RecordedSnapshot(
            barrier.checkpoint_id,
            {"op": OperatorSnapshot(lists)},
            {},
            lambda operator: StateFiles(self.storage, lambda: f"state/{barrier.checkpoint_id}"),
        )
        task.events = self.events
        return task

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.events.append({"operator": "notify_aborted", "checkpoint": checkpoint_id})

    def forget(self, checkpoint_id: int) -> None:
        self.events.append({"state_manager": "aborted", "checkpoint": checkpoint_id})

    # -- the responder --------------------------------------------------------------------------------------

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        self.events.append({"ack": checkpoint_id})

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        self.events.append({"decline": checkpoint_id, "reason": reason.value})

    # -- operations -----------------------------------------------------------------------------------------

    def observe(self, op: dict[str, Any]) -> dict[str, Any]:
        """Carry an operation out; everything observable, and the state behind it."""
        self.events.clear()
        got: dict[str, Any] = {}
        try:
            self.do(op)
        except OSError:
            got["error"] = "io_error"
        statistics = self.coordinator.statistics()
        live = [item for item in self.runner.halves if self.begun.get(id(item)) and not item.cancelled]
        state = {"aborted_remembered": statistics.remembered_aborts, "async_running": len(live)}
        return got | {"events": list(self.events), "state": state}

    def do(self, op: dict[str, Any]) -> None:
        checkpoint_id = op.get("checkpoint", -1)
        running = op.get("running", True)
        match op["op"]:
            case "init":
                if self.in_flight is not None and self.options(op).options.unaligned:
                    self.in_flight.writer.start(checkpoint_id)
            case "checkpoint":
                self.coordinator.trigger(self.options(op), is_input_empty=True)
            case "notify_complete":
                if self.notified is None:
                    self.notified = NotifiedSubtask(self.events)
                if not running:
                    self.notified.leave()
                self.notified.subtask.notify_checkpoint_complete(checkpoint_id)
            case "notify_aborted":
                for each in range(checkpoint_id, op.get("to", checkpoint_id) + 1):
                    self.coordinator.notify_checkpoint_aborted(each, is_running=running)
            case "abort_on_barrier":
                self.coordinator.abort(checkpoint_id, CheckpointFailureReason(op["reason"]))
            case "async_begin":
                self.begun[id(self.half(checkpoint_id))] = True
            case "async_end":
                half = self.half(checkpoint_id)
                self.begun[id(half)] = False
                half.run()
            case "close_operator":
                self.is_closed = True
            case "snapshot_fails_once":
                self.snapshot_fails = True
            case "close":
                self.coordinator.close()
            case unknown:
                raise NotImplementedError(unknown)

    def options(self, op: dict[str, Any]) -> CheckpointBarrier:
        kind = SnapshotKind(op.get("type", "checkpoint"))
        return CheckpointBarrier(op["checkpoint"], 0.0, self.checkpointing.options(kind))

    def half(self, checkpoint_id: int) -> ManualWork:
        """The asynchronous half of a checkpoint."""
        return next(h for h in self.runner.halves if h.work.__self__.checkpoint_id == checkpoint_id)


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    run = SubtaskRun(case["config"])
    state: dict[str, Any] = {}
    differences = []
    for index, op in enumerate(case["ops"]):
        expect = op["expect"]
        state |= expect.get("state", {})
        got = run.observe(op)
        where = f"op {index} ({op['op']})"
        if "to" not in op and not same_order(expect["events"], got["events"]):
            differences.append(f"{where}: expected {expect['events']}, observed {got['events']}")
        if got.get("error") != expect.get("error"):
            differences.append(f"{where}: expected error {expect.get('error')}, got {got.get('error')}")
        differences += different(where, state, got["state"])
    return differences
