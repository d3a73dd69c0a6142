"""Random patterns give the matches that Flink's MATCH_RECOGNIZE finds; `make_match_recognize.py` asked it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pattern_setup import OneKey

from penstock.patterns import AfterMatchSkipStrategy, Pattern

CASES = json.loads(Path(__file__).with_name("match_recognize.json").read_text(encoding="utf-8"))
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


def pattern_of(case: dict[str, Any]) -> Pattern[Any]:
    pattern: Pattern[Any] | None = None
    for step in case["steps"]:

        def accepts(record: tuple[int, str], letters: str = step["letters"]) -> bool:
            return record[1] in letters

        if pattern is None:
            pattern = Pattern.begin(step["name"], where=accepts, skip=skip_of(case["skip"]))
        else:
            pattern = pattern.next(step["name"], where=accepts)
        pattern = quantified(pattern, step["quantifier"], is_greedy=not step["reluctant"])
    assert pattern is not None
    return pattern if case["within"] is None else pattern.within(case["within"])


def positions(match: dict[str, list[Any]]) -> Any:
    return [[position for position, _ in taken] for taken in match.values()]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_pattern_has_the_matches_of_match_recognize(case: dict[str, Any]) -> None:
    for stream, expected in zip(case["streams"], case["matches"], strict=True):
        key = OneKey(pattern_of(case["pattern"]), positions)
        for position, (second, letter) in enumerate(stream):
            key.advance_to(second * SECOND)
            outcome = key.matcher.advance(key.of_key, key.at, (position, letter))
            key.matches += map(positions, outcome.matches)
        key.advance_to(1 << 60)
        assert sorted(key.matches) == expected


def test_the_sample_has_matches_of_every_skip_strategy() -> None:
    matches = {case["pattern"]["skip"].partition("_")[0]: 0 for case in CASES}
    for case in CASES:
        matches[case["pattern"]["skip"].partition("_")[0]] += sum(map(len, case["matches"]))
    assert set(matches) == {"past", "to", "first", "last"}
    assert min(matches.values()) > 30
