"""Queues of an async operator against a model: order, watermarks, and what a snapshot would hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.operators.functions.async_queue import (
    AsyncQueue,
    AwaitedRecord,
    OrderedQueue,
    Passing,
    UnorderedQueue,
)
from penstock.runtime.record.elements import RowBatch, StreamStatus, Watermark


def entry(number: int) -> AwaitedRecord:
    return AwaitedRecord(number, f"key {number}", RowBatch([number]), b"")


def taken(queue: AsyncQueue) -> list[Any]:
    return [e.sequence if isinstance(e, AwaitedRecord) else e.element for e in queue.take()]


#: A record, a watermark, a status, an answer to one of the open records, or a look at what may leave.
MOVES = st.lists(
    st.one_of(
        st.just("record"),
        st.just("watermark"),
        st.just("status"),
        st.just("take"),
        st.floats(0, 1, exclude_max=True),
    ),
    max_size=60,
)


def run(queue: AsyncQueue, moves: list[Any]) -> tuple[list[Any], list[Any]]:
    """Everything that was put in and everything that came out, after all records were answered."""
    given: list[Any] = []
    out: list[Any] = []
    open_entries: list[AwaitedRecord] = []
    for move in moves:
        if move == "record":
            new = entry(len(given))
            given.append(new.sequence)
            open_entries.append(new)
            queue.add(new)
        elif move == "watermark":
            given.append(Watermark(len(given)))
            queue.add(Passing(len(given), given[-1]))
        elif move == "status":
            given.append(StreamStatus.IDLE)
            queue.add(Passing(len(given), given[-1]))
        elif move == "take":
            out += taken(queue)
        elif open_entries:
            answered = open_entries.pop(int(move * len(open_entries)))
            queue.answered(answered, answered.sequence)
        left = [n for n in given if isinstance(n, int) and n not in out]
        assert sorted(e.sequence for e in queue if isinstance(e, AwaitedRecord)) == left
        assert len(queue) == len(left)
    while open_entries:
        answered = open_entries.pop()
        queue.answered(answered, answered.sequence)
    out += taken(queue)
    assert queue.is_empty
    return given, out


def without_followed_watermarks(elements: list[Any]) -> list[Any]:
    """Of watermarks that follow each other only the last one needs to leave."""
    return [
        element
        for place, element in enumerate(elements)
        if not (isinstance(element, Watermark) and isinstance([*elements, None][place + 1], Watermark))
    ]


@given(MOVES)
def test_ordered_queue_gives_everything_out_in_the_order_in_which_it_came(moves: list[Any]) -> None:
    given_in, out = run(OrderedQueue(), moves)
    assert without_followed_watermarks(out) == without_followed_watermarks(given_in)


@given(MOVES)
def test_unordered_queue_gives_records_out_between_the_watermarks_where_they_came(moves: list[Any]) -> None:
    given_in, out = run(UnorderedQueue(), moves)

    def sections(elements: list[Any]) -> list[Any]:
        found: list[Any] = [set()]
        for element in without_followed_watermarks(elements):
            if isinstance(element, int):
                found[-1].add(element)
            else:
                found += [element, set()]
        return found

    assert sections(out) == sections(given_in)


def test_unordered_queue_does_not_wait_for_a_slow_record() -> None:
    queue = UnorderedQueue()
    slow, fast = entry(0), entry(1)
    queue.add(slow)
    queue.add(fast)
    queue.answered(fast, "fast")
    assert taken(queue) == [1]


@pytest.mark.parametrize("make", [OrderedQueue, UnorderedQueue])
def test_watermarks_behind_a_slow_record_do_not_pile_up(make: type[AsyncQueue]) -> None:
    queue = make()
    queue.add(entry(0))
    for timestamp in range(1000):
        queue.add(Passing(1, Watermark(timestamp)))
    assert len(list(queue)) == 2
