"""Steps that no record may match: right after a step, before the next one, or until the time is over."""

from __future__ import annotations

from pattern_setup import OneKey, begin, found, letter, then

from penstock.patterns import Pattern

SECOND = 1_000_000


def no_n(call: str = "not_followed_by") -> Pattern[str]:
    return then(begin("a"), call, "n")


def test_not_followed_by_forbids_a_record_anywhere_before_the_next_step() -> None:
    pattern = then(no_n(), "followed_by", "b")
    assert found(pattern, "a1 x b1") == ["a1 b1"]
    assert found(pattern, "a1 x n x b1 a2 b2") == ["a2 b2"]


def test_not_followed_by_forbids_nothing_after_the_next_step() -> None:
    pattern = then(then(no_n(), "followed_by", "b"), "followed_by", "c")
    assert found(pattern, "a1 b1 n c1") == ["a1 b1 c1"]


def test_not_followed_by_ends_all_further_matches_of_followed_by_any() -> None:
    assert found(then(no_n(), "followed_by_any", "b"), "a1 b1 n b2") == ["a1 b1"]


def test_not_next_forbids_only_the_record_right_after() -> None:
    pattern = then(no_n("not_next"), "followed_by", "b")
    assert found(pattern, "a1 n b1") == []
    assert found(pattern, "a1 x n b1") == ["a1 b1"]
    assert found(pattern, "a1 b1") == ["a1 b1"]


def test_not_next_forbids_the_record_even_for_the_next_step() -> None:
    pattern = begin("a").not_next("not", where=letter("b1")).followed_by("b", where=letter("b"))
    assert found(pattern, "a1 b1 b2") == []
    assert found(pattern, "a1 b2") == ["a1 b2"]


def test_not_next_at_the_end_waits_for_one_more_record() -> None:
    pattern = no_n("not_next")
    assert found(pattern, "a1") == []
    assert found(pattern, "a1 n") == []
    assert found(pattern, "a1 a2 x") == ["a1", "a2"]


def test_several_negative_steps_hold_together() -> None:
    pattern = then(then(then(no_n(), "not_followed_by", "m"), "not_next", "o"), "followed_by", "b")
    assert found(pattern, "a1 n b a2 m b a3 o b a4 x o b4") == ["a4 b4"]


def test_a_negative_step_behind_a_loop_holds_from_its_first_record() -> None:
    loop = then(begin("a").one_or_more(), "not_followed_by", "n")
    assert found(then(loop, "followed_by", "b"), "a1 n a2 b1") == ["a2 b1"]


def test_a_negative_step_in_front_of_an_optional_one_holds_until_a_step_takes_a_record() -> None:
    pattern = then(then(no_n(), "followed_by_any", "c").optional(), "followed_by_any", "d")
    assert found(pattern, "a c n d") == ["a c d"]
    assert found(pattern, "a n c d") == []


def test_not_next_in_front_of_an_optional_step_or_group_that_is_missing_still_forbids_records() -> None:
    loop = begin("a").times(1, 2).not_next("not", where=letter("a2"))
    for optional in (then(loop, "next", "b"), loop.next(begin("b"))):
        assert found(optional.optional(), "a1 a2") == ["a1", "a2"]
        assert found(optional.optional(), "a1 a3") == ["a1", "a1 a3", "a3"]


def test_a_record_that_completes_the_match_does_not_lie_before_its_end() -> None:
    pattern = begin("a").not_followed_by("not", where=letter("b")).followed_by("b", where=letter("b"))
    assert found(pattern, "a1 b1") == ["a1 b1"]


def test_conditions_of_negative_steps_see_the_match() -> None:
    def same(record: str, match: dict[str, list[str]]) -> bool:
        return record == f"n{match['a'][0][1:]}"

    pattern = then(begin("a").not_followed_by("n", where=same), "followed_by", "b")
    assert found(pattern, "a1 a2 n1 b") == ["a2 b"]


def test_not_followed_by_at_the_end_matches_when_its_time_is_over() -> None:
    pattern = no_n().within(5)
    key = OneKey(pattern).push("a1 x")
    key.advance_to(5 * SECOND - 1)
    assert (key.matches, key.timed_out) == ([], [])
    key.advance_to(5 * SECOND)
    assert (key.matches, key.timed_out) == (["a1"], [])
    assert key.of_key.records == {}


def test_not_followed_by_at_the_end_is_broken_by_a_record_in_time() -> None:
    pattern = no_n().within(2)
    assert OneKey(pattern).push("a1 n").advance_to(9 * SECOND).matches == []
    assert OneKey(pattern).push("a1 x n").advance_to(9 * SECOND).matches == ["a1"], "the limit is exclusive"


def test_a_partial_match_that_has_not_reached_the_end_times_out() -> None:
    pattern = then(then(begin("a"), "followed_by", "b"), "not_followed_by", "n").within(5)
    key = OneKey(pattern).push("a1 x a2 b2").advance_to(20 * SECOND)
    assert key.matches == ["a1 b2", "a2 b2"]
    key = OneKey(pattern).push("a1 x x").advance_to(20 * SECOND)
    assert (key.matches, key.timed_out) == ([], ["a1"])


def test_a_loop_in_front_of_a_negative_end_matches_once_for_each_of_its_lengths() -> None:
    pattern = then(begin("a").one_or_more(), "not_followed_by", "n").within(5)
    key = OneKey(pattern).push("a1 x a2").advance_to(20 * SECOND)
    assert (sorted(key.matches), key.timed_out) == (["a1", "a1 a2", "a2"], [])


def test_a_negative_end_may_have_a_limit_since_the_previous_record() -> None:
    pattern = then(begin("a"), "followed_by", "b")
    pattern = then(pattern, "not_followed_by", "n").within(2, since="previous")
    key = OneKey(pattern).push("a1 x x x b1 x n")
    assert key.matches == ["a1 b1"]
    assert OneKey(pattern).push("a1 b1 n").advance_to(9 * SECOND).matches == []
