"""Any permutation, repetition and overlap of frames comes out of a channel as the sequence, once."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import StreamElement, Watermark
from penstock.runtime.testing.manual_time import ManualClock

Frame = tuple[int, int]  # first number, number behind the last one


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, list[Frame]]:
    """A length, and frames in the order of arrival that together hold every number at least once."""
    length = draw(st.integers(0, 25))
    cuts = sorted(draw(st.sets(st.integers(0, length), max_size=8)) | {0, length})
    frames = list(pairwise(cuts))
    ends = st.lists(st.integers(0, length), min_size=2, max_size=2).map(sorted)
    again = [(first, end) for first, end in draw(st.lists(ends, max_size=6))]
    return length, draw(st.permutations([*frames, *again]))


def encoded(frame: Frame) -> list[bytes]:
    return [encode_element(Watermark(number)) for number in range(*frame)]


@given(arrivals(), st.lists(st.integers(0, 4), min_size=1, max_size=10))
def test_whatever_the_order_of_frames_each_element_is_consumed_once_in_order(
    arrived: tuple[int, list[Frame]], polls: list[int]
) -> None:
    length, frames = arrived
    clock = ManualClock()
    channel = InputChannel(0, clock)
    consumed: list[tuple[int, StreamElement]] = []
    seen: set[int] = set()
    for step, frame in enumerate(frames):
        channel.receive(frame[0], encoded(frame))
        seen |= set(range(*frame))
        expected = next(number for number in range(length + 1) if number not in seen)
        assert channel.consumed + channel.queued == expected
        assert (channel.gap_since is not None) == any(number > expected for number in seen)
        for _ in range(polls[step % len(polls)]):
            if (polled := channel.poll()) is not None:
                consumed.append(polled)
        assert channel.consumed == len(consumed) <= expected
    while (polled := channel.poll()) is not None:
        consumed.append(polled)
    assert consumed == [(number, Watermark(number)) for number in range(length)]
    assert (channel.consumed, channel.queued) == (length, 0)
    assert channel.queued == channel.early == 0


@given(st.lists(arrivals(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_channels_of_a_gate_do_not_mix_and_none_is_forgotten(
    channels: list[tuple[int, list[Frame]]], random: Random
) -> None:
    clock = ManualClock()
    gate = InputGate(InputChannel(index, clock) for index in range(len(channels)))
    waiting = {index: list(frames) for index, (_, frames) in enumerate(channels)}
    got: dict[int, list[int]] = {index: [] for index in waiting}
    blocked: set[int] = set()

    def poll(times: int) -> None:
        for _ in range(times):
            if (polled := gate.poll()) is None:
                return
            assert polled[0] not in blocked
            assert isinstance(polled[1], Watermark)
            got[polled[0]].append(polled[1].timestamp)

    while any(waiting.values()):
        index = random.choice([index for index, frames in waiting.items() if frames])
        frame = waiting[index].pop(0)
        gate.receive(index, frame[0], encoded(frame))
        victim = random.randrange(len(channels))
        if random.random() < 0.3:
            gate.block(victim)
            blocked.add(victim)
        elif random.random() < 0.5:
            gate.unblock(victim)
            blocked.discard(victim)
        poll(random.randrange(4))
    for index in list(blocked):
        gate.unblock(index)
    blocked.clear()
    poll(10_000)
    assert got == {index: list(range(length)) for index, (length, _) in enumerate(channels)}
    assert gate.check_gaps(clock.monotonic() + 1e6) is None
