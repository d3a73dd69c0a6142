"""Steps that take several records, or none."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from pattern_setup import OneKey, begin, found, letter, then

from penstock.patterns import Pattern

END = "followed_by", "d"


def middle(contiguity: str = "followed_by") -> Pattern[str]:
    return then(begin("c"), contiguity, "a")


def price_over(limit: int) -> Pattern[str]:
    """`c`, then `a` greedily until a number is over a limit."""
    return middle().one_or_more().greedy().until(lambda record: int(record[1:] or 0) > limit)


def test_times_takes_exactly_so_many_records() -> None:
    assert found(begin("a").times(3), "a1 a2 x a3 a4") == ["a1 a2 a3", "a2 a3 a4"]


def test_times_with_a_maximum_takes_each_number_of_records() -> None:
    assert found(then(middle().times(2, 3), *END), "c a1 a2 a3 a4 d") == ["c a1 a2 a3 d", "c a1 a2 d"]


def test_times_from_zero_makes_a_step_optional() -> None:
    assert found(then(middle().times(0, 1), *END), "c a1 d") == ["c a1 d", "c d"]


def test_times_or_more_has_no_maximum() -> None:
    matches = found(then(middle().times_or_more(2), *END), "c a1 a2 a3 d")
    assert matches == ["c a1 a2 a3 d", "c a1 a2 d"]


def test_one_or_more_needs_one() -> None:
    assert found(then(middle().one_or_more(), *END), "c d") == []


def test_an_optional_step_may_be_missing() -> None:
    assert found(then(middle().optional(), *END), "c x d") == ["c d"]
    assert found(then(middle().optional(), *END), "c a1 d") == ["c a1 d", "c d"]


def test_an_optional_loop_may_be_missing() -> None:
    matches = found(then(middle().one_or_more().optional(), *END), "c a1 a2 d")
    assert matches == ["c a1 a2 d", "c a1 d", "c d"]


def test_an_optional_number_of_records_is_that_number_or_none() -> None:
    assert found(then(middle().times(2).optional(), *END), "c a1 a2 d") == ["c a1 a2 d", "c d"]


def test_an_optional_first_step_lets_the_pattern_begin_with_the_second() -> None:
    pattern = then(begin("a").optional(), "followed_by", "b")
    assert found(pattern, "a1 b1 b2") == ["a1 b1", "b1", "b2"]


def test_an_optional_last_step_matches_without_and_with_it() -> None:
    pattern = then(begin("a"), "followed_by", "b").optional()
    assert found(pattern, "a1 x b1 b2") == ["a1", "a1 b1"]


def test_several_optional_steps_may_be_missing_in_any_combination() -> None:
    pattern = then(then(then(begin("a"), "next", "b").optional(), "next", "c").optional(), "next", "d")
    assert found(pattern, "a1 b1 c1 d1") == ["a1 b1 c1 d1"]
    assert found(pattern, "a1 c1 d1 a2 d2 a3 b3 d3") == ["a1 c1 d1", "a2 d2", "a3 b3 d3"]


def test_a_strict_step_behind_a_relaxed_optional_one_follows_what_was_taken_last() -> None:
    pattern = then(then(begin("a"), "followed_by", "b").optional(), "next", "c")
    assert found(pattern, "a1 c1") == ["a1 c1"]
    assert found(pattern, "a1 x c1") == []
    assert found(pattern, "a1 x b1 c1") == ["a1 b1 c1"]


def test_a_loop_at_the_end_matches_with_each_record() -> None:
    pattern = then(begin("a"), "next", "b").one_or_more()
    assert found(pattern, "a b1 b2 b3") == ["a b1", "a b1 b2", "a b1 b2 b3"]


@pytest.mark.parametrize("records", ["c a1 a2 a3 d", "c x a1 x a2 x a3 d", "c a1 a2 x a3 x d"])
def test_a_greedy_loop_takes_as_many_as_it_can(records: str) -> None:
    for loop in (middle().one_or_more(), middle().one_or_more().optional()):
        assert found(then(loop.greedy(), *END), records) == ["c a1 a2 a3 d"]


def test_a_greedy_optional_loop_may_still_be_missing() -> None:
    assert found(then(middle().one_or_more().optional().greedy(), *END), "c x d") == ["c d"]


def test_a_greedy_loop_in_front_of_an_optional_step_still_takes_all() -> None:
    loop = middle().one_or_more().optional().greedy()
    pattern = then(then(loop, "followed_by", "e").optional(), *END)
    assert found(pattern, "c a1 a2 x d") == ["c a1 a2 d"]
    assert found(pattern, "c a1 a2 e d") == ["c a1 a2 d", "c a1 a2 e d"]


def test_a_greedy_number_of_records_takes_the_most() -> None:
    assert found(then(middle().times(2, 5).greedy(), *END), "c a1 a2 a3 a4 d") == ["c a1 a2 a3 a4 d"]
    assert found(then(middle().times(2, 3).greedy(), *END), "c a1 a2 a3 a4 d") == ["c a1 a2 a3 d"]


def test_a_greedy_loop_at_the_end_matches_with_each_record() -> None:
    loop = middle().one_or_more().optional()
    assert found(loop.greedy(), "c a1 a2 x a3") == ["c", "c a1", "c a1 a2", "c a1 a2 a3"]
    assert found(loop.consecutive().greedy(), "c a1 a2 x a3") == ["c", "c a1", "c a1 a2"]
    assert found(middle().times(2, 5).greedy(), "c a1 a2 a3") == ["c a1 a2", "c a1 a2 a3"]


def test_a_greedy_step_leaves_no_record_to_a_later_step_that_it_can_take_itself() -> None:
    digits: Pattern[str] = Pattern.begin("number", where=str.isdigit).one_or_more().greedy()
    pattern = digits.next("any")
    assert found(pattern, "1 2 x") == ["1 2 x", "2 x"]


def test_until_ends_a_loop_before_the_record_and_for_good() -> None:
    pattern = begin("a").one_or_more().until(letter("b"))
    assert found(pattern, "a1 c a2 b a3") == ["a1", "a1 a2", "a2", "a3"]


def test_the_record_that_ends_a_loop_may_be_the_next_step() -> None:
    def breaks(record: str) -> bool:
        return record == "a5"

    loop = middle().one_or_more().until(breaks)
    assert found(loop.followed_by("end", where=breaks), "c a1 a2 a5 a6") == ["c a1 a2 a5", "c a1 a5"]
    combined = middle().one_or_more().allow_combinations().until(breaks)
    assert found(combined.followed_by("end", where=breaks), "c a1 a2 a3 a5 a6") == [
        "c a1 a2 a3 a5",
        "c a1 a2 a5",
        "c a1 a3 a5",
        "c a1 a5",
    ]
    optional = middle().one_or_more().optional().consecutive().until(breaks)
    assert found(optional.followed_by("end", where=breaks), "c a1 a2 a5 a6") == [
        "c a1 a2 a5",
        "c a1 a5",
        "c a5",
    ]


def test_until_does_not_end_a_loop_that_has_not_begun() -> None:
    pattern = middle("followed_by_any").one_or_more().until(lambda record: record == "a5")
    assert found(pattern, "c a1 a2 a5 a6") == ["c a1", "c a1 a2", "c a2", "c a6"]


def test_a_greedy_loop_ends_with_until_and_lets_later_records_pass() -> None:
    assert found(then(price_over(3), *END), "c a1 a2 a3 a4 d") == ["c a1 a2 a3 d"]
    assert found(then(price_over(3), *END), "c a4 a1 a2 a3 d") == []
    assert found(then(price_over(3).optional(), *END), "c a4 a1 a2 a3 d") == ["c d"]


def test_conditions_see_the_records_that_the_match_has_so_far() -> None:
    def rises(record: str, match: dict[str, list[str]]) -> bool:
        return record.startswith("b") and record > max(match["b"], default="b0")

    pattern = begin("a").followed_by("b", where=rises).one_or_more()
    assert found(then(pattern, "followed_by", "c"), "a b2 b1 b3 c") == ["a b2 b3 c", "a b2 c"]


def test_a_condition_that_sees_the_match_gives_each_partial_match_its_own_answer() -> None:
    def same_number(record: str, match: dict[str, list[str]]) -> bool:
        return record == f"b{match['a'][0][1:]}"

    pattern = begin("a").followed_by("b", where=same_number)
    assert found(pattern, "a1 a2 b2 b1") == ["a1 b1", "a2 b2"]


def test_until_may_see_the_match_too() -> None:
    def enough(record: str, match: dict[str, list[str]]) -> bool:
        return sum(int(taken[1:]) for taken in match["b"]) >= 4

    pattern = then(begin("a"), "followed_by", "b").one_or_more().until(enough)
    assert found(then(pattern, "followed_by", "c"), "a b1 b3 b9 c") == ["a b1 b3 c", "a b1 c"]


class UncountedRecords(dict[int, Any]):
    """Refuses to list its records, which would cost more with each record of a loop."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all records of the partial match were read")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_a_record_of_a_long_loop_does_not_cost_more_than_one_of_a_short_loop() -> None:
    pattern = then(then(begin("a"), "followed_by", "b").one_or_more().greedy(), "followed_by", "c")
    one = OneKey(pattern)
    one.of_key.records = UncountedRecords()
    assert one.push("a1 b1 b2 x b3 c1").matches == ["a1 b1 b2 b3 c1"]


class CountedMatches(dict[int, Any]):
    """Counts the partial matches that are looked at."""

    looks = 0

    def __getitem__(self, match_id: int) -> Any:
        self.looks += 1
        return super().__getitem__(match_id)


def test_a_record_looks_at_one_partial_match_of_each_state_that_it_leaves_as_it_is() -> None:
    one = OneKey(then(then(begin("a"), "followed_by", "b"), "followed_by", "c"))
    one.push(" ".join(f"a{number}" for number in range(50)) + " b1 " + "a51 a52")
    one.of_key.partial = looked_at = CountedMatches(one.of_key.partial)
    one.push("x")
    assert looked_at.looks <= 4
