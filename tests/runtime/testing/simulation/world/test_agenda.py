"""The agenda: what may happen, when, and in which order."""

from __future__ import annotations

from penstock.runtime.testing.simulation.world.agenda import Agenda, Draws, Happening


def agenda(seed: int = 1, disorder: float = 0.0, **weights: int) -> Agenda:
    return Agenda(Draws(seed), {kind: weights.get(kind.name, 1) for kind in Happening}, disorder)


def order(filled: Agenda, now: float = 0.0) -> list[object]:
    taken = []
    while (entry := filled.take(now)) is not None:
        taken.append(entry.what[0])
    return taken


def fill(empty: Agenda, kind: Happening = Happening.FRAME, number: int = 10) -> Agenda:
    for what in range(number):
        empty.add(kind, lambda: None, what)
    return empty


def test_oldest_of_a_kind_goes_first_in_an_orderly_agenda() -> None:
    assert order(fill(agenda())) == list(range(10))


def test_any_goes_first_in_a_disorderly_one() -> None:
    taken = order(fill(agenda(disorder=1.0)))
    assert taken != list(range(10))
    assert set(taken) == set(range(10))


def test_same_draws_give_the_same_order() -> None:
    assert order(fill(agenda(7, 1.0))) == order(fill(agenda(7, 1.0))) != order(fill(agenda(8, 1.0)))


def test_nothing_happens_before_its_time() -> None:
    later = agenda()
    later.add(Happening.TIMER, lambda: None, "timer", at=2.0)
    assert later.take(1.0) is None
    assert later.next_time == 2.0
    assert order(later, now=2.0) == ["timer"]


def test_kind_of_small_weight_is_starved() -> None:
    both = agenda(FRAME=1, STEP=1000)
    fill(both, Happening.FRAME, 3)
    fill(both, Happening.STEP, 3)
    assert both.waiting() == {"step": 3, "frame": 3}
    assert order(both)[:3] == [0, 1, 2]
    assert both.waiting() == {}
