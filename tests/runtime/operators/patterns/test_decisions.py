"""Decisions for many partial matches at once, and the records that conditions receive."""

from __future__ import annotations

from collections import Counter

import pytest
from pattern_setup import OneKey, begin, letter, then

from penstock.patterns import Pattern
from penstock.runtime.operators.patterns.key_matches import MANY, KeyMatches
from penstock.runtime.operators.patterns.matcher import Match
from penstock.runtime.operators.user_code.only_reads import only_reads

AS = [f"a{n}" for n in range(MANY + 3)]


@pytest.mark.parametrize("restores", [False, True])
def test_many_partial_matches_advance_as_few_do(restores: bool) -> None:
    one = OneKey(then(then(begin("a"), "followed_by", "b"), "followed_by", "c"))
    for record in [*AS, "b1", "a30", "b2", "c1", "b3", "c2"]:
        if restores:
            of_key = one.of_key
            saved = {number: tuple(match) for number, match in {**of_key.partial, **of_key.held}.items()}
            one.of_key = KeyMatches.of(saved, of_key.records)
        one.push(record)
    assert one.matches == [*[f"{a} b1 c1" for a in AS], "a30 b2 c1"]
    assert (one.of_key.partial, one.of_key.records) == ({}, {})
    assert not one.of_key.ids


def test_the_index_follows_matches_that_time_takes() -> None:
    one = OneKey(then(then(begin("a"), "followed_by", "b"), "followed_by", "c").within(MANY + 1))
    one.push(" ".join(AS))
    assert one.timed_out == AS[:2]
    assert one.of_key.ids is not None
    assert [sorted(ids) for ids in one.of_key.ids.values()] == [sorted(one.of_key.partial)]
    one.push("b1 c1")
    assert one.matches == [f"{a} b1 c1" for a in AS[4:]]


def test_a_condition_on_the_match_is_asked_for_each_of_many_partial_matches() -> None:
    def pairs(record: str, match: Match) -> bool:
        return record[1:] == match["a"][0][1:]

    one = OneKey(begin("a").followed_by("b", where=pairs))
    one.push(" ".join([*AS, "b4", "x99", "b9"]))
    assert one.matches == ["a4 b4", "a9 b9"]
    assert len(one.of_key.partial) == len(AS) - 2


def test_a_condition_on_records_alone_is_called_once_for_a_record_and_many_matches() -> None:
    calls: Counter[str] = Counter()

    def is_b(record: str) -> bool:
        calls[record] += 1
        return record.startswith("b")

    one = OneKey(begin("a").followed_by("b", where=is_b)).push(" ".join([*AS, "b1"]))
    assert len(one.matches) == len(AS)
    assert set(calls.values()) == {1}


def test_a_condition_that_changes_its_match_changes_no_other() -> None:
    def drains(record: str, match: Match) -> bool:
        first = match["a"].pop()
        return record.startswith("b") and first == "a1"

    def reads(record: str, match: Match) -> bool:
        return match["a"] == ["a1"]

    assert (only_reads(drains), only_reads(reads)) == (False, True)
    for wheres in [(drains, reads), (reads, drains, reads)]:
        pattern = begin("a")
        for number, where in enumerate(wheres):
            pattern = pattern.followed_by(f"step{number}", where=where)
            if number < len(wheres) - 1:
                pattern = pattern.optional()
        assert OneKey(pattern).push("a1 x1").matches == ["a1 x1"]


def test_a_first_step_with_an_end_is_decided_for_each_record() -> None:
    pattern: Pattern[str] = Pattern.begin("any").one_or_more().until(letter("z"))
    one = OneKey(pattern.followed_by("b", where=letter("b"))).push("z1 b1 x1 b2")
    assert "x1 b2" in one.matches
    assert not any(match.startswith("z1") for match in one.matches)


def test_a_first_step_without_a_condition_begins_with_each_record() -> None:
    pattern: Pattern[str] = Pattern.begin("any")
    one = OneKey(pattern.next("b", where=letter("b"))).push("b1 b2 a1 b3")
    assert one.matches == ["b1 b2", "a1 b3"]


def test_an_optional_first_step_without_a_condition_can_be_passed_over() -> None:
    pattern: Pattern[str] = Pattern.begin("any").optional()
    one = OneKey(pattern.next("b", where=letter("b"))).push("a1 b1")
    assert sorted(one.matches) == ["a1 b1", "b1"]
