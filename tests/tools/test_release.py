"""`make release` refuses a checkout that is not a release; `tests/on_ray/test_release.py` builds one."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"

if str(TOOLS) not in sys.path:
    sys.path.append(str(TOOLS))

release = importlib.import_module("release")

TODAY = date(2026, 11, 30)
CHANGELOG = """\
# Changelog

## 1.2.0 (2026-11-30)

What this version is about.

### Streams

- Something new (`docs/streams.md`).
- Something else.

## 1.1.0 (2026-10-01)

### Older

Free text
"""


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A committed checkout that is ready to be released, as far as the checks look."""
    data = tmp_path / "tests" / "compatibility" / "data" / "v1_2"
    data.mkdir(parents=True)
    for name in release.FIXTURES:
        (data / name).write_text("kept")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Release")
    return tmp_path


def test_a_committed_checkout_with_a_dated_changelog_is_a_release(checkout: Path) -> None:
    assert list(release.refusals(checkout, TODAY)) == []


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("1.2.0 (2026", "1.3.0 (2026", r"`## 1.3.0 \(2026-11-30\)`, and pyproject.toml has version 1.2.0"),
        ("1.2.0 (2026-11-30)", "1.2.0 (unreleased)", r"has no date. Write `## 1.2.0 \(2026-11-30\)`"),
        ("1.2.0 (2026-11-30)", "1.2.0", "begins with `## 1.2.0`"),
        ("(2026-11-30)", "(2026-12-01)", "a date in the future"),
        ("- Something else.", "- Something\n  else.", "CHANGELOG.md:10: a change is one line"),
        ("- Something else.", "- Something else", "CHANGELOG.md:10: a change is one line"),
        ("- Something else.", "- Something new (`docs/streams.md`).", "CHANGELOG.md:10: repeats line 9"),
    ],
)
def test_a_changelog_that_does_not_fit_is_refused(checkout: Path, before: str, after: str, why: str) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace(before, after))
    git(checkout, "commit", "--quiet", "--all", "--message", "Change")
    reasons = list(release.refusals(checkout, TODAY))
    assert any(re.search(why, reason) for reason in reasons), reasons


@pytest.mark.parametrize("change", [lambda folder: folder / "new.py", lambda folder: folder / "CHANGELOG.md"])
def test_a_checkout_with_changes_is_refused(checkout: Path, change: Callable[[Path], Path]) -> None:
    file = change(checkout)
    with file.open("a") as text:
        text.write("\n")
    (reason,) = release.refusals(checkout, TODAY)
    assert f"not committed: {'??' if file.name == 'new.py' else ' M'} {file.name}" in reason


def test_a_version_without_its_snapshots_is_refused(checkout: Path) -> None:
    git(checkout, "rm", "--quiet", "tests/compatibility/data/v1_2/values.json")
    git(checkout, "commit", "--quiet", "--message", "Lose them")
    (reason,) = release.refusals(checkout, TODAY)
    assert "v1_2 lacks values.json. Run tests/compatibility/make_values.py v1_2" in reason


def test_a_refusal_builds_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(checkout / "tests")
    assert release.main(checkout) == 1
    assert "this checkout is not a release:\n- " in capsys.readouterr().err
    assert not (checkout / "dist").exists()


def test_the_changes_of_this_version_are_one_line_each() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert list(release.wrong_entries(changelog)) == []


def test_the_data_of_this_version_is_kept() -> None:
    assert list(release.missing_fixtures(ROOT, release.version_of(ROOT))) == []
    assert all((ROOT / tests).exists() for tests in release.COMPATIBILITY)
