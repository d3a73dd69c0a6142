"""Time for which a silent receiver is called again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.execution.deadlines import BETWEEN_CALLS, Pauses, RetryDeadline


def test_a_receiver_is_called_again_until_the_patience_is_over() -> None:
    absence, now, calls = RetryDeadline(Pauses(1.0)), 100.0, 0
    while (pause := absence.failed(now, now, patience=5.0)) is not None:
        now += pause
        calls += 1
    assert (now, calls) == (105.0, 5)


def test_without_patience_the_first_failure_is_final() -> None:
    assert RetryDeadline().failed(1.0, 1.0, patience=0.0) is None


def test_a_receiver_that_took_a_call_for_long_was_there_and_its_absence_begins_anew() -> None:
    absence = RetryDeadline(Pauses(1.0), present_after=5.0)
    assert absence.failed(0.0, 0.0, patience=10.0) == 1.0
    assert absence.failed(1.0, 20.0, patience=10.0) == 1.0, "the call lasted for 19 s"
    assert absence.failed(21.0, 29.9, patience=10.0) == 1.0
    assert absence.failed(35.0, 40.0, patience=10.0) is None


def test_the_first_pause_after_a_return_is_the_short_one() -> None:
    absence = RetryDeadline(present_after=5.0)
    pauses = [absence.failed(now, now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)]
    assert pauses[-1] == BETWEEN_CALLS.longest
    assert absence.failed(5.0, 50.0) == BETWEEN_CALLS.first


@given(st.floats(0.01, 10.0), st.floats(1.0, 5.0), st.floats(0.01, 60.0), st.integers(1, 40))
def test_pauses_never_shrink_and_never_exceed_the_longest(
    first: float, factor: float, longest: float, failures: int
) -> None:
    pauses = [Pauses(first, factor, longest).after(n) for n in range(1, failures + 1)]
    assert all(a <= b <= longest for a, b in pairwise(pauses))
    assert pauses[0] == min(first, longest)
