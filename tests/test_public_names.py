"""The packages export their public names, lazily."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import penstock.actors as actors
import penstock.bridge as bridge
import penstock.runtime as runtime
import penstock.runtime.io.connectors as connectors

PACKAGES = [runtime, actors, bridge, connectors]


def loaded_after(statement: str) -> set[str]:
    """The modules of Penstock that a fresh interpreter has after a statement."""
    show = "import sys; print(*[m for m in sys.modules if m.startswith('penstock')])"
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in PACKAGES for name in package.__all__]
)
def test_every_public_name_can_be_imported(package: ModuleType, name: str) -> None:
    assert getattr(package, name).__doc__ or name == "Batch"


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_are_told_the_same_places(package: ModuleType) -> None:
    told = {}
    within = f"{package.__name__}."
    [checking] = [
        node for node in ast.parse(Path(package.__file__).read_text()).body if isinstance(node, ast.If)
    ]
    for node in ast.walk(checking):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(within):
            for alias in node.names:
                assert alias.asname == alias.name, "a re-export needs `as`"
                told[alias.name] = node.module.removeprefix(within)
    assert told == package._HOME
    assert sorted(told) == package.__all__


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_hides_a_public_name(package: ModuleType) -> None:
    """Once a module is imported, its package has an attribute of that name."""
    within = Path(package.__file__).parent
    assert not {path.stem for path in within.iterdir()} & set(package.__all__)


@pytest.mark.parametrize(
    ("package", "misspelt", "meant"),
    [
        (runtime, "StreamEnviroment", "StreamEnvironment"),
        (actors, "RayJobHandel", "RayJobHandle"),
        (bridge, "from_sparks", "from_spark"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(package: ModuleType, misspelt: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"'{meant}'"):
        getattr(package, misspelt)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_listed_for_completion(package: ModuleType) -> None:
    assert set(package.__all__) <= set(dir(package))


def test_importing_a_package_loads_none_of_its_parts() -> None:
    loaded = loaded_after("import penstock.actors; import penstock.bridge")
    alone = {"penstock.actors", "penstock.bridge", "penstock.runtime", "penstock.runtime.lazy_names"}
    assert loaded == {"penstock", *alone}


def test_building_a_graph_loads_no_input_and_output() -> None:
    loaded = loaded_after("from penstock.runtime import StreamEnvironment; StreamEnvironment('a')")
    assert "penstock.runtime.graph.stream_environment" in loaded
    assert not [name for name in loaded if name.startswith("penstock.runtime.io")]


def test_a_handle_of_a_job_master_loads_nothing_of_what_the_job_master_does() -> None:
    """Ray loads an actor's class where its handle comes to; each subtask has this one."""
    loaded = loaded_after("import penstock.actors.master.job_master")
    its_own = {"penstock.actors.master", "penstock.actors.master.job_master"}
    assert loaded == {*its_own, *loaded_after("import penstock.actors")}


def test_a_handle_of_a_subtask_loads_nothing_that_runs_one() -> None:
    loaded = loaded_after("import penstock.actors.subtask.subtask_actor")
    assert "penstock.runtime.task.descriptor" in loaded
    running = {
        "penstock.actors.subtask.attempt",
        "penstock.runtime.task.subtask",
        "penstock.runtime.io.storage",
    }
    assert not running & loaded


def test_a_sink_of_json_lines_loads_no_source_and_no_parquet() -> None:
    statement = "from penstock.runtime import FileSink; FileSink.json('/out'); import sys"
    loaded = loaded_after(f"{statement}; assert 'pyarrow.parquet' not in sys.modules")
    assert "penstock.runtime.io.connectors.file_sink" in loaded
    assert "penstock.runtime.io.connectors.file_source" not in loaded
