"""Counts of the events of each subtask that have come, and that it had sent when it took a checkpoint."""

from __future__ import annotations

import pickle

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtime.checkpoint.operator_coordinators.holder import EventCounts

NUMBERS = st.integers(min_value=1, max_value=9)


@example([(0, 1), (0, 2), (0, 1)], {0: 3})
@example([(0, 2), (0, 2)], {0: 2})
@given(st.lists(st.tuples(st.integers(0, 2), NUMBERS)), st.dictionaries(st.integers(0, 2), st.integers(0, 9)))
def test_what_is_missing_is_what_was_sent_and_has_not_come(came, sent):
    """Events come in any order, and some of them twice."""
    counts = EventCounts()
    for subtask, number in came:
        counts.came(subtask, number)
    for subtask, last in sent.items():
        counts.acknowledged(1, subtask, last)
    found = {s: len({n for subtask, n in came if subtask == s and n <= last}) for s, last in sent.items()}
    expected = [(s, found[s], last) for s, last in sorted(sent.items()) if found[s] < last]
    assert list(counts.missing(1)) == expected
    assert counts.missing(2) == (), "nobody has taken a part of it"


def test_an_ended_checkpoint_a_gone_subtask_and_an_attempt_are_forgotten():
    counts = EventCounts()
    counts.came(0, 1)
    for checkpoint_id in (1, 2, 3):
        counts.acknowledged(checkpoint_id, 0, 2)
    counts.ended(1)
    counts.ended(9)
    assert [counts.missing(i) for i in (1, 2)] == [(), ((0, 1, 2),)]
    counts.forget(0)
    counts.forget(7)
    assert counts.missing(2) == ((0, 0, 2),), "the next one counts from 1"
    counts.came(0, 1)
    counts.forget_all()
    assert counts.missing(2) == counts.missing(3) == ()
    counts.acknowledged(4, 0, 2)
    assert counts.missing(4) == ((0, 0, 2),)


def test_events_without_a_gap_take_no_memory_each():
    counts = EventCounts()
    counts.came(0, 1)
    of_one = len(pickle.dumps(counts))
    for number in (*range(3, 1001), 2):
        counts.came(0, number)
    assert len(pickle.dumps(counts)) < of_one + 10, "they are one number"
