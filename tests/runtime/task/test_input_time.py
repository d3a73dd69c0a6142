"""The clock that measures for how long a subtask could have taken input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.task.task_time import InputTime

#: Seconds of a step, whether outputs are available after it, and seconds until the next step.
STEPS = st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.integers(0, 40)), max_size=30)


@given(STEPS)
def test_it_counts_all_waiting_with_credits_none_without_and_little_of_each_step(
    steps: list[tuple[int, bool, int]],
) -> None:
    time, now, expected = InputTime(), 0.0, 0.0
    for step, available, pause in steps:
        assert abs(time.begin(now) - expected) < 1e-9
        time.end(now + step, available=available)
        now += step + pause
        expected += min(step, 0.1) + (pause if available else 0)
    assert abs(time.begin(now) - expected) < 1e-9


def test_it_tells_when_it_will_show_a_time_if_nothing_is_blocked() -> None:
    time = InputTime()
    time.begin(100.0)
    time.end(100.0, available=True)
    at = time.monotonic_at(5.0, 100.0)
    assert at == 105.0
    assert time.begin(at) == 5.0
    assert time.monotonic_at(2.0, at) == at, "what is due already is due now"
