"""Every case of the job side's small parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import replay
from drivers import job_side

DATA = Path(__file__).parent / "data"
CASES = [
    pytest.param(suite, case, id=f"{suite}-{case['name']}")
    for suite in job_side.SUITES
    for case in replay.load_suite(DATA / f"{suite}.json")["cases"]
]


@pytest.mark.parametrize(("suite", "case"), CASES)
def test_job_side_case_does_what_flink_does(suite: str, case: dict[str, Any]) -> None:
    assert job_side.replay(suite, case) == []


def test_no_case_is_left_out() -> None:
    assert len(CASES) == 13 + 18 + 5
