"""Modules beside a submitted script are pickled by value if workers can't import them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import helpers.words
import lonely
import ray.cloudpickle as cloudpickle
from penstock.actors.client.executor import ship_script_modules

ship_script_modules()
print(*sorted(cloudpickle.list_registry_pickle_by_value()))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a program in a subfolder, and a module and a package beside it."""
    program = tmp_path / "jobs" / "program.py"
    (program.parent / "helpers").mkdir(parents=True)
    program.write_text(PROGRAM)
    (program.parent / "lonely.py").write_text("")
    (program.parent / "helpers" / "__init__.py").write_text("")
    (program.parent / "helpers" / "words.py").write_text("")
    return tmp_path


def shipped(program: Path, folder: Path, runtime_env: dict[str, str] | None) -> list[str]:
    """The modules that a program in this folder pickles by value."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    if runtime_env is not None:
        environment["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps({"runtime_env": runtime_env})
    done = subprocess.run(
        [sys.executable, program], cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_modules_beside_a_script_in_a_subfolder_are_shipped(project: Path) -> None:
    environment = {"working_dir": "gcs://package.zip"}
    modules = shipped(project / "jobs" / "program.py", project, environment)
    assert modules == ["helpers", "helpers.words", "lonely"]


def test_nothing_is_shipped_where_workers_get_the_folder_of_the_script(project: Path) -> None:
    program = project / "jobs" / "program.py"
    assert shipped(program, project, None) == []
    assert shipped(program, project, {}) == []
    assert shipped(program, program.parent, {"working_dir": "gcs://package.zip"}) == []


def test_installed_packages_are_not_shipped_from_the_kernel_of_a_notebook(tmp_path: Path) -> None:
    import ipykernel_launcher

    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        f"import sys, ray.cloudpickle as cloudpickle; sys.argv[0] = {ipykernel_launcher.__file__!r}\n"
        "from penstock.actors.client.executor import ship_script_modules\n"
        "ship_script_modules()\n"
        "print(*sorted(cloudpickle.list_registry_pickle_by_value()))\n"
    )
    assert shipped(kernel, tmp_path, {"working_dir": "gcs://package.zip"}) == []
