"""Two attempts of one Spark task that run at the same time: each row counts once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pipelines.programs import run_program


def test_an_attempt_and_its_speculative_copy_push_at_the_same_time(tmp_path: Path) -> None:
    pytest.importorskip("raydp")
    said = run_program("two_hosts.py", tmp_path)
    seen = re.search(r"attempts: (\d+) duplicates: (\d+) rows: (\d+)", said)
    assert seen is not None, said
    attempts, duplicates, rows = map(int, seen.groups())
    assert attempts == 3, "two partitions, one of them twice"
    assert duplicates >= 1, "frames that the other attempt had pushed"
    assert rows == 20_000
    assert "both push at the same time" in said
    assert "each row once, restarts: 0" in said
