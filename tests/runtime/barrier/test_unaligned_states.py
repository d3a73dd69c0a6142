"""The states of an input whose barriers may overtake: what each event leads to in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.runtime.barrier.unaligned_states import (
    Aligned,
    BarrierController,
    BarrierState,
    InputComplete,
    UnalignedCheckpoint,
    WaitingForAlignedChannels,
    WaitingForAllBarriers,
    WaitingForFirstBarrier,
    WaitingForLastBarriers,
)
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.record.elements import (
    Buffer,
    CheckpointBarrier,
    CheckpointOptions,
    StreamElement,
    Watermark,
)
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

A, B = Buffer(b"a", 1), Buffer(b"b", 1)
BARRIER = CheckpointBarrier(7, 0.0, CheckpointOptions(aligned_timeout=5.0))


class World:
    """Two channels, a writer and a task that write down their calls."""

    def __init__(self, aligned: Sequence[int] = (), *, is_ready: bool = True) -> None:
        self.log: list[Any] = []
        self.is_ready = is_ready
        self.waits: dict[int, list[StreamElement]] = {0: [], 1: []}
        self.input = BarrierController(self, self, aligned, lambda: self.is_ready, self.trigger)
        self.checkpoint = UnalignedCheckpoint(BARRIER, {0, 1}, {0, 1}, 3.0)

    def trigger(self, barrier: CheckpointBarrier, started_at: float) -> None:
        self.log.append(("trigger", barrier.options.unaligned, started_at))

    def block(self, channel: int) -> None:
        self.log.append(("block", channel))

    def unblock(self, channel: int) -> None:
        self.log.append(("unblock", channel))

    def waiting(self, channel: int) -> Sequence[StreamElement]:
        return self.waits[channel]

    def start(self, checkpoint_id: int) -> None:
        self.log.append(("start", checkpoint_id))

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        self.log.append(("persist", channel, *elements))

    def finish_input(self, checkpoint_id: int) -> None:
        self.log.append(("finish", checkpoint_id))

    def add_output(self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        raise AssertionError("an input has no outputs")

    def finish_output(self, checkpoint_id: int) -> None:
        raise AssertionError("an input has no outputs")

    def abort(self, checkpoint_id: int) -> None:
        self.log.append(("abort", checkpoint_id))

    def all_barriers(self) -> WaitingForAllBarriers:
        return WaitingForAllBarriers(self.checkpoint, self.input)

    def aligned_channels(self) -> WaitingForAlignedChannels:
        return WaitingForAlignedChannels(self.checkpoint, self.input)

    def last_barriers(self) -> WaitingForLastBarriers:
        return WaitingForLastBarriers(self.checkpoint, self.input)


@pytest.fixture
def world() -> World:
    return World()


# -- no checkpoint ------------------------------------------------------------------------------------------


def test_without_a_checkpoint_every_event_leaves_the_state_as_it_is() -> None:
    state = WaitingForFirstBarrier()
    state.element_arrived(0, A)
    state.leave()
    assert state.enter() is state
    assert state.barrier_consumed(0) is state
    assert state.barrier_arrived(0) is state
    assert state.end_consumed(0) is state
    assert state.turn_unaligned() is state
    assert state.trigger_if_due() is state
    assert (state.checkpoint, state.is_triggered) == (None, False)


# -- before the trigger -------------------------------------------------------------------------------------


def test_aligned_checkpoint_waits_for_the_barrier_of_every_channel(world: World) -> None:
    state = world.all_barriers()
    assert state.enter() is state
    assert state.barrier_consumed(0) is state
    assert world.log == [("block", 0)]
    assert type(state.barrier_consumed(1)) is Aligned


def test_channel_that_consumes_the_barrier_again_is_blocked_once(world: World) -> None:
    state = world.all_barriers()
    state.barrier_consumed(0)
    assert state.barrier_consumed(0) is state
    assert world.log == [("block", 0)]


def test_end_of_a_channel_stands_for_its_barrier_and_blocks_nothing(world: World) -> None:
    state = world.all_barriers()
    assert state.end_consumed(1) is state
    assert type(state.barrier_consumed(0)) is Aligned
    assert world.log == [("block", 0)]


@pytest.mark.parametrize("aligned", [True, False])
def test_barrier_that_has_only_arrived_triggers_nothing(world: World, aligned: bool) -> None:
    state: BarrierState = world.all_barriers() if aligned else World([0]).aligned_channels()
    assert state.barrier_arrived(0) is state
    assert state.barrier_arrived(1) is state
    assert not state.is_triggered


@pytest.mark.parametrize("consumed", [True, False])
def test_what_comes_behind_a_barrier_from_before_the_trigger_is_not_captured(consumed: bool) -> None:
    world = World([1])
    waiting = world.aligned_channels()
    waiting.barrier_consumed(0) if consumed else waiting.barrier_arrived(0)
    triggered = waiting.barrier_consumed(1)
    assert type(triggered) is WaitingForLastBarriers
    triggered.element_arrived(0, B)
    assert type(triggered.enter()) is InputComplete, "both barriers have arrived"
    assert not any(entry[0] == "persist" for entry in world.log)


def test_aligned_checkpoint_waits_for_the_task(world: World) -> None:
    world.is_ready = False
    state = world.all_barriers()
    state.barrier_consumed(0)
    assert state.barrier_consumed(1) is state
    assert state.trigger_if_due() is state
    world.is_ready = True
    assert type(state.trigger_if_due()) is Aligned


def test_task_is_not_asked_while_a_barrier_is_missing() -> None:
    world = World()
    asked = []
    world.input.is_ready = lambda: bool(asked.append("asked")) or True
    world.all_barriers().barrier_consumed(0)
    assert asked == []


def test_aligned_checkpoint_that_turns_unaligned_keeps_its_channels_blocked(world: World) -> None:
    state = world.all_barriers()
    state.barrier_consumed(0)
    turned = state.turn_unaligned()
    assert type(turned) is WaitingForAlignedChannels
    assert turned.checkpoint is world.checkpoint
    assert turned.enter() is turned
    assert world.checkpoint.blocked == [0]
    assert turned.turn_unaligned() is turned


def test_timeout_is_cancelled_when_the_state_is_left(world: World) -> None:
    timers = ManualTimers(ManualClock())
    timer = timers.call_later(1.0, lambda: world.log.append("timeout"))
    WaitingForAllBarriers(world.checkpoint, world.input, timer).leave()
    timers.advance(2.0)
    assert world.log == []
    world.all_barriers().leave()


def test_unaligned_checkpoint_waits_only_for_the_channels_that_can_not_be_overtaken() -> None:
    world = World([1])
    state = world.aligned_channels()
    assert state.trigger_if_due() is state
    assert state.barrier_consumed(0) is state
    assert type(state.barrier_consumed(1)) is WaitingForLastBarriers
    assert world.log == [("block", 0), ("block", 1)]


def test_unaligned_checkpoint_without_such_channels_waits_only_for_the_task(world: World) -> None:
    world.is_ready = False
    state = world.aligned_channels()
    assert state.trigger_if_due() is state
    world.is_ready = True
    assert type(state.trigger_if_due()) is WaitingForLastBarriers


def test_end_of_a_channel_that_can_not_be_overtaken_stands_for_its_barrier() -> None:
    world = World([1])
    assert type(world.aligned_channels().end_consumed(1)) is WaitingForLastBarriers


# -- the triggers -------------------------------------------------------------------------------------------


def test_aligned_trigger_releases_the_channels_first_and_captures_nothing(world: World) -> None:
    world.waits[0] = [A]
    state = world.all_barriers()
    state.barrier_consumed(0)
    after = state.barrier_consumed(1)
    world.log.clear()
    assert after.checkpoint is None
    assert type(after.enter()) is WaitingForFirstBarrier
    assert world.log == [("unblock", 0), ("unblock", 1), ("trigger", False, 3.0)]
    assert world.checkpoint.blocked == []


def test_unaligned_trigger_persists_what_waits_in_front_of_the_barriers_after_the_task_was_told(
    world: World,
) -> None:
    world.waits = {0: [A, BARRIER, B], 1: [Watermark(1)]}
    world.checkpoint.unarrived.discard(0)
    state = world.last_barriers()
    assert state.enter() is state
    assert state.is_triggered
    assert world.log == [
        ("start", 7),
        ("trigger", True, 3.0),
        ("persist", 0, A),
        ("persist", 1, Watermark(1)),
    ]


def test_unaligned_trigger_persists_nothing_of_a_channel_that_has_consumed_its_barrier() -> None:
    world = World([0])
    waiting = world.aligned_channels()
    triggered = waiting.barrier_consumed(0)
    world.waits = {0: [B], 1: []}
    world.log.clear()
    assert triggered.enter() is triggered
    assert world.log == [("unblock", 0), ("start", 7), ("trigger", True, 3.0)]


def test_input_is_complete_at_the_trigger_when_every_barrier_has_arrived(world: World) -> None:
    world.waits = {0: [A, BARRIER], 1: [BARRIER]}
    world.checkpoint.unarrived.clear()
    complete = world.last_barriers().enter()
    assert type(complete) is InputComplete
    assert complete.checkpoint is None
    assert type(complete.enter()) is WaitingForFirstBarrier
    assert world.log[-2:] == [("persist", 0, A), ("finish", 7)]


# -- after the trigger --------------------------------------------------------------------------------------


def test_what_arrives_after_the_trigger_is_captured_until_the_barrier_of_its_channel(world: World) -> None:
    state = world.last_barriers()
    state.element_arrived(0, A)
    assert state.barrier_arrived(0) is state
    state.element_arrived(0, B)
    state.element_arrived(1, B)
    assert world.log == [("persist", 0, A), ("persist", 1, B)]


def test_last_barrier_that_arrives_completes_the_input(world: World) -> None:
    state = world.last_barriers()
    assert state.barrier_arrived(0) is state
    assert type(state.barrier_arrived(1)) is InputComplete


def test_barrier_that_is_consumed_has_arrived(world: World) -> None:
    state = world.last_barriers()
    assert state.barrier_consumed(0) is state
    assert type(state.barrier_consumed(1)) is InputComplete
    assert world.log == []


def test_after_the_trigger_neither_a_timeout_nor_the_task_nor_a_consumed_end_changes_anything(
    world: World,
) -> None:
    state = world.last_barriers()
    assert state.turn_unaligned() is state
    assert state.trigger_if_due() is state
    assert state.end_consumed(0) is state
    assert world.log == []
