"""The floors of the code: `make lint` sees every file, and fails when something imports upwards."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("runtime", "actors", "bridge")

#: An import that goes up, for each contract that can see it.
UPWARDS = [
    ("runtime/errors.py", "penstock.runtime.record.elements"),
    ("runtime/record/elements.py", "penstock.runtime.graph.stream_graph"),
    ("runtime/barrier/handler.py", "penstock.runtime.checkpoint.log.records"),
    ("runtime/checkpoint/log/records.py", "penstock.runtime.checkpoint.coordinator.coordinator"),
    ("runtime/operators/timers.py", "penstock.runtime.operators.windows.trigger"),
    ("runtime/job/scheduler.py", "penstock.actors.client.executor"),
    ("actors/shared/registry.py", "penstock.actors.subtask.metrics"),
    ("actors/subtask/attempt.py", "penstock.actors.master.job_runner"),
    ("actors/client/executor.py", "penstock.bridge.session.session"),
    ("bridge/ray_data.py", "penstock.bridge.results_out"),
    ("runtime/graph/stream_graph.py", "penstock.windows"),
]


def modules_on_disk() -> set[str]:
    found = {"penstock"}
    for file in (ROOT / "src" / "penstock").glob("[!_]*.py"):
        found.add(f"penstock.{file.stem}")
    for file in (ROOT / "src" / "penstock" / "testing").glob("*.py"):
        found.add("penstock.testing" + ("" if file.stem == "__init__" else f".{file.stem}"))
    found |= {"penstock._public_names", "penstock._version"}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found.add(".".join(("penstock", *(parts[:-1] if parts[-1] == "__init__" else parts))))
    return found


def lint(environment: dict[str, str] | None = None, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).parent / "lint-imports"),
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
    ]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_linter_sees_every_module() -> None:
    graph = grimp.build_graph("penstock", cache_dir=None)
    assert set(graph.modules) == modules_on_disk()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_says_in_its_door_what_lives_there(package: str) -> None:
    folders = {file.parent for file in (ROOT / package).rglob("*.py")}
    silent = [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "__init__.py").exists()
        or len((ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "").splitlines()) < 3
    ]
    assert silent == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The linter's output for a copy of the code that has all these imports."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copytree(ROOT / "src" / "penstock", folder / "penstock")
    for importer, imported in UPWARDS:
        with (folder / "penstock" / importer).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {imported}\n")
    planted = lint({**os.environ, "PYTHONPATH": str(folder)}, folder)
    assert planted.returncode == 1, planted.stdout + planted.stderr
    return " ".join(planted.stdout.split())  # it wraps lines


@pytest.mark.parametrize(("importer", "imported"), UPWARDS, ids=[f"{a}: {b}" for a, b in UPWARDS])
def test_an_import_that_goes_up_is_found(report: str, importer: str, imported: str) -> None:
    assert f"{module_of(importer)} -> {imported} " in report


def module_of(file: str) -> str:
    return ".".join(("penstock", *Path(file).with_suffix("").parts))


def test_the_code_as_it_stands_passes() -> None:
    passed = lint()
    assert passed.returncode == 0, passed.stdout + passed.stderr
