"""`penstock.runtime` exports its public names, lazily."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.runtime as runtime

INIT = Path(runtime.__file__)


def loaded_after(statement: str) -> set[str]:
    """The modules of the runtime that a fresh interpreter has after a statement."""
    show = "import sys; print(*[m for m in sys.modules if m.startswith('penstock.runtime')])"
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", runtime.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(runtime, name).__doc__ or name == "Batch"


def test_type_checkers_are_told_the_same_places() -> None:
    told = {}
    [checking] = [node for node in ast.parse(INIT.read_text()).body if isinstance(node, ast.If)]
    for node in ast.walk(checking):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and module.startswith("penstock.runtime."):
            for alias in node.names:
                assert alias.asname == alias.name, "a re-export needs `as`"
                told[alias.name] = module.removeprefix("penstock.runtime.")
    assert told == runtime._HOME
    assert sorted(told) == runtime.__all__


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="'StreamEnvironment'"):
        _ = runtime.StreamEnviroment


def test_public_names_are_listed_for_completion() -> None:
    assert set(runtime.__all__) <= set(dir(runtime))


def test_importing_the_package_loads_none_of_its_parts() -> None:
    assert loaded_after("import penstock.runtime") == {"penstock.runtime", "penstock.runtime.lazy_names"}


def test_building_a_graph_loads_no_input_and_output() -> None:
    loaded = loaded_after("from penstock.runtime import StreamEnvironment; StreamEnvironment('a')")
    assert "penstock.runtime.graph.stream_environment" in loaded
    assert not [name for name in loaded if name.startswith("penstock.runtime.io")]
