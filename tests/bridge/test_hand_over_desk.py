"""The desk of a hand-over: who may have rows, and what it is asked twice."""

from __future__ import annotations

from penstock.bridge.depot_failures import LOST
from penstock.bridge.hand_over_desk import HandOverDesk, Order


def test_an_order_is_complete_with_the_last_depot_of_its_job() -> None:
    desk = HandOverDesk()
    assert desk.announce("a", 1, 2, "stamp-1", 7) is None
    assert desk.next_order() is None
    assert not desk.has_all("a", 2)
    assert desk.announce("a", 0, 2, "stamp-0", 6) is None
    assert desk.next_order() == Order("a", (6, 7))
    assert desk.has_all("a", 2)


def test_the_same_depot_may_come_again_and_another_one_in_its_place_may_not() -> None:
    desk = HandOverDesk()
    for _ in range(2):
        assert desk.announce("a", 0, 1, "stamp") is None
    assert desk.next_order() == Order("a", (-1,))
    assert desk.next_order() is None, "it is one order"
    assert desk.announce("a", 0, 1, "another") == LOST


def test_a_stream_is_read_by_one_job_and_others_are_refused_at_once() -> None:
    desk = HandOverDesk(one_job=True)
    assert desk.announce("a", 0, 2, "a-0") is None
    assert desk.announce("b", 0, 1, "b-0") == (
        "this streaming DataFrame is read by job a; make another one for each job"
    )
    assert desk.announce("a", 1, 2, "a-1") is None
    assert desk.next_order() == Order("a", (-1, -1))
    assert desk.next_order() is None


def test_a_dataframe_is_read_by_any_number_of_jobs() -> None:
    desk = HandOverDesk()
    for job in ("a", "b"):
        assert desk.announce(job, 0, 1, f"{job}-0") is None
        assert desk.next_order() == Order(job, (-1,))
