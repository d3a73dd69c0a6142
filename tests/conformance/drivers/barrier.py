"""Replays the barrier suites through the real channels, gate and handlers.

Senders are never paused here, they just get no credits back, so `unblock` is computed as the suites' README
allows it: what was blocked before the step, and the channel of the step's barrier if the handler aligns,
without what is blocked after it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.barrier.factory import create_barrier_handler
from penstock.runtime.barrier.handler import EndOfPartitionPolicy
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.checkpoint.mode import CheckpointingMode
from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfPartition,
    SnapshotKind,
    StreamElement,
)
from penstock.runtime.testing.manual_time import ManualClock

SUITES = ("aligner", "tracker")

#: Events that are compared as multisets, wherever in the step they stand.
UNORDERED = ("unblock", "persist", "all_barriers")

Event = dict[str, Any]


class BarrierRun:
    """One input under test, with a recording task."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.aligns = config["handler"] == "aligner"
        mode = CheckpointingMode.EXACTLY_ONCE if self.aligns else CheckpointingMode.AT_LEAST_ONCE
        clock = ManualClock()
        channels = sum(config["gates"])
        self.gate = InputGate(InputChannel(index, clock) for index in range(channels))
        self.handler = create_barrier_handler(mode, channels, self.gate, clock, EndOfPartitionPolicy.ABORTS)
        self.input = CheckpointedInputGate(self.gate, self.handler)
        self.input.set_listener(self)
        self.directly = config.get("entry") == "handler"
        self.sent = [0] * channels
        self.trace: list[Event] = []

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        """The task is told to take a checkpoint."""
        self.trace.append({"trigger": barrier.checkpoint_id})

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """The task is told that a checkpoint is given up."""
        self.trace.append({"abort": checkpoint_id, "reason": reason.value})

    def feed(self, fed: dict[str, Any]) -> list[Event]:
        """One element arrives and is consumed; everything observable that comes of it."""
        self.trace.clear()
        before = set(self.gate.blocked_channels)
        channel, element = fed["channel"], element_of(fed)
        try:
            if self.directly:
                self.tell_handler(channel, element)
            else:
                self.input.receive(channel, self.sent[channel], [encode_element(element)])
                self.sent[channel] += 1
                self.consume_all()
        except StreamCorruptError:
            return [*self.trace, {"error": "stream_corrupt"}]
        if self.aligns and isinstance(element, CheckpointBarrier):
            before.add(channel)
        released = sorted(before.difference(self.gate.blocked_channels))
        return [*self.trace, {"unblock": released}] if released else list(self.trace)

    def consume_all(self) -> None:
        """The task takes whatever it can get."""
        while (polled := self.input.poll_next()) is not None:
            channel, element = polled
            if isinstance(element, Buffer):
                self.trace.append({"deliver": element.payload.decode()})
            else:
                assert isinstance(element, EndOfPartition), element
                self.trace.append({"end_of_partition": channel})

    def tell_handler(self, channel: int, element: StreamElement) -> None:
        """Go around the gate, which would never let this element through."""
        assert isinstance(element, CheckpointBarrier), "only barriers are fed to the handler itself"
        self.handler.process_barrier(channel, element)


def element_of(fed: dict[str, Any]) -> StreamElement:
    """The element that a step feeds."""
    match fed["kind"]:
        case "buffer":
            return Buffer(fed["label"].encode(), 1)
        case "barrier":
            kind = SnapshotKind(fed.get("type", "checkpoint"))
            return CheckpointBarrier(fed["id"], 0.0, CheckpointOptions(kind))
        case "cancel":
            return CancelCheckpointMarker(fed["id"])
        case "end_of_partition":
            return EndOfPartition()
    msg = f"unknown kind of element: {fed}"
    raise ValueError(msg)


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    """Replay one case and say what differs, step by step."""
    run = BarrierRun(case["config"])
    expected_state: dict[str, Any] = {"blocked": []}
    if suite != "tracker":
        expected_state["latest_checkpoint_id"] = -1
    differences = []
    for number, step in enumerate(case["steps"], 1):
        observed = run.feed(step["feed"])
        expected_state |= step.get("state", {})
        state = {
            "blocked": list(run.gate.blocked_channels),
            "latest_checkpoint_id": run.handler.latest_checkpoint_id,
        }
        if not same_events(step["expect"], observed):
            differences.append(
                f"step {number} {step['feed']}: expected {step['expect']}, observed {observed}"
            )
        differences += [
            f"step {number} {step['feed']}: expected {key} = {value}, observed {state[key]}"
            for key, value in expected_state.items()
            if value is not None and state[key] != value
        ]
    return differences


def same_events(expected: list[Event], observed: list[Event]) -> bool:
    """Whether a step did exactly what it should."""
    return unordered(expected) == unordered(observed) and same_order(
        [event for event in expected if not is_unordered(event)],
        [event for event in observed if not is_unordered(event)],
    )


def same_order(expected: list[Event], observed: list[Event]) -> bool:
    """Whether both are the same sequence; an optional event may be missing."""
    if not expected:
        return not observed
    head = dict(expected[0])
    optional = head.pop("optional", False)
    if observed and observed[0] == head and same_order(expected[1:], observed[1:]):
        return True
    return bool(optional) and same_order(expected[1:], observed)


def is_unordered(event: Event) -> bool:
    """Whether the place of an event within its step does not count."""
    return any(key in event for key in UNORDERED)


def unordered(events: list[Event]) -> Counter[tuple[str, Any, Any]]:
    """The unordered events with their lists unfolded."""
    unfolded: Counter[tuple[str, Any, Any]] = Counter()
    for event in events:
        if "unblock" in event:
            unfolded.update(("unblock", channel, None) for channel in event["unblock"])
        elif "persist" in event:
            unfolded.update(("persist", event["persist"], label) for label in event["labels"])
        elif "all_barriers" in event:
            unfolded["all_barriers", event["all_barriers"], None] += 1
    return unfolded
