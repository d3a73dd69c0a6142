"""The version has one source, and the set-up of the checkout prints no warning of pip."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import penstock
from penstock.actors.command_line.checks import CHECK_GROUP

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_of_the_project_is_that_of_the_package() -> None:
    assert penstock.__version__ == PROJECT["version"], "run make: the installed package is another version"
    assert "__version__" not in penstock.__all__


def test_the_newest_heading_of_the_changelog_has_the_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == PROJECT["version"]


def test_each_installation_of_the_set_up_is_pinned_and_builds_in_the_standard_way() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (options,) = re.findall(r"^QUIETLY := (.*)", makefile, re.MULTILINE)
    assert {"--quiet", "--use-pep517", "--constraint constraints.txt"} <= set(
        re.findall(r"--[\w-]+(?: [\w.]+)?", options)
    )
    installations = re.findall(r"pip install \$?\(?(\w+)", makefile)
    assert installations == ["QUIETLY"] * len(installations) != []


@pytest.mark.parametrize("group", ["penstock.checks", "penstock.executors"])
def test_each_entry_point_exists(group: str) -> None:
    declared = PROJECT["entry-points"][group]
    assert all(callable(EntryPoint(name, place, group).load()) for name, place in declared.items())


def test_the_doctor_looks_for_checks_in_the_group_that_is_declared() -> None:
    assert CHECK_GROUP in PROJECT["entry-points"]
