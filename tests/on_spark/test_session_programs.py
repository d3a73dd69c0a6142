"""Programs with a session of their own: too large, stopped at bad moments."""

from __future__ import annotations

import re

import pytest
from pipelines.programs import run_program

pytestmark = pytest.mark.long

#: Messages of sessions that are not made quiet.
NOISE = re.compile(
    r"\b(TRACE|DEBUG|INFO|WARN)\b|WARNING: |SLF4J|log4j|[Ii]llegal reflective|Setting default log level|"
    r"To adjust logging level|Unable to load native-hadoop|default log4j profile"
)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a program whose session was stopped at bad moments."""
    pytest.importorskip("raydp")
    return run_program("sessions.py", tmp_path_factory.mktemp("sessions"))


def test_a_session_that_is_stopped_leaves_a_job_that_has_its_rows_and_fails_the_others(said: str) -> None:
    assert "refused: executors=500 with 1 CPU(s) each takes 500 in all, but the Ray cluster has 12" in said
    assert "went on without Spark, restarts: 1" in said
    for kind in ("batch", "stream"):
        (failure,) = (line for line in said.splitlines() if line.startswith(f"{kind} failed: "))
        assert f"{kind} failed: operator 'rows'" in failure
        assert "the Spark session was stopped" in failure or "or stopped the session, before" in failure
        assert "; keep " in failure
        assert "start the job again" in failure
        assert f"{kind} restarts: 0" in said
    assert "files of the session: ['blockmgr', 'credentials'] left: False" in said
    assert "stream kept all that Spark has committed: True" in said
    assert "batch kept all that was committed, each row once: True" in said
    assert not noise_of(said), "Spark and RayDP say errors only"


def noise_of(said: str) -> list[str]:
    """Lines of Spark, RayDP and Java. A raylet may warn of many processes on a small node."""
    return [line for line in said.splitlines() if NOISE.search(line) and "(raylet)" not in line]


def test_an_attempt_and_its_speculative_copy_push_at_the_same_time(said: str) -> None:
    seen = re.search(r"attempts: (\d+) duplicates: (\d+) rows: (\d+)", said)
    assert seen is not None, said
    attempts, duplicates, rows = map(int, seen.groups())
    assert attempts == 3, "two partitions, one of them twice"
    assert duplicates >= 1, "frames that the other attempt had pushed"
    assert rows == 20_000
    assert "both push at the same time" in said
    assert "each row once, restarts: 0" in said
