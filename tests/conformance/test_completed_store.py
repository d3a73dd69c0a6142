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


@pytest.mark.parametrize(
    ("job_status", "discarded"),
    [
        ("finished", [1, 2, 3]),
        ("failed", [1]),
        ("canceled", [1, 2]),
        ("suspended", [1, 2]),
    ],
)
def test_each_checkpoint_is_kept_after_the_ends_that_were_said_when_it_was_added(
    job_status: str, discarded: list[int]
) -> None:
    retentions = [None, "retain_on_failure", "retain_on_cancellation"]
    adds = [
        {
            "op": "add",
            "checkpoint": number,
            "expect": {"all": list(range(1, number + 1))},
            **({"retention": retention} if retention else {}),
        }
        for number, retention in enumerate(retentions, 1)
    ]
    end = {"op": "shutdown", "job_status": job_status, "expect": {"discard": discarded, "all": []}}
    assert completed_store.replay("completed_store", {"config": {"retained": 3}, "ops": [*adds, end]}) == []


@pytest.mark.parametrize(("prefer", "latest"), [(True, 1), (False, 2)])
def test_a_checkpoint_is_preferred_to_a_newer_savepoint_only_where_that_is_asked(
    prefer: bool, latest: int
) -> None:
    ops = [
        {"op": "add", "checkpoint": 1, "expect": {"all": [1]}},
        {"op": "add", "checkpoint": 2, "type": "savepoint", "expect": {"all": [1, 2]}},
        {"op": "latest", "prefer_checkpoint": prefer, "expect": {"latest": latest}},
    ]
    assert completed_store.replay("completed_store", {"config": {"retained": 3}, "ops": ops}) == []


def test_a_case_that_expects_something_else_is_noticed() -> None:
    case = {"config": {"retained": 1}, "ops": [{"op": "add", "checkpoint": 3, "expect": {"all": [4]}}]}
    assert completed_store.replay("completed_store", case) == ["op 0: all is [3], not [4]"]
