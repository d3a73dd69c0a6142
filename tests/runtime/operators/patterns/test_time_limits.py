"""Limits of time, and the state that they free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_setup import OneKey, begin, then

from penstock.patterns import Pattern

SECOND = 1_000_000


def a_b() -> Pattern[str]:
    return then(begin("a"), "followed_by", "b")


def test_a_match_ends_before_the_limit_and_not_at_it() -> None:
    assert OneKey(a_b().within(2)).push("a1 b1").matches == ["a1 b1"]
    assert OneKey(a_b().within(2)).push("a1 x b1").matches == []


def test_a_partial_match_times_out_exactly_at_the_limit() -> None:
    key = OneKey(a_b().within(2)).push("a1")
    assert key.advance_to(2 * SECOND - 1).timed_out == []
    assert key.advance_to(2 * SECOND).timed_out == ["a1"]


def test_time_alone_moves_it() -> None:
    """FLINK-5033: no record is needed to end a partial match, or to complete one."""
    key = OneKey(a_b().within(2)).push("a1").advance_to(60 * SECOND)
    assert key.timed_out == ["a1"]
    key = OneKey(then(begin("a"), "not_followed_by", "b").within(2)).push("a1").advance_to(60 * SECOND)
    assert key.matches == ["a1"]


def limit_at(place: int) -> Pattern[str]:
    """`a b c` within 3 seconds, said after one of its steps."""
    pattern = begin("a")
    for index, name in enumerate("abc"):
        if index:
            pattern = then(pattern, "followed_by", name)
        if index == place:
            pattern = pattern.within(3)
    return pattern


@pytest.mark.parametrize("place", range(3))
def test_within_anywhere(place: int) -> None:
    """FLINK-16011: the limit is one of the whole pattern, wherever it is written."""
    assert OneKey(limit_at(place)).push("a1 b1 c1").matches == ["a1 b1 c1"]
    key = OneKey(limit_at(place)).push("a1 b1 x c1")
    assert (key.matches, key.timed_out) == ([], ["a1 b1"])


def test_the_smallest_of_several_limits_holds() -> None:
    pattern = then(begin("a").within(2), "followed_by", "b").within(9)
    assert OneKey(pattern).push("a1 x b1").matches == []
    assert OneKey(then(begin("a").within(9), "followed_by", "b").within(2)).push("a1 x b1").matches == []


def test_a_limit_since_the_previous_record_is_one_of_its_step_alone() -> None:
    pattern = then(a_b().within(2, since="previous"), "followed_by", "c")
    assert OneKey(pattern).push("a1 b1 x x x c1").matches == ["a1 b1 c1"]
    key = OneKey(pattern).push("a1 x b1 c1")
    assert (key.matches, key.timed_out) == ([], ["a1"])


def test_a_limit_since_the_previous_record_holds_between_the_records_of_a_loop() -> None:
    pattern = begin("a").one_or_more().within(2, since="previous")
    key = OneKey(pattern).push("a1 a2 x a3")
    assert key.matches == ["a1", "a1 a2", "a2", "a3"]


def test_both_kinds_of_limits_hold_together() -> None:
    pattern = then(a_b().within(3, since="previous"), "followed_by", "c").within(4)
    assert OneKey(pattern).push("a1 x b1 c1").matches == ["a1 b1 c1"]
    assert OneKey(pattern).push("a1 x x b1 c1").matches == []
    assert OneKey(pattern).push("a1 x b1 x c1").matches == []


def test_a_partial_match_times_out_once_when_its_last_step_may_not_come_any_more() -> None:
    pattern = then(then(begin("a"), "followed_by", "b").optional().within(2, since="previous"), "next", "c")
    key = OneKey(pattern.within(9)).push("a1 x").advance_to(60 * SECOND)
    assert key.timed_out == ["a1"], "only the wait for b was left"


def test_a_partial_match_that_a_record_has_ended_does_not_time_out() -> None:
    key = OneKey(then(begin("a"), "next", "b").within(2)).push("a1 x").advance_to(60 * SECOND)
    assert (key.matches, key.timed_out) == ([], [])


@given(st.lists(st.sampled_from(["a1", "a2", "b", "c", "n", "x"]), max_size=25))
def test_no_leak_of_the_shared_buffer(records: list[str]) -> None:
    """FLINK-19970: records are kept for partial matches only, and nothing is left when these are gone."""
    pattern = then(begin("a").one_or_more(), "followed_by_any", "b")
    pattern = then(then(pattern, "not_followed_by", "n"), "next", "c").within(8)
    key = OneKey(pattern)
    for record in records:
        key.push(record)
        kept = {number for match in key.of_key.partial.values() for taken in match.taken for number in taken}
        assert set(key.of_key.records) == kept
    key.advance_to(100 * SECOND)
    assert (key.of_key.partial, key.of_key.records) == ({}, {})


def test_a_pattern_without_a_limit_keeps_what_may_still_match_only() -> None:
    key = OneKey(then(then(begin("a"), "followed_by_any", "b"), "next", "c")).push("a1 b1 x b2 x b3 x")
    assert sorted(record for _, record in key.of_key.records.values()) == ["a1"]
