"""Steps that repeat together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pattern_setup import OneKey, begin, found, letter, then

from penstock import ConfigurationError
from penstock.patterns import AfterMatchSkipStrategy, Pattern

AB = then(begin("a"), "followed_by", "b")


def group(steps: Pattern[str] = AB) -> Pattern[str]:
    """`x`, and a group behind it."""
    return begin("x").followed_by(steps)


def test_a_group_that_runs_once_is_its_steps() -> None:
    assert found(group(), "x a1 b1 a2 b2") == found(
        then(then(begin("x"), "followed_by", "a"), "followed_by", "b"), "x a1 b1 a2 b2"
    )


def test_the_steps_of_a_group_repeat_together() -> None:
    assert found(group().times(2), "x a1 b1 b2 a2 b3") == ["x a1 a2 b1 b3"]


def test_a_match_lists_the_records_of_all_runs_by_step() -> None:
    one = OneKey(Pattern.begin(AB).times(2), dict)
    assert one.push("a1 b1 a2 b2").matches == [{"a": ["a1", "a2"], "b": ["b1", "b2"]}]


def test_each_number_of_runs_is_a_match() -> None:
    pattern = then(group().one_or_more(), "followed_by", "c")
    assert found(pattern, "x a1 b1 a2 b2 c") == ["x a1 a2 b1 b2 c", "x a1 b1 c"]
    assert found(then(group().times(2, 3), "followed_by", "c"), "x a1 b1 a2 b2 c") == ["x a1 a2 b1 b2 c"]


def test_a_group_may_be_missing() -> None:
    pattern = then(group().optional(), "followed_by", "c")
    assert found(pattern, "x a1 b1 c") == ["x a1 b1 c", "x c"]
    assert found(pattern, "x a1 c") == ["x c"]


def test_the_call_that_adds_a_group_says_what_may_lie_before_it() -> None:
    assert found(begin("x").next(AB), "x y a1 b1") == []
    assert found(begin("x").followed_by(AB), "x y a1 b1 a2") == ["x a1 b1"]
    assert found(begin("x").followed_by_any(AB), "x a1 a2 b1") == ["x a1 b1", "x a2 b1"]


@pytest.mark.parametrize(
    ("records", "relaxed", "consecutive", "combinations"),
    [
        ("x a1 b1 a2 b2", ["a1 a2 b1 b2"], ["a1 a2 b1 b2"], ["a1 a2 b1 b2"]),
        ("x a1 b1 y a2 b2", ["a1 a2 b1 b2"], [], ["a1 a2 b1 b2"]),
        ("x a1 b1 a2 a3 b2", ["a1 a2 b1 b2"], ["a1 a2 b1 b2"], ["a1 a2 b1 b2", "a1 a3 b1 b2"]),
    ],
)
def test_runs_have_a_contiguity_of_their_own(
    records: str, relaxed: list[str], consecutive: list[str], combinations: list[str]
) -> None:
    twice = group().times(2)
    for pattern, expected in (
        (twice, relaxed),
        (twice.consecutive(), consecutive),
        (twice.allow_combinations(), combinations),
    ):
        assert found(pattern, records) == [f"x {match}" for match in expected]


def test_a_step_of_a_group_counts_its_records_in_each_run_anew() -> None:
    pairs = Pattern.begin(then(begin("a").times(2), "followed_by", "b")).times(2)
    assert found(pairs, "a1 a2 b1 a3 b2 a4 b3") == ["a1 a2 a3 a4 b1 b3"]


def test_groups_nest() -> None:
    pattern = Pattern.begin(begin("x").followed_by(AB).times(2)).times(2)
    assert found(pattern, "x1 a1 b1 a2 b2 x2 a3 b3 a4") == []
    assert found(pattern, "x1 a1 b1 a2 b2 x2 a3 b3 a4 b4") == ["x1 x2 a1 a2 a3 a4 b1 b2 b3 b4"]


def test_one_match_for_each_way_to_divide_records_into_runs() -> None:
    pattern = then(Pattern.begin(begin("a").one_or_more()).times(2), "followed_by", "c")
    assert found(pattern, "a1 a2 a3 c") == ["a1 a2 a3 c", "a1 a2 a3 c", "a1 a2 c", "a2 a3 c"]


def test_a_greedy_step_leaves_no_record_to_the_next_run() -> None:
    pattern = then(Pattern.begin(begin("a").one_or_more().greedy()).times(2), "followed_by", "c")
    assert found(pattern, "a1 a2 a3 c") == []


def test_a_greedy_step_leaves_to_the_steps_after_its_group_what_only_another_run_can_take() -> None:
    pairs = Pattern.begin(begin("a").times(2).greedy()).times(1, 2)
    assert found(pairs.next("c", where=letter("a")), "a1 a2 a3") == ["a1 a2 a3"]
    most = Pattern.begin(begin("a").times(1, 2).greedy()).times(1, 2)
    assert "a1 a2" not in found(most.next("c", where=letter("a")), "a1 a2 a3")


def test_the_next_step_keeps_its_contiguity_if_the_first_step_of_a_group_is_missing() -> None:
    pairs = Pattern.begin(then(begin("a").optional(), "next", "b")).times(2)
    assert found(pairs, "b1 b2") == ["b1 b2"]
    assert found(pairs, "b1 c b2") == []
    assert found(pairs, "b1 c a b2") == ["a b1 b2"]


def test_a_negative_step_between_two_steps_of_a_group_holds_in_each_run() -> None:
    pattern = Pattern.begin(then(then(begin("a"), "not_followed_by", "n"), "followed_by", "b")).times(2)
    assert found(pattern, "a1 b1 n1 a2 b2") == ["a1 a2 b1 b2"]
    assert found(pattern, "a1 b1 a2 n1 b2") == []


def test_conditions_see_the_records_of_earlier_runs() -> None:
    def rises(record: str, match: dict[str, list[str]]) -> bool:
        return record.startswith("b") and record > max(match["b"], default="b0")

    pattern = Pattern.begin(begin("a").followed_by("b", where=rises)).times(2)
    assert found(pattern, "a1 b5 a2 b4 b6") == ["a1 a2 b5 b6"]


def test_the_smallest_limit_of_a_group_and_the_pattern_holds() -> None:
    assert begin("x").within(3).followed_by(AB.within(2)).limit == 2_000_000
    assert begin("x").within(1).followed_by(AB.within(2)).limit == 1_000_000
    assert found(begin("x").followed_by(AB.within(2)), "x a1 b1") == []


def test_a_match_skips_to_a_step_of_a_group() -> None:
    skipping = Pattern.begin(AB, skip=AfterMatchSkipStrategy.skip_to_last("a")).times(2)
    assert found(skipping, "a1 b1 a2 b2 a3 b3") == ["a1 a2 b1 b2", "a2 a3 b2 b3"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pattern.begin(AB, where=letter("a")), "a group takes no condition"),
        (lambda: Pattern.begin(AB).next("a"), "the pattern already has a step 'a'"),
        (lambda: begin("b").next(AB), "the pattern already has a step 'b'"),
        (lambda: begin("x").next(begin("y", AfterMatchSkipStrategy.skip_to_next())), "skip strategy"),
        (lambda: begin("x").next(AB.not_next("n")), "a group can't end with the negative step 'n'"),
        (lambda: begin("x").next(begin("a").optional()), "make the group optional instead"),
        (lambda: group().not_next("n"), r"can't follow the group \(a followed_by b\)"),
        (lambda: group().times(2).greedy(), "is a group; call greedy for a step of it"),
        (lambda: group().one_or_more().until(letter("c")), "is a group; call until for a step of it"),
        (lambda: group().within(1, since="previous"), "is a group; call within for a step of it"),
        (lambda: begin("x").not_next(AB), "Pattern.not_next: "),
    ],
)
def test_groups_that_can_not_be_meant_are_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()


def test_a_pattern_says_its_groups() -> None:
    assert str(group().times(2, 3).next("c")) == "x followed_by (a followed_by b){2,3} next c"
