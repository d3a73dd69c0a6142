"""Random patterns with groups have the matches that Flink's CEP finds; `make_cep_matches.py` asked it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pattern_setup import OneKey, letter

from penstock.patterns import Pattern

CASES = json.loads(gzip.decompress(Path(__file__).with_name("cep_matches.json.gz").read_bytes()))


def pattern_of(steps: list[dict[str, Any]]) -> Pattern[str]:
    pattern: Pattern[str] | None = None
    for step in steps:
        add: Any = Pattern.begin if pattern is None else getattr(pattern, step["call"])
        if "members" in step:
            pattern = add(pattern_of(step["members"]))
        else:
            accepts = [letter(each) for each in step["letters"]]
            pattern = add(step["name"], where=lambda record, accepts=accepts: any(a(record) for a in accepts))
        assert pattern is not None
        if step["times"] is not None:
            pattern = repeated(pattern, *step["times"], step["inner"])
    assert pattern is not None
    return pattern


def repeated(pattern: Pattern[str], at_least: int, at_most: int | None, inner: str) -> Pattern[str]:
    loop = pattern.times_or_more(at_least) if at_most is None else pattern.times(at_least, at_most)
    if inner == "relaxed":
        return loop
    return loop.consecutive() if inner == "consecutive" else loop.allow_combinations()


def joined(match: dict[str, list[str]]) -> str:
    """The records of each step; Flink leaves out steps without records."""
    return " ".join(f"{name}:{','.join(records)}" for name, records in sorted(match.items()) if records)


def check(case: dict[str, Any]) -> None:
    pattern = pattern_of(case["steps"])
    for letters, expected in zip(case["streams"], case["matches"], strict=True):
        one = OneKey(pattern, joined).push(" ".join(f"{name}{at}" for at, name in enumerate(letters)))
        assert sorted(one.matches) == sorted(map(joined, expected)), f"{pattern} in {letters}"


@pytest.mark.parametrize("case", CASES[::8], ids=range(0, len(CASES), 8))
def test_a_pattern_has_the_matches_of_flink(case: dict[str, Any]) -> None:
    check(case)


@pytest.mark.long
def test_eight_hundred_patterns_have_the_matches_of_flink() -> None:
    assert len(CASES) == 800
    for case in CASES:
        check(case)


def test_the_sample_has_matches_of_groups_that_repeat() -> None:
    found = {"times": 0, "once": 0}
    for case in CASES:
        loops = [step for step in case["steps"] if "members" in step and step["times"] is not None]
        found["times" if loops else "once"] += sum(map(len, case["matches"]))
    assert min(found.values()) > 500
