"""Replays the barrier suites through the real channels, gate and handlers.

Senders are never paused here, they just get no credits back. So `unblock` is computed, as the suites' README
allows. It is the set of channels blocked before the step, without those blocked after it. If the handler
aligns, the channel of the step's barrier counts as blocked before.

The suites differ in what "arrives" means: with `hold` an element waits in its channel until it is consumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Any

from drivers.differences import Event, different, taken

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.alternating import AlternatingBarrierHandler
from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.barrier.factory import create_barrier_handler
from penstock.runtime.barrier.handler import CheckpointBarrierHandler
from penstock.runtime.barrier.unaligner import CheckpointBarrierUnaligner
from penstock.runtime.config.checkpointing import CheckpointingMode
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.graph.execution_graph import OutputChannelSpec
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
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock

SUITES = ("aligner", "tracker", "unaligner", "alternating")

#: Events that are compared as multisets, wherever in the step they stand.
UNORDERED = ("unblock", "persist", "all_barriers")


class RecordingWriter:
    """Channel state that is only written down."""

    def __init__(self, trace: list[Event]) -> None:
        self.trace = trace

    def start(self, checkpoint_id: int) -> None:
        """Nothing is observable."""

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        """Buffers become channel state."""
        labels = [element.payload.decode() for element in elements if isinstance(element, Buffer)]
        self.trace.append({"persist": checkpoint_id, "labels": labels})

    def finish_input(self, checkpoint_id: int) -> None:
        """The input part is complete."""
        self.trace.append({"all_barriers": checkpoint_id})

    def add_output(self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        """There are no outputs."""

    def finish_output(self, checkpoint_id: int) -> None:
        """There are no outputs."""

    def abort(self, checkpoint_id: int) -> None:
        """Nothing is observable."""


def make_handler(
    kind: str, channels: int, gate: InputGate, clock: ManualClock, writer: RecordingWriter
) -> CheckpointBarrierHandler:
    """The handler that a suite is about."""
    semantics = Semantics.flink_1_11()
    if kind in ("unaligner", "alternating"):
        unaligner = CheckpointBarrierUnaligner(channels, gate, writer, clock, semantics)
        if kind == "unaligner":
            return unaligner
        aligner = CheckpointBarrierAligner(channels, gate, clock, semantics)
        return AlternatingBarrierHandler(channels, clock, aligner, unaligner)
    mode = CheckpointingMode.EXACTLY_ONCE if kind == "aligner" else CheckpointingMode.AT_LEAST_ONCE
    return create_barrier_handler(mode, channels, gate, clock, semantics)


class BarrierRun:
    """One input under test, with a recording task."""

    def __init__(self, config: dict[str, Any]) -> None:
        kind = config["handler"]
        self.aligns = kind in ("aligner", "alternating")
        self.pauses_only_for_savepoints = kind == "alternating"
        clock = ManualClock()
        channels = sum(config["gates"])
        self.trace: list[Event] = []
        self.gate = InputGate(InputChannel(index, clock) for index in range(channels))
        self.handler = make_handler(kind, channels, self.gate, clock, RecordingWriter(self.trace))
        self.input = CheckpointedInputGate(self.gate, self.handler)
        self.input.set_listener(self)
        self.directly = config.get("entry") == "handler"
        self.sent = [0] * channels

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        """The task gets the call for a checkpoint; the handler persists what waits when this returns."""
        self.trace.append({"trigger": barrier.checkpoint_id})

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        """The task learns that a checkpoint is aborted."""
        self.trace.append({"abort": checkpoint_id, "reason": reason.value})

    def step(self, step: dict[str, Any]) -> list[Event]:
        """Replay one step; everything observable that comes of it."""
        self.trace.clear()
        if "consume" in step:
            self.consume_oldest(step["consume"])
            return list(self.trace)
        return self.feed(step["feed"], wait=step.get("hold", False))

    def feed(self, fed: dict[str, Any], *, wait: bool) -> list[Event]:
        """One element arrives and, unless it has to wait, is consumed."""
        before = set(self.gate.blocked_channels)
        channel, element = fed["channel"], element_of(fed)
        try:
            if self.directly:
                self.tell_handler(channel, element)
            else:
                self.input.receive(channel, self.sent[channel], [encode_element(element)])
                self.sent[channel] += 1
                if not wait:
                    self.consume_all()
        except StreamCorruptError:
            return [*self.trace, {"error": "stream_corrupt"}]
        if self.pauses(element):
            before.add(channel)
        released = sorted(before.difference(self.gate.blocked_channels))
        return [*self.trace, {"unblock": released}] if released else list(self.trace)

    def pauses(self, element: StreamElement) -> bool:
        """Whether an element pauses its sender."""
        if not self.aligns or not isinstance(element, CheckpointBarrier):
            return False
        return element.options.kind.is_savepoint or not self.pauses_only_for_savepoints

    def consume_oldest(self, channel: int) -> None:
        """The task takes the oldest element of one channel, and nothing else."""
        others = [other for other in range(len(self.gate)) if other != channel]
        for other in others:
            self.gate.block(other)
        polled = self.gate.poll()
        for other in others:
            self.gate.unblock(other)
        assert polled is not None, f"nothing waits in channel {channel}"
        if self.input.process(*polled):
            self.took(*polled)

    def consume_all(self) -> None:
        """The task takes whatever it can get."""
        while (polled := self.input.poll_next()) is not None:
            self.took(*polled)

    def took(self, channel: int, element: StreamElement) -> None:
        """The task was handed an element."""
        self.trace.append(taken(channel, element))

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
            # Flink's cases tell the two apart by their kind; handlers that only align do not look.
            return CheckpointBarrier(fed["id"], 0.0, CheckpointOptions(kind, unaligned=not kind.is_savepoint))
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
    if suite != "tracker" and not any("hold" in step for step in case["steps"]):
        expected_state["latest_checkpoint_id"] = -1
    differences = []
    for number, step in enumerate(case["steps"], 1):
        observed = run.step(step)
        what = step.get("feed", step)
        expected_state |= step.get("state", {})
        state = {
            "blocked": list(run.gate.blocked_channels),
            "latest_checkpoint_id": run.handler.latest_checkpoint_id,
        }
        if not same_events(step["expect"], observed, any_order=suite == "alternating"):
            differences.append(f"step {number} {what}: expected {step['expect']}, observed {observed}")
        differences += different(f"step {number} {what}", expected_state, state)
    return differences


def same_events(expected: list[Event], observed: list[Event], *, any_order: bool = False) -> bool:
    """Whether a step did exactly what it should; what is optional may be missing.

    With `any_order` the order within the step does not count for any event.
    """
    return same_unordered(expected, observed) and any(
        same_order([event for event in expected if not is_unordered(event)], list(happened))
        for happened in orders([event for event in observed if not is_unordered(event)], any_order)
    )


def orders(events: list[Event], any_order: bool) -> Iterable[Sequence[Event]]:
    """The orders in which events may be seen; a step has few of them."""
    return permutations(events) if any_order else [events]


def same_unordered(expected: list[Event], observed: list[Event]) -> bool:
    """Whether the unordered events are what is required, with any of the optional ones."""
    seen = unordered(observed)
    required = unordered([event for event in expected if not event.get("optional")])
    return required <= seen <= unordered(expected)


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
