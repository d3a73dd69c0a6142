"""Random patterns over random records give what the model gives, also through an operator and restores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from typing import Any
from unittest.mock import patch

import pytest
from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_model import matches_of, placed
from pattern_setup import OneKey

from penstock import DataStream
from penstock.patterns import AfterMatchSkipStrategy, Pattern
from penstock.runtime.operators.functions.time_order import WAITING_RECORDS
from penstock.runtime.operators.patterns import key_matches
from penstock.runtime.operators.patterns.key_matches import KeyMatches
from penstock.runtime.operators.patterns.matcher import Matcher
from penstock.runtime.operators.patterns.pattern import SkipKind
from penstock.runtime.operators.patterns.pattern_operator import MATCHED_RECORDS, PARTIAL_MATCHES
from penstock.runtime.operators.patterns.step import leaves
from penstock.runtime.record.elements import END_OF_TIME
from penstock.testing import OperatorHarness

SECOND = 1_000_000
LETTERS = "abc"
CALLS = ("next", "followed_by", "followed_by_any")


def one_of(letters: str) -> Callable[[str], bool]:
    return lambda record: record[0] in letters


CONDITIONS = st.sampled_from(["a", "b", "c", "ab", "bc", "abc"]).map(one_of)


@st.composite
def patterns(draw: st.DrawFn, *, is_limited: bool = False) -> Pattern[str]:
    pattern = sequence(draw, "s", draw(st.integers(1, 3)), 2)
    limit = draw(st.integers(2, 8)) if is_limited or draw(st.booleans()) else None
    if limit is not None:
        pattern = pattern.within(limit)
        last = pattern.steps[-1]
        if not (last.is_optional or last.members) and draw(st.integers(0, 3)) == 0:
            pattern = negated(draw, pattern, "end")
    return pattern


def sequence(draw: st.DrawFn, name: str, number: int, depth: int) -> Pattern[str]:
    """Steps and groups, which nest up to a depth."""
    pattern: Pattern[str] | None = None
    for index in range(number):
        step = f"{name}{index}"
        if pattern is not None and draw(st.booleans()) and draw(st.booleans()):
            last = pattern.steps[-1]
            if not (last.is_optional or last.members):
                pattern = negated(draw, pattern, f"n{step}")
        begin = Pattern.begin if pattern is None else getattr(pattern, draw(st.sampled_from(CALLS)))
        if depth and draw(st.integers(0, 3)) == 0:
            group = sequence(draw, f"{step}_", draw(st.integers(1, 2)), depth - 1)
            if not all(member.is_optional for member in group.steps):
                pattern = repeated(draw, begin(group))
                continue
        pattern = quantified(draw, begin(step, where=draw(CONDITIONS)))
    assert pattern is not None
    return pattern


def repeated(draw: st.DrawFn, pattern: Pattern[str]) -> Pattern[str]:
    """The last group, which may run several times."""
    kind = draw(st.sampled_from(["one", "times", "range", "more"]))
    if kind != "one":
        pattern = pattern.one_or_more() if kind == "more" else pattern.times(1 if kind == "range" else 2, 2)
        inner = draw(st.sampled_from(["relaxed", "consecutive", "combinations"]))
        if inner != "relaxed":
            pattern = pattern.consecutive() if inner == "consecutive" else pattern.allow_combinations()
    return pattern.optional() if draw(st.integers(0, 3)) == 0 else pattern


def negated(draw: st.DrawFn, pattern: Pattern[str], name: str) -> Pattern[str]:
    call = draw(st.sampled_from(["not_next", "not_followed_by"]))
    negative: Pattern[str] = getattr(pattern, call)(name, where=one_of(draw(st.sampled_from("abc"))))
    if name == "end" and draw(st.integers(0, 3)) == 0:
        negative = negative.within(draw(st.integers(1, 4)), since="previous")
    return negative


def quantified(draw: st.DrawFn, pattern: Pattern[str]) -> Pattern[str]:
    kind = draw(st.sampled_from(["one", "one", "times", "range", "more"]))
    if kind != "one":
        if kind == "times":
            pattern = pattern.times(2)
        elif kind == "range":
            pattern = pattern.times(1, draw(st.integers(2, 3)))
        else:
            pattern = pattern.one_or_more()
            if draw(st.integers(0, 2)) == 0:
                pattern = pattern.until(one_of(draw(st.sampled_from("abc"))))
        inner = draw(st.sampled_from(["relaxed", "consecutive", "combinations", "greedy"]))
        if inner == "consecutive":
            pattern = pattern.consecutive()
        elif inner == "combinations":
            pattern = pattern.allow_combinations()
        if inner == "greedy" or (inner == "consecutive" and draw(st.booleans())):
            pattern = pattern.greedy()
    if draw(st.integers(0, 3)) == 0:
        pattern = pattern.optional()
    if draw(st.integers(0, 5)) == 0:
        pattern = pattern.within(draw(st.integers(1, 4)), since="previous")
    return pattern


def joined(match: dict[str, list[str]]) -> str:
    return placed(match.values())


EVENTS = st.lists(st.tuples(st.sampled_from([0, 1, 1, 2]), st.sampled_from(LETTERS)), max_size=8)


def timed(steps: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Records with timestamps and names of their own: each comes some seconds after the one before."""
    at, events = 0, []
    for number, (seconds, name) in enumerate(steps):
        at += seconds * SECOND
        events.append((at, f"{name}{number}"))
    return events


def run(pattern: Pattern[str], events: list[tuple[int, str]]) -> OneKey:
    key = OneKey(pattern, joined)
    for at, record in events:
        key.advance_to(at)
        key.matches += map(joined, key.matcher.advance(key.of_key, at, record).matches)
    return key


