"""Runs the programs of this folder, each with a Ray cluster of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
#: Seconds; far more than any of them takes.
_PATIENCE = 400


def run_program(program: str, folder: Path) -> str:
    """Run one with a folder as its argument; what it printed."""
    tests = _HERE.parents[1]
    path = os.pathsep.join(filter(None, [str(_HERE.parent), str(tests), os.environ.get("PYTHONPATH")]))
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        done = subprocess.run(
            [sys.executable, _HERE / program, folder],
            env=environment | {"PYTHONPATH": path, "RAY_TMPDIR": ray_folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE,
        )
    assert done.returncode == 0, done.stdout
    return done.stdout
