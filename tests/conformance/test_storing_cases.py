"""Every case of the storing gate and its storage, in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import replay
from drivers import storing

DATA = Path(__file__).parent / "data"
CASES = [
    pytest.param(suite, case, id=f"{suite}-{case['name']}")
    for suite in storing.SUITES
    for case in replay.load_suite(DATA / f"{suite}.json")["cases"]
]


@pytest.mark.parametrize(("suite", "case"), CASES)
def test_storing_case_does_what_flink_does(suite: str, case: dict[str, Any]) -> None:
    assert storing.replay(suite, case) == []


def test_all_cases_of_both_suites_are_there() -> None:
    assert len(CASES) == 22 + 6


def test_a_case_that_expects_something_else_is_noticed_with_every_storage() -> None:
    config = {"max_buffered_bytes": -1, "accounting": "page", "page_size": 512}
    ops = [{"op": "add", "label": "x", "expect": {"state": {"pending_bytes": 511}}}]
    differences = storing.replay("buffer_storage", {"config": config, "ops": ops})
    assert [difference.split()[0] for difference in differences] == [
        "BufferStorage",  # all on disk, the first two elements in memory, all in memory
        "BufferStorage",
        "BufferStorage",
    ]
