"""Every example in a docstring runs, and importing a module starts nothing."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def module_names() -> list[str]:
    names = []
    for part in ("runtime", "actors", "bridge"):
        for file in sorted((ROOT / part).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(("penstock", *(p for p in parts if p != "__init__"))))
    return names


@pytest.mark.parametrize("name", module_names())
def test_examples_in_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module)
    assert results.failed == 0, f"{results.failed} of {results.attempted} examples in {name} are wrong"


def test_the_examples_are_found() -> None:
    finder = doctest.DocTestFinder()
    found = sum(
        len(test.examples) for name in module_names() for test in finder.find(importlib.import_module(name))
    )
    assert found > 100


def test_importing_everything_starts_no_ray() -> None:
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "import ray\n"
        "assert not ray.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", program, *module_names()], check=True, timeout=60)
