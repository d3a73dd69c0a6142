"""`penstock.actors` exports its public names, lazily: a subtask's process loads what a subtask needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.actors as actors

PACKAGE = Path(actors.__file__).parent


@pytest.mark.parametrize("name", actors.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(actors, name).__doc__


def test_type_checkers_are_told_the_same_places() -> None:
    told = {}
    [checking] = [
        node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If)
    ]
    for node in ast.walk(checking):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and module.startswith("penstock.actors."):
            for alias in node.names:
                assert alias.asname == alias.name, "a re-export needs `as`"
                told[alias.name] = module.removeprefix("penstock.actors.")
    assert told == actors._HOME
    assert sorted(told) == actors.__all__


def test_no_module_hides_a_public_name() -> None:
    assert not {path.stem for path in PACKAGE.glob("*.py")} & set(actors.__all__)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="'RayJobHandle'"):
        _ = actors.RayJobHandel


def test_public_names_are_listed_for_completion() -> None:
    assert set(actors.__all__) <= set(dir(actors))


def test_a_subtask_loads_nothing_of_the_job_master_of_programs_or_of_the_command_line() -> None:
    show = "import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import penstock.actors.subtask_actor\n{show}"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "penstock.actors.attempt" in loaded
    for part in (
        "actors.job_master",
        "actors.executor",
        "runtime.job.scheduler",
        "runtime.graph.data_stream",
    ):
        assert f"penstock.{part}" not in loaded
    assert not {"rich", "typer", "pandas", "pyarrow.parquet"} & loaded
