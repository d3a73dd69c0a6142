"""Matches that an emitted match leaves over, by skip strategy."""

from __future__ import annotations

import pytest
from pattern_setup import OneKey, begin, found, letter, then

from penstock.patterns import AfterMatchSkipStrategy as Skip
from penstock.patterns import Pattern

SECOND = 1_000_000


def loop(skip: Skip) -> Pattern[str]:
    """`b+ c`, without a gap: a loop that may go on holds back what began later."""
    return then(begin("b", skip).one_or_more().consecutive(), "next", "c")


@pytest.mark.parametrize(
    ("skip", "matches"),
    [
        (Skip.no_skip(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (Skip.skip_to_next(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (Skip.skip_past_last_event(), ["b1 b2 b3 c"]),
        (Skip.skip_to_first("b"), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (Skip.skip_to_last("b"), ["b1 b2 b3 c", "b3 c"]),
    ],
)
def test_a_loop_and_its_end_under_each_strategy(skip: Skip, matches: list[str]) -> None:
    assert found(loop(skip), "b1 b2 b3 c") == matches


@pytest.mark.parametrize(
    ("skip", "matches"),
    [
        (Skip.no_skip(), ["a b c1 c2 c3 d", "b c1 c2 c3 d", "c1 c2 c3 d"]),
        (Skip.skip_to_first("loop"), ["a b c1 c2 c3 d", "c1 c2 c3 d"]),
    ],
)
def test_skip_to_first_discards_what_began_before_the_first_record_of_a_step(
    skip: Skip, matches: list[str]
) -> None:
    pattern: Pattern[str] = Pattern.begin("one", where=lambda r: r[0] in "abc", skip=skip)
    pattern = pattern.next("two", where=lambda r: r[0] in "bc")
    pattern = pattern.next("loop", where=letter("c")).one_or_more().greedy()
    assert found(then(pattern, "next", "d"), "a b c1 c2 c3 d") == matches


@pytest.mark.parametrize(
    ("skip", "matches"),
    [(Skip.no_skip(), ["a b1", "a b1 b2", "a b1 b2 b3"]), (Skip.skip_to_next(), ["a b1"])],
)
def test_skip_to_next_discards_what_began_with_the_same_record(skip: Skip, matches: list[str]) -> None:
    pattern = then(begin("a", skip), "next", "b").one_or_more()
    assert found(pattern, "a b1 b2 b3") == matches


def test_skip_to_next_leaves_later_beginnings() -> None:
    for skip, matches in [
        (Skip.no_skip(), ["a1 b1", "a1 b2", "a2 b2"]),
        (Skip.skip_to_next(), ["a1 b1", "a2 b2"]),
    ]:
        assert found(then(begin("a", skip), "followed_by_any", "b"), "a1 b1 a2 b2") == matches


def test_skip_past_last_event_emits_matches_one_after_the_other() -> None:
    pattern = begin("a", Skip.skip_past_last_event()).times(3)
    assert found(pattern, "a1 a2 a3 a4 a5 a6") == ["a1 a2 a3", "a4 a5 a6"]


def test_the_record_that_ends_a_match_does_not_begin_another_past_it() -> None:
    pattern: Pattern[str] = Pattern.begin("one", skip=Skip.skip_past_last_event())
    assert found(pattern.next("two"), "x1 x2 x3 x4") == ["x1 x2", "x3 x4"]


@pytest.mark.parametrize(
    ("skip", "records", "matches"),
    [
        (Skip.skip_to_first("end"), "x1 x2 x3 x4 x5 x6", ["x1 x2 x3 x4", "x3 x4 x5 x6"]),
        (Skip.skip_to_last("end"), "x1 x2 x3 x4 x5 x6 x7", ["x1 x2 x3 x4", "x4 x5 x6 x7"]),
    ],
)
def test_skipping_to_a_step_lets_a_match_begin_there(skip: Skip, records: str, matches: list[str]) -> None:
    pattern: Pattern[str] = Pattern.begin("start", skip=skip).times(2).next("end").times(2)
    assert found(pattern, records) == matches


def test_skipping_to_a_step_that_the_match_lacks_discards_nothing() -> None:
    pattern = then(begin("a", Skip.skip_to_first("b")), "next", "b").optional()
    assert found(then(pattern, "followed_by", "c"), "a1 a2 c") == ["a1 c", "a2 c"]


def test_a_match_waits_for_partial_matches_that_began_earlier() -> None:
    """Both end with `c`, but the one that begins with `a1` comes first and discards the other."""
    pattern: Pattern[str] = Pattern.begin("one", where=letter("a"), skip=Skip.skip_past_last_event())
    pattern = pattern.followed_by("two", where=lambda r, m: r == ("d" if m["one"] == ["a1"] else "c"))
    key = OneKey(pattern).push("a1 a2 c")
    assert key.matches == []
    assert key.push("d").matches == ["a1 d"]
    assert (key.of_key.held, key.of_key.records) == ({}, {})


def test_skip_also_after_a_timeout() -> None:
    """The match of `a2` waits for `a1`; when `a1` times out, it is emitted and discards `a3`."""
    pattern: Pattern[str] = Pattern.begin("one", where=letter("a"), skip=Skip.skip_past_last_event())
    pattern = pattern.followed_by("two", where=lambda r, m: r == f"c{m['one'][0][1:]}").within(10)
    key = OneKey(pattern).push("a1 a2 a3 c2 c3")
    assert (key.matches, key.timed_out) == ([], [])
    key.advance_to(10 * SECOND)
    assert (key.matches, key.timed_out) == (["a2 c2"], ["a1"])
    assert (key.of_key.partial, key.of_key.held, key.of_key.records) == ({}, {}, {})


def test_a_match_that_time_completes_skips_too() -> None:
    pattern = then(begin("a", Skip.skip_past_last_event()).times(2), "not_followed_by", "n").within(5)
    assert OneKey(pattern).push("a1 a2 a3").advance_to(20 * SECOND).matches == ["a1 a2"]


def test_strategies_show_how_they_are_made() -> None:
    assert repr(Skip.no_skip()) == "AfterMatchSkipStrategy.no_skip()"
    assert repr(Skip.skip_to_first("b")) == "AfterMatchSkipStrategy.skip_to_first('b')"
