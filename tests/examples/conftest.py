"""Runs examples the way a user does, as programs of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

if str(EXAMPLES) not in sys.path:
    sys.path.append(str(EXAMPLES))

#: Seconds that an example may take, the start of a local cluster included.
_PATIENCE = 200


@dataclass(frozen=True)
class Run:
    """A program that has ended."""

    code: int
    output: str


@dataclass(frozen=True)
class Runner:
    """Runs Python programs in a folder."""

    folder: Path

    def __call__(self, program: str, *arguments: str | Path | float) -> Run:
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        process = subprocess.Popen(
            [sys.executable, EXAMPLES / program, *map(str, arguments)],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            pytest.fail(f"{program} still ran after {_PATIENCE} s; it said:\n{output}")
        return Run(process.returncode, output)


@pytest.fixture
def run_example(tmp_path: Path) -> Runner:
    """Runs an example in the test's own folder."""
    return Runner(tmp_path)
