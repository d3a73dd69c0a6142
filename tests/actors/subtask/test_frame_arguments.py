"""Frames that are cut into arguments of calls, and put together again."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.subtask.gateway import arguments_of, elements_of

#: Bytes of an argument that Ray still copies into the call.
IN_THE_CALL = 100 * 1024

sizes = st.lists(st.sampled_from([0, 1, 5, 95_999, 96_000, 96_001, 192_000, 250_000, 1_000_001]), max_size=6)


@given(sizes)
def test_a_frame_comes_back_as_it_was(sizes: list[int]) -> None:
    elements = [bytes([number]) * size for number, size in enumerate(sizes)]
    first, *pieces = arguments_of(elements)
    assert elements_of(first, pieces) == elements


@pytest.mark.parametrize("sizes", [[90_000], [96_001], [60_000, 60_000], [1] * 8, [999_000], [200_000] * 5])
def test_every_argument_of_a_frame_that_is_not_huge_fits_into_the_call(sizes: list[int]) -> None:
    arguments = arguments_of([b"x" * size for size in sizes])
    assert max(len(pickle.dumps(argument)) for argument in arguments) < IN_THE_CALL


def test_a_frame_that_just_fits_into_the_call_stays_whole() -> None:
    assert arguments_of([b"x" * 96_000]) == [[b"x" * 96_000]]


def test_large_elements_of_a_huge_frame_are_pickled_outside_of_the_call_and_arrive_as_views() -> None:
    (elements,) = arguments_of([b"x" * 4_000_000, b"y"])
    buffers = list[pickle.PickleBuffer]()
    data = pickle.dumps(elements, protocol=5, buffer_callback=buffers.append)
    assert len(data) < 1_000
    assert len(buffers) == 1
    received = elements_of(pickle.loads(data, buffers=buffers), ())
    assert received == [b"x" * 4_000_000, b"y"]
    assert isinstance(received[0], memoryview)
