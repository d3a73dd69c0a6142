"""The quiet time of a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.time.watermarks import IdlenessTimer

#: What happens: seconds pass, a record comes, a caller asks.
HAPPENS = st.lists(st.integers(1, 6) | st.sampled_from(["record", "ask"]), max_size=60)


@given(timeout=st.integers(1, 10), happens=HAPPENS)
def test_a_stream_is_idle_when_it_was_asked_twice_without_a_record_the_timeout_apart(
    timeout: int, happens: list[int | str]
) -> None:
    timer, now, asked = IdlenessTimer(timeout), 0, list[int]()
    for what in happens:
        if isinstance(what, int):
            now += what
        elif what == "record":
            asked = []
            timer.activity()
        else:
            asked.append(now)
            assert timer.ask(now) is (asked[-1] - asked[0] >= timeout)
        assert timer.is_idle is (bool(asked) and asked[-1] - asked[0] >= timeout)


@given(timeout=st.integers(1, 10), late=st.integers(0, 5))
def test_who_asks_when_it_is_due_sees_the_stream_become_idle_at_once(timeout: int, late: int) -> None:
    timer = IdlenessTimer(timeout)
    assert timer.due_at == 0.0, "the first question begins the time"
    timer.ask(7)
    assert timer.due_at == 7 + timeout
    assert timer.ask(7 + timeout + late)
    assert timer.due_at is None
