"""The wheel alone, in a fresh environment of each Python, runs the first program of the README."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"

#: The versions that the wheel supports, as far as Ray has wheels for them.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

# `tests/packaging` installs the wheel without its dependencies, and compares these with the imports.
pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(900)]


def first_program() -> tuple[str, str]:
    """The program, and the output that the README shows below it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```\n.*?^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1], found[2]


def interpreter(version: str) -> str | None:
    """A Python of this version: the one that runs, one on the path, or one of pyenv."""
    if version == OWN:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for python in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))):
        try:
            # Not every interpreter on the path starts: pyenv's commands may stand for no version.
            done = subprocess.run([python, "-c", "import ssl, sqlite3"], capture_output=True)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return python
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    for name in ("runtime", "actors", "bridge", "src"):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    built = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, checkout]
    subprocess.run(built, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module", params=PYTHONS)
def python(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what its metadata asks for: no extra, no tool."""
    base = interpreter(request.param)
    if base is None:
        pytest.skip(f"there is no Python {request.param} on this machine")
    folder = tmp_path_factory.mktemp("clean")
    python = folder / "venv" / "bin" / "python"
    if base == sys.executable:
        subprocess.run([base, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python]
    else:  # this environment's pip may be too old for it
        subprocess.run([base, "-m", "venv", folder / "venv"], check=True)
        pip = [python, "-m", "pip"]
    # Compiling would take long: there are thousands of modules that nothing imports.
    quietly = ["--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*pip, "install", "--no-compile", *quietly, wheel], check=True)
    return python


def without_settings_of_this_python() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}


def test_the_first_program_runs_where_the_wheel_alone_is_installed(python: Path, tmp_path: Path) -> None:
    program, shown = first_program()
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        done = subprocess.run(
            [python, "program.py"],
            cwd=tmp_path,
            env=without_settings_of_this_python() | {"RAY_TMPDIR": ray_folder},
            capture_output=True,
            text=True,
            timeout=400,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


def test_the_command_line_says_the_version_of_the_wheel(python: Path, wheel: Path) -> None:
    done = subprocess.run(
        [python.parent / "penstock", "--version"],
        env=without_settings_of_this_python(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert wheel.name.split("-")[1] in done.stdout


def test_the_doctor_finds_that_jobs_run_there_without_any_extra(python: Path, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        done = subprocess.run(
            [python.parent / "penstock", "doctor", "--json", "--storage", tmp_path / "checkpoints"],
            cwd=tmp_path,
            env=without_settings_of_this_python() | {"RAY_TMPDIR": ray_folder},
            capture_output=True,
            text=True,
            timeout=400,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    for name in ("Python", "Ray", "Arrow", "dependencies", "storage", "cluster"):
        assert checks[name] == "ok", name
    assert checks["spark"] == checks["kafka"] == checks["rocksdb"] == "missing"
    assert "Java" not in checks
