"""Flink's facts on key groups, and its cases on operator state for a new parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import replay
from drivers import key_groups, rescaling

DATA = Path(__file__).parent / "data"
KEY_GROUPS = replay.load_suite(DATA / "key_groups.json")["cases"]
OF_THE_DRIVER = [case for case in KEY_GROUPS if not key_groups.tests_product(case)]
CASES = [
    pytest.param(driver, case, id=f"{suite}-{case['name']}")
    for driver, suite, cases in (
        (key_groups, "key_groups", [case for case in KEY_GROUPS if key_groups.tests_product(case)]),
        (rescaling, "rescaling", replay.load_suite(DATA / "rescaling.json")["cases"]),
    )
    for case in cases
]


@pytest.mark.parametrize(("driver", "case"), CASES)
def test_every_fact_holds_and_every_subtask_gets_its_part(driver: Any, case: dict[str, Any]) -> None:
    assert driver.replay(case["name"], case) == []


@pytest.mark.parametrize("case", OF_THE_DRIVER, ids=lambda case: case["name"])
def test_the_hashes_of_the_driver_are_java_s(case: dict[str, Any]) -> None:
    """They prove nothing about the product, but the facts on key groups are asked with them."""
    assert key_groups.replay("key_groups", case) == []


def test_all_cases_of_both_suites_are_there() -> None:
    assert len(CASES) == 6 + 13
    assert sum(len(case.values[1].get("facts", ())) for case in CASES) == 50
    assert sum(len(case["facts"]) for case in OF_THE_DRIVER) == 22


def test_a_fact_that_does_not_hold_is_noticed() -> None:
    wrong = {"fact": "murmur", "code": 0, "expect": {"hash": 1}}
    refused = {"fact": "range_size", "range": [0, 3], "expect": {"error": "illegal_argument"}}
    assert len(key_groups.replay("key_groups", {"facts": [wrong, refused]})) == 2


def test_a_part_that_goes_to_another_subtask_is_noticed() -> None:
    old = [
        {"a": {"mode": "union", "offsets": [0]}},
        {"b": {"mode": "split_distribute", "offsets": [1, 2, 3]}},
    ]
    case = {"old": old, "new_parallelism": 1, "expect": {"new": [[["a", 0, 1]]]}, "compare": "split_balanced"}
    assert len(rescaling.replay("rescaling", case)) == 1


def test_every_suite_has_a_driver() -> None:
    drivers = replay.find_drivers()
    assert {replay.load_suite(path)["suite"] for path in DATA.glob("*.json")} <= drivers.keys()