#: Number of partial matches from which on they are indexed: always, or as usual.
MANY = st.sampled_from([1, key_matches.MANY])


def indexed(many: int) -> AbstractContextManager[object]:
    return patch.object(key_matches, "MANY", many)


@settings(max_examples=80 * DEEP)
@given(pattern=patterns(), steps=EVENTS, many=MANY)
def test_a_matcher_finds_what_the_model_finds(
    pattern: Pattern[str], steps: list[tuple[int, str]], many: int
) -> None:
    events = timed(steps)
    expected = sorted(found.text(events) for found in matches_of(pattern, events))
    with indexed(many):
        assert sorted(run(pattern, events).advance_to(1 << 60).matches) == expected


@settings(max_examples=40 * DEEP)
@given(pattern=patterns(), steps=EVENTS, many=MANY, data=st.data())
def test_partial_matches_may_be_saved_and_restored_after_any_record(
    pattern: Pattern[str], steps: list[tuple[int, str]], many: int, data: st.DataObject
) -> None:
    events = timed(steps)
    with indexed(many):
        matches = restored_in_between(pattern, events, data)
    assert sorted(map(joined, matches)) == sorted(run(pattern, events).matches)


def restored_in_between(
    pattern: Pattern[str], events: list[tuple[int, str]], data: st.DataObject
) -> list[dict[str, list[str]]]:
    """The matches of a matcher whose partial matches are saved and restored after some of the records."""
    matches = []
    matcher, of_key = Matcher(pattern), KeyMatches()
    for at, record in events:
        while (deadline := matcher.deadline(of_key)) is not None and deadline <= at:
            matches += matcher.expire(of_key, deadline).matches
        matches += matcher.advance(of_key, at, record).matches
        if data.draw(st.booleans()):
            saved = {number: tuple(match) for number, match in {**of_key.partial, **of_key.held}.items()}
            of_key = KeyMatches.of(saved, dict(of_key.records))
    return matches


@settings(max_examples=40 * DEEP)
@given(pattern=patterns(is_limited=True), steps=EVENTS, data=st.data())
def test_skipping_leaves_what_no_emitted_match_discards(
    pattern: Pattern[str], steps: list[tuple[int, str]], data: st.DataObject
) -> None:
    """Matches come in the order of their beginnings, then of their ends."""
    names = [step.name for step in leaves(pattern.steps) if not step.is_negative]
    skip = data.draw(
        st.sampled_from(
            [AfterMatchSkipStrategy.skip_to_next(), AfterMatchSkipStrategy.skip_past_last_event()]
        )
        | st.sampled_from(names).map(AfterMatchSkipStrategy.skip_to_first)
        | st.sampled_from(names).map(AfterMatchSkipStrategy.skip_to_last)
    )
    events = timed(steps)
    found = {match.text(events): match for match in matches_of(pattern, events)}
    every = run(pattern, events).advance_to(1 << 60).matches
    expected, bound = [], -inf
    for text in sorted(every, key=lambda text: found[text].first):
        match = found[text]
        if match.first < bound:
            continue
        expected.append(text)
        last = max(index for taken in match.taken for index in taken)
        if skip.kind is SkipKind.TO_NEXT:
            bound = max(bound, match.first + 1)
        elif skip.kind is SkipKind.PAST_LAST_EVENT:
            bound = max(bound, last + 1)
        elif taken := match.taken[names.index(str(skip.step))]:
            bound = max(bound, taken[0 if skip.kind is SkipKind.TO_FIRST else -1])
    skipping = Pattern(pattern.steps, skip, pattern.limit)
    with indexed(data.draw(MANY)):
        assert run(skipping, events).advance_to(1 << 60).matches == expected


@pytest.mark.usefixtures("either_backend")
@settings(max_examples=20 * DEEP)
@given(pattern=patterns(), many=MANY, data=st.data())
def test_an_operator_finds_what_the_model_finds_whatever_the_order_and_the_restores(
    pattern: Pattern[str], many: int, data: st.DataObject
) -> None:
    with indexed(many):
        check_operator(pattern, data)


def check_operator(pattern: Pattern[str], data: st.DataObject) -> None:
    def build(stream: DataStream[str]) -> DataStream[str]:
        return stream.key_by(lambda record: record[-1]).pattern(pattern).select("found", joined)

    of_key = st.tuples(st.integers(0, 12), st.sampled_from(LETTERS), st.sampled_from("xy"))
    reached, number, kept, out = -1, 0, [], []
    harness = OperatorHarness.of(build)
    steps = st.lists(of_key, min_size=1, max_size=4) | st.integers(0, 12) | st.just("restore")
    for step in [*data.draw(st.lists(steps, max_size=8)), END_OF_TIME]:
        if isinstance(step, int):
            reached = max(reached, step)
            out += harness.push_watermark(step if step == END_OF_TIME else step * SECOND)
        elif isinstance(step, str):
            snapshot = harness.snapshot()
            harness.close()
            harness = OperatorHarness.of(build, restored=[snapshot])
        else:
            rows = []
            for second, name, key in step:
                rows.append(f"{name}{number}{key}")
                number += 1
                if second > reached:
                    kept.append((second * SECOND, number, rows[-1]))
            harness.push(rows, [second * SECOND for second, *_ in step])
    if pattern.limit is not None:
        assert harness.state(PARTIAL_MATCHES) == harness.state(MATCHED_RECORDS) == {}
    assert harness.state(WAITING_RECORDS) == {}
    harness.close()
    expected: list[Any] = []
    for key in "xy":
        events = [(at, record) for at, _, record in sorted(kept) if record.endswith(key)]
        expected += [found.text(events) for found in matches_of(pattern, events)]
    assert sorted(out) == sorted(expected)
