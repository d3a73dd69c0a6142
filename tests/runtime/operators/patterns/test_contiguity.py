"""Records between the records of a match: none, those that do not match, or any."""

from __future__ import annotations

from pattern_setup import begin, found, then

from penstock.patterns import Pattern


def in_loop() -> Pattern[str]:
    """`a`, then any sequence of `b`, then `c`."""
    return then(begin("a"), "followed_by_any", "b").one_or_more()


def c_loop() -> Pattern[str]:
    return then(begin("c"), "followed_by", "a").one_or_more()


def test_next_takes_only_the_record_right_after() -> None:
    assert found(then(begin("a"), "next", "b"), "a1 c b1 b2") == []
    assert found(then(begin("a"), "next", "b"), "a1 b1 b2 a2 b3") == ["a1 b1", "a2 b3"]


def test_followed_by_takes_the_first_record_that_matches() -> None:
    assert found(then(begin("a"), "followed_by", "b"), "a1 c b1 b2") == ["a1 b1"]


def test_followed_by_any_takes_each_record_that_matches() -> None:
    assert found(then(begin("a"), "followed_by_any", "b"), "a1 c b1 b2") == ["a1 b1", "a1 b2"]


def test_each_beginning_has_its_own_matches() -> None:
    assert found(then(begin("a"), "followed_by", "b"), "a1 a2 b1") == ["a1 b1", "a2 b1"]


def test_a_pattern_of_one_step_matches_each_record() -> None:
    assert found(begin("a"), "a1 b a2") == ["a1", "a2"]


def test_a_record_may_belong_to_several_steps_but_once_to_a_match() -> None:
    same: Pattern[str] = Pattern.begin("first")
    assert found(same.next("second"), "x y z") == ["x y", "y z"]


def test_a_loop_is_relaxed_by_default() -> None:
    matches = found(then(in_loop(), "followed_by", "c"), "a b1 d1 b2 d2 b3 c")
    assert matches == ["a b1 b2 b3 c", "a b1 b2 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c"]


def test_a_consecutive_loop_breaks_at_any_other_record() -> None:
    pattern = then(in_loop().consecutive(), "next", "c")
    assert found(pattern, "a b1 d1 b2 d2 b3 c") == ["a b3 c"]


def test_a_loop_with_combinations_leaves_records_out() -> None:
    matches = found(then(in_loop().allow_combinations(), "followed_by", "c"), "a b1 d1 b2 d2 b3 c")
    relaxed = {"a b1 b2 b3 c", "a b1 b2 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c"}
    assert set(matches) == relaxed | {"a b1 b3 c"}
    assert len(matches) == 7


def test_a_loop_behind_followed_by_begins_with_its_first_record() -> None:
    matches = found(then(c_loop(), "followed_by", "b"), "c d a1 a2 a3 d a4 b")
    assert matches == ["c a1 a2 a3 a4 b", "c a1 a2 a3 b", "c a1 a2 b", "c a1 b"]


def test_a_consecutive_loop_behind_followed_by_ends_at_the_first_gap() -> None:
    matches = found(then(c_loop().consecutive(), "followed_by", "b"), "c d a1 a2 a3 d a4 b")
    assert matches == ["c a1 a2 a3 b", "c a1 a2 b", "c a1 b"]


def test_combinations_of_a_loop_behind_followed_by_begin_with_its_first_record() -> None:
    """Flink's page also lists matches that begin with `a2`; its code does not emit them."""
    matches = found(then(c_loop().allow_combinations(), "followed_by", "b"), "c d a1 a2 a3 d a4 b")
    of_first = ["", " a2", " a3", " a4", " a2 a3", " a2 a4", " a3 a4", " a2 a3 a4"]
    assert matches == sorted(f"c a1{others} b" for others in of_first)


def test_strict_steps_in_a_row_take_a_run_of_records() -> None:
    pattern = then(then(begin("a"), "next", "b"), "next", "c")
    assert found(pattern, "a1 b1 c1 a2 b2 x c2") == ["a1 b1 c1"]


def test_contiguity_is_between_neighbours_only() -> None:
    pattern = then(then(begin("a"), "followed_by", "b"), "next", "c")
    assert found(pattern, "a1 x b1 c1") == ["a1 b1 c1"]
    assert found(pattern, "a1 x b1 x c1") == []
