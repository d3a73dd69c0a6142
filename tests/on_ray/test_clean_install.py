"""The wheel alone, in a fresh environment, runs the first program of the README."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = "to be or not to be\nthat is the question\n"


def first_program() -> str:
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what its metadata asks for: no extra, no tool."""
    folder = tmp_path_factory.mktemp("clean")
    checkout = folder / "checkout"
    for name in ("runtime", "actors", "bridge", "src"):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    built = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, checkout]
    subprocess.run(built, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    # With this environment's pip, and without compiling thousands of modules that nothing imports.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
    quietly = ["--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*pip, *quietly, wheel], check=True)
    return python


@pytest.mark.ray
@pytest.mark.timeout(900)  # pip installs all dependencies first
def test_the_first_program_runs_where_the_wheel_alone_is_installed(python: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "hamlet.txt").write_text(TEXT)
    (tmp_path / "program.py").write_text(first_program())
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        done = subprocess.run(
            [python, "program.py"],
            cwd=tmp_path,
            env=kept | {"RAY_TMPDIR": ray_folder},
            capture_output=True,
            text=True,
            timeout=400,
        )

    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = {}
    for part in sorted((tmp_path / "counts").glob("*")):
        for line in part.read_text().splitlines():
            row = json.loads(line)
            counts[row["word"]] = max(row["count"], counts.get(row["word"], 0))
    assert counts == Counter(TEXT.split())


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_the_doctor_finds_that_jobs_run_there_without_any_extra(python: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        done = subprocess.run(
            [python.parent / "penstock", "doctor", "--json", "--storage", tmp_path / "checkpoints"],
            cwd=tmp_path,
            env=kept | {"RAY_TMPDIR": ray_folder},
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
