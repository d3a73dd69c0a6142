"""Event time of an operator with two inputs, against valves of their own."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.record.elements import END_OF_TIME, StreamStatus, Watermark
from penstock.runtime.time.input_watermarks import InputWatermarks
from penstock.runtime.time.watermarks import WatermarkValve

INPUTS = (0, 1, 1, 0, 1)

CHANGES = st.lists(
    st.tuples(
        st.integers(0, len(INPUTS) - 1),
        st.one_of(
            st.integers(0, 20).map(Watermark), st.just(Watermark(END_OF_TIME)), st.sampled_from(StreamStatus)
        ),
    ),
    max_size=30,
)


@given(CHANGES)
def test_whole_and_both_inputs_have_the_time_that_valves_of_their_channels_have(changes: list[Any]) -> None:
    time, whole = InputWatermarks(INPUTS), WatermarkValve(len(INPUTS))
    sides = [[channel for channel, number in enumerate(INPUTS) if number == side] for side in (0, 1)]
    valves = [WatermarkValve(len(channels)) for channels in sides]
    for channel, change in changes:
        side = INPUTS[channel]
        if isinstance(change, Watermark):
            assert time.watermark(channel, change) == whole.watermark(channel, change)
            valves[side].watermark(sides[side].index(channel), change)
        else:
            assert time.status(channel, change) == whole.status(channel, change)
            valves[side].status(sides[side].index(channel), change)
        for number, valve in enumerate(valves):
            times = [at for at in (valve.reached, whole.reached) if at is not None]
            assert time.of_input(number) == max(times, default=None)


def test_operator_with_one_input_has_its_time() -> None:
    time = InputWatermarks((0, 0))
    time.watermark(0, Watermark(5))
    assert time.of_input(0) is None
    time.watermark(1, Watermark(3))
    assert time.of_input(0) == 3
