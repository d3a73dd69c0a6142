"""Random patterns give the matches that Flink's MATCH_RECOGNIZE finds; `make_match_recognize.py` asked it.

Two differences are left, which `docs/patterns.md` names. In Flink a record that matches a greedy step never
begins the next step, even if the greedy step is full. And if several matches begin with the same record and
end with the same record, Flink's choice among them follows no rule of its documentation.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pattern_setup import OneKey

from penstock.patterns import AfterMatchSkipStrategy, Pattern

CASES = json.loads(gzip.decompress(Path(__file__).with_name("match_recognize.json.gz").read_bytes()))
SECOND = 1_000_000


def skip_of(text: str) -> AfterMatchSkipStrategy:
    kind, _, name = text.partition("_")
    if kind == "first":
        return AfterMatchSkipStrategy.skip_to_first(name)
    if kind == "last":
        return AfterMatchSkipStrategy.skip_to_last(name)
    if kind == "past":
        return AfterMatchSkipStrategy.skip_past_last_event()
    return AfterMatchSkipStrategy.skip_to_next()


def quantified(pattern: Pattern[Any], quantifier: str, *, is_greedy: bool) -> Pattern[Any]:
    """The last step with a quantifier; records of a step follow each other directly."""
    if not quantifier:
        return pattern
    if quantifier == "?":
        return pattern.optional()
    if quantifier == "{2}":
        return pattern.times(2).consecutive()
    loop = {
        "+": pattern.one_or_more,
        "*": lambda: pattern.one_or_more().optional(),
        "{1,2}": lambda: pattern.times(1, 2),
        "{2,}": lambda: pattern.times_or_more(2),
    }[quantifier]()
    return loop.consecutive().greedy() if is_greedy else loop.consecutive()


def condition_of(steps: list[dict[str, Any]], index: int) -> Callable[..., bool]:
    """The condition of a step in Flink, where a full greedy step keeps its records from the next step."""
    letters, before = steps[index]["letters"], index
    greedy: list[tuple[str, str, list[str]]] = []
    while before:
        before -= 1
        step = steps[before]
        if step["quantifier"] == "{1,2}" and not step["reluctant"]:
            greedy.append((step["name"], step["letters"], [s["name"] for s in steps[before + 1 : index + 1]]))
        if step["quantifier"] not in ("?", "*"):
            break

    def accepts(record: tuple[int, str]) -> bool:
        return record[1] in letters

    def accepts_in_flink(record: tuple[int, str], match: dict[str, list[Any]]) -> bool:
        return accepts(record) and not any(
            record[1] in taken and match[name] and not any(match[later] for later in between)
            for name, taken, between in greedy
        )

    return accepts_in_flink if greedy else accepts


def pattern_of(case: dict[str, Any], skip: AfterMatchSkipStrategy) -> Pattern[Any]:
    pattern: Pattern[Any] | None = None
    for index, step in enumerate(case["steps"]):
        name, accepts = step["name"], condition_of(case["steps"], index)
        if pattern is None:
            pattern = Pattern.begin(name, where=accepts, skip=skip)
        else:
            pattern = pattern.next(name, where=accepts)
        pattern = quantified(pattern, step["quantifier"], is_greedy=not step["reluctant"])
    assert pattern is not None
    return pattern if case["within"] is None else pattern.within(case["within"])


def positions(match: dict[str, list[Any]]) -> Any:
    return [[position for position, _ in taken] for taken in match.values()]


def matches_of(pattern: Pattern[Any], stream: list[tuple[int, str]]) -> list[Any]:
    key = OneKey(pattern, positions)
    for position, (second, letter) in enumerate(stream):
        key.advance_to(second * SECOND)
        outcome = key.matcher.advance(key.of_key, key.at, (position, letter))
        key.matches += map(positions, outcome.matches)
    return sorted(key.advance_to(1 << 60).matches)


def ends(match: list[list[int]]) -> tuple[int, int]:
    taken = [position for of_step in match for position in of_step]
    return min(taken), max(taken)


def check(case: dict[str, Any]) -> int:
    """Compare the matches of each stream, and return the number of streams in which Flink chose others."""
    others = 0
    pattern = pattern_of(case["pattern"], skip_of(case["pattern"]["skip"]))
    for stream, expected in zip(case["streams"], case["matches"], strict=True):
        matches = matches_of(pattern, stream)
        if matches != expected:
            every = matches_of(pattern_of(case["pattern"], AfterMatchSkipStrategy.no_skip()), stream)
            assert sorted(map(ends, matches)) == sorted(map(ends, expected))
            assert all(match in every for match in expected)
            others += 1
    return others


@pytest.mark.parametrize("case", CASES[::10], ids=range(0, len(CASES), 10))
def test_a_pattern_has_the_matches_of_match_recognize(case: dict[str, Any]) -> None:
    assert check(case) == 0


@pytest.mark.long
def test_a_thousand_patterns_have_the_matches_of_match_recognize() -> None:
    assert len(CASES) == 1000
    assert sum(map(check, CASES)) <= 5


def test_the_sample_has_matches_of_every_skip_strategy() -> None:
    matches = {case["pattern"]["skip"].partition("_")[0]: 0 for case in CASES}
    for case in CASES:
        matches[case["pattern"]["skip"].partition("_")[0]] += sum(map(len, case["matches"]))
    assert set(matches) == {"past", "to", "first", "last"}
    assert min(matches.values()) > 300
