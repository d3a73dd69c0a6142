"""Buffers that are as large as their receiver is fast; all time is scripted."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sending_channel import Channel

from penstock.runtime.network.result_subpartition import ResultSubpartition
from penstock.runtime.network.send_queue import BufferBudget, BufferDebloater
from penstock.runtime.record.element_codec import BatchCodec, rows_in
from penstock.runtime.record.elements import Batch, Buffer, CheckpointBarrier, Watermark


class Weightless:
    """Encodes nothing but the number of rows."""

    def encode(self, batch: Batch) -> Buffer:
        return Buffer(b"", len(batch))


class Line:
    """A sender that always has records, and a receiver of so many records a second.

    The sender takes answers every `tick` seconds only, as one does that is busy.
    """

    def __init__(self, rate: float, *, max_rows: int, credits: int, target: float, tick: float) -> None:
        self.rate = rate
        self._now = self._free_at = 0.0
        self._tick = tick
        self._sent: deque[tuple[int, int]] = deque()
        debloater = BufferDebloater(max_rows, credits, target) if target else None
        budget = BufferBudget(max_rows, 1 << 30, debloater)
        self.sending = ResultSubpartition(Weightless(), self._send, credits, budget)

    def _send(self, first: int, elements: list[bytes]) -> None:
        self._sent.append((first, sum(map(rows_in, elements))))

    @property
    def waiting_seconds(self) -> float:
        """Time that the receiver needs for frames that it has not begun with."""
        return sum(rows for _, rows in self._sent) / self.rate

    def run_for(self, seconds: float) -> None:
        until = self._now + seconds
        while self._now < until:
            while self.sending.is_available:
                self.sending.add_rows([0] * self.sending.buffer_rows, None)
            sent_at, answered = self._now, []
            self._now = max(self._now + self._tick, self._free_at)
            while self._sent and self._free_at <= self._now:
                first, rows = self._sent.popleft()
                self._free_at = max(self._free_at, sent_at) + rows / self.rate
                answered.append(first)
            for first in answered:
                self.sending.consumed(first, self._now)


@settings(max_examples=40)
@given(
    rate=st.floats(1, 1e5),
    credits=st.integers(1, 10),
    target=st.sampled_from([0.2, 1.0]),
    tick=st.sampled_from([0.001, 0.01]),
)
def test_what_waits_before_a_receiver_is_work_for_the_target_whatever_its_speed(
    rate: float, credits: int, target: float, tick: float
) -> None:
    line = Line(rate, max_rows=4096, credits=credits, target=target, tick=tick)
    line.run_for(10 * target + 6 * credits * 1024 / rate)
    # A single row may be more work than that, and answers are taken a tick late.
    assert line.waiting_seconds <= 1.3 * target + credits / rate


@pytest.mark.parametrize(("target", "longest"), [(0.0, 8 * 4.096), (1.0, 1.3)])
def test_a_barrier_waits_less_before_a_slow_receiver(target: float, longest: float) -> None:
    line = Line(1000.0, max_rows=4096, credits=8, target=target, tick=0.01)
    line.run_for(200.0)
    assert 0.5 * longest <= line.waiting_seconds <= longest + 0.1


def test_a_receiver_that_becomes_fast_gets_large_buffers_again() -> None:
    line = Line(500.0, max_rows=16_384, credits=8, target=1.0, tick=0.01)
    line.run_for(60.0)
    assert line.sending.buffer_rows < 128
    line.rate = 1e6
    line.run_for(3.0)
    assert line.sending.buffer_rows == 16_384


def test_the_first_buffers_are_small() -> None:
    assert BufferDebloater(max_rows=16_384, credits=8, target=1.0).rows == 1024
    assert BufferDebloater(max_rows=20, credits=8, target=1.0).rows == 20


def test_one_pause_of_the_receiver_costs_one_step() -> None:
    debloater = BufferDebloater(max_rows=8192, credits=1, target=1.0)
    now = 0.0
    for _ in range(200):
        now += 0.01
        debloater.consumed(1000, now, more=True)
    assert debloater.rows == 8192
    debloater.consumed(1, now + 60, more=True)
    assert debloater.rows == 4096


def test_time_in_which_nothing_was_outstanding_does_not_count() -> None:
    debloater = BufferDebloater(max_rows=1024, credits=1, target=1.0)
    debloater.consumed(10, 0.0, more=False)
    debloater.consumed(125, 1000.0, more=True)
    debloater.consumed(10, 1000.125, more=True)
    assert debloater.rows == 1000


def test_full_buffers_that_leave_nothing_outstanding_grow() -> None:
    debloater = BufferDebloater(max_rows=16_384, credits=8, target=1.0)
    debloater.consumed(1023, 0.0, more=False)
    assert debloater.rows == 1024  # it had room
    sizes = []
    for second in range(1, 6):
        debloater.consumed(debloater.rows, float(second), more=False)
        sizes.append(debloater.rows)
    assert sizes == [2048, 4096, 8192, 16_384, 16_384]


@given(
    answers=st.lists(st.tuples(st.integers(0, 1 << 20), st.floats(0, 1e4), st.booleans()), max_size=60),
    max_rows=st.integers(1, 20_000),
)
def test_a_buffer_always_has_a_row_and_never_too_many(
    answers: list[tuple[int, float, bool]], max_rows: int
) -> None:
    debloater = BufferDebloater(max_rows, credits=4, target=1.0)
    now = 0.0
    for rows, seconds, more in answers:
        now += seconds
        debloater.consumed(rows, now, more=more)
        assert 1 <= debloater.rows <= max_rows


def test_rows_of_restored_buffers_count_and_events_have_none() -> None:
    before = Channel(credits=0, rows=2)
    before.add(1, 2, 3)
    captured = before.sending.overtake(CheckpointBarrier(1, 0.0))
    told: list[int] = []

    class Told(BufferBudget):
        def consumed(self, rows: int, now: float, *, more: bool) -> None:
            told.append(rows)

    sending = ResultSubpartition(BatchCodec(), lambda *_: None, 1, Told())
    sending.restore(captured)
    sending.add_event(Watermark(1))
    for first in range(3):
        sending.consumed(first, 0.0)
    assert told == [2, 1, 0]
