"""Runs one pipeline in the simulation: `python tests/pipelines word_count --course failures --seed 7`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
runpy.run_module("pipelines.harness.command", run_name="__main__")
