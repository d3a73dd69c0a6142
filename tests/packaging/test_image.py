"""The Dockerfile is clean, and its commands install the wheel. No engine is needed for either."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def stages() -> dict[str, str]:
    """The commands of each `RUN`, by the name of its stage."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", "")
    found = re.findall(r"^FROM \S+ AS (\w+)$(.*?)(?=^FROM|\Z)", text, re.MULTILINE | re.DOTALL)
    return {name: " && ".join(re.findall(r"^RUN (.*)$", body, re.MULTILINE)) for name, body in found}


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--failure-threshold", "style", DOCKERFILE],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_plain_image_has_no_spark_and_the_variant_adds_it() -> None:
    plain, spark = stages()["penstock"], stages()["spark"]
    assert "[spark]" not in plain
    assert '"$(echo /tmp/penstock/penstock-*.whl)[spark]"' in spark
    assert "FROM penstock AS spark" in DOCKERFILE.read_text(encoding="utf-8")


@pytest.mark.long  # downloads PySpark
@pytest.mark.timeout(3_000)
def test_the_commands_of_both_images_install_what_they_name(tmp_path: Path) -> None:
    """In a fresh environment, with its folders instead of the image's."""
    packages, home = tmp_path / "penstock", tmp_path / "home"
    home.mkdir()
    built = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", packages]
    subprocess.run([*built, copy_of_the_checkout(tmp_path / "checkout")], check=True, capture_output=True)
    shutil.copy(ROOT / "constraints.txt", packages)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin"

    def run(command: str) -> str:
        for there, here in (("/tmp/penstock", packages), ("/home/ray", home)):
            command = command.replace(there, str(here))
        done = subprocess.run(
            ["bash", "-ec", command.replace(" --no-cache-dir", "")],
            env={"PATH": path, "HOME": str(home)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(stages()["penstock"])
    assert "missing" in run("python -c 'import pyspark' 2>/dev/null || echo missing")
    assert "penstock" in run("penstock --version")
    run(stages()["spark"])
    run("python -c 'import raydp, pyspark, penstock.spark'")
    assert 'version "17' in run("/home/ray/java/bin/java -version")


def copy_of_the_checkout(target: Path) -> Path:
    for name in ("runtime", "actors", "bridge", "src"):
        shutil.copytree(ROOT / name, target / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target
