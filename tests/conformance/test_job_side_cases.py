"""Every case of the job side's small parts that is in scope."""

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

#: They need operator coordinators or master states.
OUT_OF_SCOPE = {
    "master_state",
    "coordinators_open",
    "coordinators_done",
    "coordinator_twice",
    "coordinator_unknown",
    "stateless_coordinator_twice_is_unknown",
}


@pytest.mark.parametrize(("suite", "case"), [c for c in CASES if c.values[1]["name"] not in OUT_OF_SCOPE])
def test_job_side_case_does_what_flink_does(suite: str, case: dict[str, Any]) -> None:
    assert job_side.replay(suite, case) == []


def test_only_cases_of_coordinators_and_masters_are_left_out() -> None:
    left_out = {
        case["name"]
        for suite, case in (c.values for c in CASES)
        if suite == "pending_checkpoint"
        and (case["config"]["operator_coordinators"] or case["config"]["master_states"])
    }
    assert left_out == OUT_OF_SCOPE
    assert len(CASES) == 13 + 18 + 5
