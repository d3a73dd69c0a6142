"""Flink's cases on the completed checkpoints that are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import replay
from drivers import completed_store

CASES = replay.load_suite(Path(__file__).parent / "data" / "completed_store.json")["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_store_keeps_and_discards_what_flink_does(case: dict[str, Any]) -> None:
    assert completed_store.replay("completed_store", case) == []


def test_all_cases_of_the_suite_are_there() -> None:
    assert len(CASES) == 9


def test_a_case_that_expects_something_else_is_noticed() -> None:
    case = {"config": {"retained": 1}, "ops": [{"op": "add", "checkpoint": 3, "expect": {"all": [4]}}]}
    assert completed_store.replay("completed_store", case) == ["op 0: all is [3], not [4]"]
