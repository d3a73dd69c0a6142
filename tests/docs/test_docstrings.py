"""Every example in a docstring runs, and importing a module starts nothing."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def module_names() -> list[str]:
    names = []
    for part in ("runtime", "actors", "bridge"):
        for file in sorted((ROOT / part).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(("penstock", *(p for p in parts if p != "__init__"))))
    return names


def drawn_jobs() -> list[str]:
    """Modules of the simulation's own jobs, which tests import from their folder."""
    return [
        f"simulated_jobs.{file.stem}"
        for file in sorted((ROOT / "tests" / "simulated_jobs").glob("[a-z]*.py"))
    ]


def has_examples(module: ModuleType) -> bool:
    """Whether to look closer: to search a module takes longer than to import it."""
    return ">>>" in Path(str(module.__file__)).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", module_names() + drawn_jobs())
def test_examples_in_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(name)
    if not has_examples(module):
        return
    results = doctest.testmod(module)
    assert results.failed == 0, f"{results.failed} of {results.attempted} examples in {name} are wrong"


def test_the_examples_are_found() -> None:
    finder = doctest.DocTestFinder()
    modules = filter(has_examples, map(importlib.import_module, module_names()))
    found = sum(len(test.examples) for module in modules for test in finder.find(module))
    assert found > 100


def test_importing_everything_starts_no_ray() -> None:
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "import ray\n"
        "assert not ray.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", program, *module_names()], check=True, timeout=60)
