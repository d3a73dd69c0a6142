"""Pauses before a query is started again, on a clock of their own."""

from __future__ import annotations

from penstock.bridge.from_structured_streaming import LONGEST, QueryRestarts, rest


class Clock:
    """Its time passes during a wait; at some time the awaited event happens."""

    def __init__(self, happens_at: float = 1_000.0) -> None:
        self.now = 0.0
        self.happens_at = happens_at

    def wait(self, timeout: float) -> bool:
        self.now = min(self.now + timeout, max(self.now, self.happens_at))
        return self.now >= self.happens_at

    def __call__(self) -> float:
        return self.now


def test_pauses_grow_to_a_longest_one_and_begin_anew_after_progress() -> None:
    restarts = QueryRestarts(20)
    assert [restarts.pause(progress=False) for _ in range(7)] == [1, 2, 4, 8, 16, LONGEST, LONGEST]
    assert restarts.pause(progress=True) == 1


def test_without_progress_restarts_are_used_up_and_with_it_they_come_back() -> None:
    restarts = QueryRestarts(1)
    used_up = []
    for progress in (False, True, False, False):
        restarts.pause(progress=progress)
        used_up.append(restarts.are_used_up)
    assert used_up == [False, False, False, True]


def test_a_pause_takes_its_time() -> None:
    clock = Clock()
    assert rest(4.5, lambda: True, clock.wait, clock)
    assert clock.now == 4.5


def test_a_pause_ends_with_what_happens_meanwhile() -> None:
    clock = Clock(happens_at=2.5)
    assert not rest(30.0, lambda: True, clock.wait, clock)
    assert clock.now == 2.5


def test_a_pause_ends_when_nobody_wants_the_query_any_more() -> None:
    clock = Clock()
    assert not rest(30.0, lambda: clock.now < 3.0, clock.wait, clock)
    assert clock.now == 3.0
