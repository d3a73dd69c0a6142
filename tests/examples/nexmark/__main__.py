"""Runs one query in the simulation: `python tests/examples/nexmark q5-arrow --course failures --seed 7`."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS.parent / "examples" / "nexmark"), str(TESTS)]

from pipelines.harness.command import main  # noqa: E402
from query_pipelines import NAMES, PROGRAM, load  # noqa: E402 (the paths come first)

sys.exit(main(NAMES, load, PROGRAM))
