"""Replays the suites of the storing gate: barriers with stored elements, and the storage alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from drivers.barrier import element_of, same_events
from drivers.differences import Event, different, taken

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.checkpointed_input_gate import StoredChannels, StoringInputGate
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.io.scratch import open_spill_file
from penstock.runtime.network.buffer_storage import (
    ELEMENT_OVERHEAD,
    BufferStorage,
    StoredElement,
)
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.ports import SpillFile
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, StreamElement
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock

SUITES = ("barrier_buffer", "buffer_storage")


def storages(config: dict[str, Any], folder: str) -> list[BufferStorage]:
    """All storages with a case's settings: each of them has to pass."""

    def open_file() -> SpillFile:
        return open_spill_file(Path(folder))

    limit = None if config["max_buffered_bytes"] == -1 else config["max_buffered_bytes"]
    memories = (0, 2 * ELEMENT_OVERHEAD, 1_000_000)
    return [BufferStorage(open_file, memory, limit) for memory in memories]


def size_of(config: dict[str, Any], fed: dict[str, Any]) -> int:
    """Bytes that an element counts for: those that the case gives, or a page of Flink's memory."""
    size: int = config["page_size"] if config["accounting"] == "page" else fed.get("size", 1)
    return size


class EndingGate(StoringInputGate):
    """A gate whose input ends at once, as the cases of Flink's gate have it; jobs end channel by channel."""

    input_has_ended = False

    def end_input(self) -> None:
        """No channel will deliver anything more: release all, and take no checkpoint of what is stored."""
        self.input_has_ended = True
        self._aligner._end_alignment()
        self._hand_in_if_released()

    def process(self, channel: int, element: StreamElement) -> bool:
        """Deal with an element; barriers do nothing any more at the end."""
        if self.input_has_ended and isinstance(element, CheckpointBarrier):
            return False
        return super().process(channel, element)


class StoringRun:
    """One input under test, with a recording task."""

    def __init__(self, config: dict[str, Any], storage: BufferStorage) -> None:
        clock = ManualClock()
        count = sum(config["gates"])
        channels = StoredChannels()
        self.gate = InputGate(InputChannel(index, clock) for index in range(count))
        self.handler = CheckpointBarrierAligner(count, channels, clock, Semantics.flink_1_11())
        self.input = EndingGate(self.gate, self.handler, channels, storage, self.size_of)
        self.input.set_listener(self)
        self.config = config
        self.fed: dict[str, Any] = {}
        self.sent = [0] * count
        self.trace: list[Event] = []

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        """The task gets the call for a checkpoint."""
        self.trace.append({"trigger": barrier.checkpoint_id, "alignment_bytes": self.input.stored.stored})

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        """The task learns that a checkpoint is aborted."""
        self.trace.append({"abort": checkpoint_id, "reason": reason.value})

    def size_of(self, element: StreamElement) -> int:
        """The size that the case gives; it asks for the element that was fed last."""
        return size_of(self.config, self.fed)

    def feed(self, fed: dict[str, Any]) -> list[Event]:
        """One element arrives and is consumed or stored; everything observable that comes of it."""
        self.trace.clear()
        self.fed = fed
        if fed["kind"] == "end_of_input":
            self.input.end_input()
        else:
            channel = fed["channel"]
            self.input.receive(channel, self.sent[channel], [encode_element(element_of(fed))])
            self.sent[channel] += 1
        while (polled := self.input.poll_next()) is not None or self.input.has_more:
            if polled is not None:
                self.took(*polled)
        if fed["kind"] == "end_of_input" and not self.input.stored.stored:
            self.trace.append({"finished": True})
        return list(self.trace)

    def took(self, channel: int, element: StreamElement) -> None:
        """The task was handed an element."""
        self.trace.append(taken(channel, element))


def replay_barriers(case: dict[str, Any], storage: BufferStorage) -> list[str]:
    """Replay one case of the gate and say what differs, step by step."""
    run = StoringRun(case["config"], storage)
    expected_state: dict[str, Any] = {"blocked": [], "latest_checkpoint_id": -1}
    differences = []
    for number, step in enumerate(case["steps"], 1):
        observed = run.feed(step["feed"])
        expected_state |= step.get("state", {})
        state = {
            "blocked": list(run.input.blocked_channels),
            "latest_checkpoint_id": run.handler.latest_checkpoint_id,
        }
        where = f"{type(storage).__name__} step {number} {step['feed']}"
        if not same_events(step["expect"], observed):
            differences.append(f"{where}: expected {step['expect']}, observed {observed}")
        differences += different(where, expected_state, state)
    return differences


def replay_storage(case: dict[str, Any], storage: BufferStorage) -> list[str]:
    """Replay one case of the storage alone."""
    expected_state: dict[str, Any] = {}
    differences = []
    for number, op in enumerate(case["ops"], 1):
        label = None
        if op["op"] == "add":
            storage.add(StoredElement(0, Buffer(op["label"].encode(), 1), size_of(case["config"], op)))
        elif op["op"] == "roll_over":
            storage.roll_over()
        else:
            polled = storage.poll()
            assert polled is None or isinstance(polled.element, Buffer)
            label = None if polled is None else polled.element.payload.decode()
        expected_state |= op["expect"].get("state", {})
        state = {
            "pending_bytes": storage.pending_bytes,
            "rolled_bytes": storage.rolled_bytes,
            "empty": storage.is_empty,
            "full": storage.is_full,
        }
        where = f"{type(storage).__name__} op {number} {op['op']}"
        if op["expect"].get("label") != label:
            differences.append(f"{where}: expected {op['expect']}, observed {label}")
        differences += different(where, expected_state, state)
    return differences


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    """Replay one case with each storage and say what differs."""
    replay_one = replay_barriers if suite == "barrier_buffer" else replay_storage
    with tempfile.TemporaryDirectory() as folder:
        differences = []
        for storage in storages(case["config"], folder):
            differences += replay_one(case, storage)
            storage.close()
        return differences
