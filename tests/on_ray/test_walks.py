"""A call passes no more files than it did, from one end of the house to the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "walks.py"


@pytest.mark.long
def test_walks_through_a_real_job_pass_no_more_files_than_they_did() -> None:
    done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    for passed in ("operators/sinks.py", "coordinator/pending_checkpoint.py", "web/routes.py"):
        assert passed in done.stdout, passed
