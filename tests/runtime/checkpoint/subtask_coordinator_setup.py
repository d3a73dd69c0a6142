"""A subtask that takes checkpoints step by step and writes down its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manual_work import TwoStepRunner

from penstock.runtime.checkpoint.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import (
    SubtaskCheckpointCoordinator,
)
from penstock.runtime.network.result_partition import Overtaken
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.record.elements import (
    CheckpointBarrier,
    Event,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import (
    NOTHING_STORED,
    CheckpointFailureReason,
    CheckpointMetrics,
)
from penstock.runtime.snapshot.handles import INLINE_LIMIT, SubtaskSnapshot
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock

REASON = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER


def barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0.0)


class Task:
    """A subtask with one value in its state and all its calls in order."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.clock = ManualClock()
        self.runner = TwoStepRunner()
        self.storage = MemoryStorage()
        self.metrics: dict[int, CheckpointMetrics] = {}
        self.during_sync: Callable[[], None] = lambda: None
        self.coordinator = SubtaskCheckpointCoordinator(self, self, self, self.runner, self.clock)

    def prepare_barrier(self, checkpoint_id: int) -> None:
        self.log.append(("prepare", checkpoint_id))

    def capture_rest(self, checkpoint_id: int) -> None:
        self.log.append(("capture rest", checkpoint_id))

    def broadcast_barrier(self, barrier: CheckpointBarrier) -> list[Overtaken]:
        self.log.append(barrier)
        return []

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        return False

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        raise AssertionError("no barrier waits")

    def broadcast_event(self, event: Event) -> None:
        self.log.append(event)

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        self.log.append(("sync", barrier.checkpoint_id))
        self.during_sync()
        lists = encode_list_states({"value": SavedList(["x" * (INLINE_LIMIT + 1)])}, ValueCodec())
        path = f"{barrier.checkpoint_id}/0"
        return SubtaskSnapshotTask(
            barrier.checkpoint_id,
            {"op": OperatorSnapshot(lists)},
            {},
            lambda operator: StateFiles(self.storage, lambda: path),
        )

    is_closed = False
    stored = NOTHING_STORED

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        pass

    def forget(self, checkpoint_id: int) -> None:
        pass

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        self.log.append(("acknowledge", checkpoint_id))
        self.metrics[checkpoint_id] = metrics

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        self.log.append(("decline", checkpoint_id, reason, detail))

    def finish_background(self) -> None:
        while self.runner.waiting:
            self.runner.do(0)
        while self.runner.done:
            self.runner.done.pop(0).tell()
