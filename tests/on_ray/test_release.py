"""`make release` builds the wheel, the sdist and the documentation of a clone of this checkout."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.timeout(3_000)
def test_a_dated_clone_becomes_a_release(tmp_path: Path) -> None:
    """The tests of compatibility, the build and the documentation run in the clone."""
    pytest.importorskip("sphinx", reason="`make docs` installs Sphinx")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(ROOT), str(clone))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    dated = re.sub(r"^## .*", f"## {version} (2026-01-01)", changelog, count=1, flags=re.MULTILINE)
    (clone / "CHANGELOG.md").write_text(dated, encoding="utf-8")
    git(clone, "commit", "--quiet", "--all", "--allow-empty", "--message", "Date the release")

    done = subprocess.run(
        [sys.executable, "tools/release.py"],
        cwd=clone,
        env=os.environ | {"PYTHONPATH": str(clone / "src")},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    built = {file.name for file in (clone / "dist").iterdir()}
    files = {f"penstock-{version}{end}" for end in ("-py3-none-any.whl", ".tar.gz", "-docs.tar.gz")}
    assert built == files | {"SHA256SUMS"}
    with tarfile.open(clone / "dist" / f"penstock-{version}-docs.tar.gz") as site:
        pages = {member.name.partition("/")[2] for member in site.getmembers()}
    assert {"index.html", "tutorial.html", "searchindex.js", "llms.txt"} <= pages
    assert not any(name.startswith(".") for name in pages), "files that only Sphinx needs"
    for line in (clone / "dist" / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((clone / "dist" / name).read_bytes()).hexdigest() == digest
    assert git(clone, "status", "--porcelain") == "", "the build changes no committed file"
