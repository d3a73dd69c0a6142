"""Every promise of the guide says what it needs, and names tests that exist and can be run."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "proofs.md"
HEAD = "| promise | what it needs | proof |"

_NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
_MARKED = re.compile(r"`([\w/]+\.py)::(test_\w+)`( \(long\))?")


@dataclass(frozen=True)
class Promise:
    """A row of the table."""

    line: int
    promise: str
    needs: str
    proof: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        """File below `tests/` and function of each test."""
        return _NAMED.findall(self.proof)

    def __str__(self) -> str:
        return f"line {self.line}: {self.promise}"


def promises_of(text: str) -> list[Promise]:
    """Rows of the only table of promises."""
    lines = text.splitlines()
    assert lines.count(HEAD) == 1, "the table of promises is gone, or is there twice"
    found = []
    for number, line in enumerate(lines[lines.index(HEAD) + 2 :], lines.index(HEAD) + 3):
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        assert len(cells) == 3, f"line {number} has {len(cells)} cells"
        found.append(Promise(number, *cells))
    return found


@functools.cache
def functions_of(file: str) -> dict[str, bool]:
    """The test functions of a file, with whether only `--run-long` runs them."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    is_long_file = any("pytest.mark.long" in ast.unparse(node) for node in marks)
    return {
        node.name: is_long_file
        or any(ast.unparse(each) == "pytest.mark.long" for each in node.decorator_list)
        for node in functions
        if node.name.startswith("test_")
    }


PROMISES = promises_of(GUIDE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.promise)
def test_promise_says_what_it_needs_and_is_proven_by_tests_that_exist(promise: Promise) -> None:
    assert promise.promise, promise
    assert promise.needs, promise
    assert promise.tests, f"{promise}: no test is named"
    missing = [f"{file}::{name}" for file, name in promise.tests if name not in functions_of(file)]
    assert missing == [], f"{promise}: no such test"


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.promise)
def test_proof_that_only_a_long_run_gives_says_so(promise: Promise) -> None:
    marked = {(file, name) for file, name, mark in _MARKED.findall(promise.proof) if mark}
    assert marked == {(file, name) for file, name in promise.tests if functions_of(file)[name]}, promise


def test_what_is_named_in_a_cell_is_a_test() -> None:
    """A misspelt reference would be no reference at all."""
    for promise in PROMISES:
        assert promise.proof.replace(" (long)", "").count("`") == 2 * len(promise.tests), promise
