"""The gate that stores what comes from blocked channels: sizes, the limit, and when it is finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.checkpointed_input_gate import (
    MOST_STORED_AT_ONCE,
    StoredChannels,
    StoringInputGate,
    stored_size,
)
from penstock.runtime.io.scratch import open_spill_file
from penstock.runtime.network.buffer_storage import (
    ELEMENT_OVERHEAD,
    BufferStorage,
)
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, StoredBytes
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.world.disks import SpillDisk

A, B = Buffer(b"aaaa", 1), Buffer(b"bbbb", 1)
END = EndOfPartition()


class Fed:
    """A gate, of two channels by default, and a task that writes down its calls and elements."""

    def __init__(
        self, limit: int | None = None, storage: BufferStorage | None = None, channels: int = 2
    ) -> None:
        clock = ManualClock()
        self.log: list[Any] = []
        self.channels = StoredChannels()
        self.storage = storage or BufferStorage(SpillDisk(lambda: False), 1 << 30, limit)
        self.why: list[str] = []
        self.at_trigger: list[StoredBytes] = []
        gate = InputGate(InputChannel(index, clock) for index in range(channels))
        aligner = CheckpointBarrierAligner(channels, self.channels, clock)
        self.gate = StoringInputGate(gate, aligner, self.channels, self.storage)
        self.gate.set_listener(self)
        self.sent = [0] * channels

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        self.log.append(("trigger", barrier.checkpoint_id))
        self.at_trigger.append(self.gate.stored)

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        self.log.append(("abort", checkpoint_id, reason))
        self.why.append(detail)

    def feed(self, channel: int, *elements: StreamElement) -> list[Any]:
        self.gate.receive(channel, self.sent[channel], [encode_element(element) for element in elements])
        self.sent[channel] += len(elements)
        return self.run()

    def run(self) -> list[Any]:
        while (polled := self.gate.poll_next()) is not None or self.gate.has_more:
            if polled is not None:
                self.log.append(polled)
        log, self.log = self.log, []
        return log


def barrier(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0.0)


@pytest.fixture
def fed() -> Fed:
    return Fed()


def test_buffer_counts_for_its_payload_and_an_event_for_all_of_it() -> None:
    assert stored_size(A) == 4
    assert stored_size(barrier(1)) == len(encode_element(barrier(1)))


def test_stored_elements_are_handed_in_behind_the_trigger(fed: Fed) -> None:
    assert fed.feed(0, A, barrier(1), B) == [(0, A)]
    assert fed.gate.blocked_channels == (0,)
    assert fed.gate.stored.stored == 4
    assert fed.feed(1, barrier(1)) == [("trigger", 1), (0, B)]
    assert fed.gate.blocked_channels == ()
    assert fed.gate.stored.stored == 0


def test_nothing_is_rolled_over_before_a_channel_was_released(fed: Fed) -> None:
    assert not fed.channels.was_released
    fed.feed(0, barrier(1), A)
    fed.feed(1, B)
    assert fed.gate.stored.stored == 4


def test_what_the_next_alignment_stores_stays_stored_until_that_one_ends(fed: Fed) -> None:
    fed.feed(0, barrier(1), A)
    fed.feed(1, barrier(1))
    assert fed.feed(0, barrier(2), A) == []
    assert fed.feed(1, B) == [(1, B)]
    assert fed.gate.stored.stored == 4
    assert fed.gate.storage_statistics().elements == 2, "one in each alignment, and none stored again"
    assert fed.feed(1, barrier(2)) == [("trigger", 2), (0, A)]


def test_more_than_the_limit_gives_the_alignment_up_and_the_data_goes_on() -> None:
    fed = Fed(limit=4)
    assert fed.feed(0, barrier(1), A) == []
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED
    assert fed.feed(0, B) == [("abort", 1, reason), (0, A), (0, B)]
    assert fed.why == [
        "8 bytes were stored for this alignment and for interrupted earlier ones, more than "
        "max_alignment_bytes=4. Raise the limit, or use unaligned checkpoints"
    ]
    assert fed.feed(1, barrier(1)) == []


def test_stored_bytes_of_interrupted_alignments_count_for_the_limit_and_are_named() -> None:
    """The third alignment begins while the rest of the first one is being read again."""
    large = Buffer(b"x" * 100, 1)
    fed = Fed(limit=200, channels=3)
    fed.feed(0, barrier(1), barrier(2), barrier(3), large)
    fed.feed(1, barrier(1), CancelCheckpointMarker(2))
    fed.feed(2, barrier(1))
    [why] = [detail for detail in fed.why if "max_alignment_bytes" in detail]
    stored = int(why.split()[0].replace(",", ""))
    assert stored > 200, why


def test_element_that_can_not_be_spilled_gives_the_alignment_up_and_the_data_goes_on(tmp_path: Path) -> None:
    fed = Fed(storage=BufferStorage(lambda: open_spill_file(tmp_path / "gone")))
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED
    assert fed.feed(0, barrier(1), A, B) == [("abort", 1, reason), (0, A), (0, B)]
    assert "gone" in fed.why[0]
    assert fed.feed(1, barrier(1), A) == [(1, A)]
    assert fed.feed(1, barrier(2), B) == [("abort", 2, reason), (1, B)], "each checkpoint is tried"


def test_the_task_sees_at_the_trigger_what_was_stored_and_spilled(tmp_path: Path) -> None:
    one = ELEMENT_OVERHEAD + len(A.payload)
    fed = Fed(storage=BufferStorage(lambda: open_spill_file(tmp_path), memory_bytes=one))
    fed.feed(0, barrier(1), A, B, A)
    fed.feed(1, barrier(1))
    fed.feed(1, barrier(2))
    fed.feed(0, barrier(2))
    assert fed.at_trigger == [StoredBytes(12, 8), StoredBytes(0, 0)]


def test_gate_lets_the_task_do_something_else_after_a_number_of_stored_elements(fed: Fed) -> None:
    assert not fed.gate.has_more
    waiting = [A] * (2 * MOST_STORED_AT_ONCE)
    fed.gate.receive(0, 0, [encode_element(element) for element in (barrier(1), *waiting)])
    assert fed.gate.poll_next() is None
    assert fed.gate.has_more
    assert fed.gate.stored.stored == 4 * MOST_STORED_AT_ONCE
    assert fed.gate.consumed(0) == MOST_STORED_AT_ONCE + 1, "these credits can go back"
    fed.run()
    assert fed.gate.stored.stored == 8 * MOST_STORED_AT_ONCE
    assert not fed.gate.has_more


def test_gate_is_finished_when_every_end_was_handed_over_and_nothing_is_stored(fed: Fed) -> None:
    assert not fed.gate.is_finished
    fed.feed(0, barrier(1), A, END)
    assert fed.gate.is_finished is False, "one end is stored, the other has not come"
    fed.gate.receive(1, 0, [encode_element(barrier(1)), encode_element(END)])
    assert fed.gate.poll_next() == (0, A)
    assert fed.gate.is_finished is False, "the end of channel 0 is handed in next"
    assert fed.gate.poll_next() == (0, END)
    assert fed.gate.poll_next() == (1, END)
    assert fed.run() == [("trigger", 1)]
    assert fed.gate.is_finished is True


def test_gate_is_not_finished_while_the_end_of_a_blocked_channel_is_stored(fed: Fed) -> None:
    fed.feed(0, barrier(1), END)
    fed.feed(1, A)
    assert fed.gate.stored.stored > 0
    assert fed.gate.is_finished is False


def test_gate_with_stored_elements_is_not_finished_when_all_channels_have_ended(fed: Fed) -> None:
    fed.feed(0, barrier(2), A, END)
    fed.gate.receive(1, 0, [encode_element(barrier(1)), encode_element(barrier(2)), encode_element(END)])
    assert fed.gate.poll_next() == (0, A)
    assert fed.gate.is_finished is False


def test_closed_gate_holds_nothing(fed: Fed) -> None:
    fed.feed(0, barrier(1), A)
    assert fed.gate.storage_statistics().elements == 1
    fed.gate.close()
    assert fed.storage.pending_bytes == 0
