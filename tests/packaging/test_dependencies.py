"""Imports of the package are declared: as a dependency, or as an extra that is imported where it is used."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FILES = sorted(file for part in ("runtime", "actors", "bridge") for file in (ROOT / part).rglob("*.py"))
PROVIDERS = packages_distributions()
#: Pydantic requires one exact version of its core.
PARTS = {"pydantic_core": ["pydantic"]}
#: Folders that are loaded only where an extra is in use, and its modules: tests that users inherit,
#: clients of `KafkaWorld`, and connections to PostgreSQL.
WITH_EXTRAS = [
    ("runtime/testing/connectors/", "pytest"),
    ("runtime/io/connectors/kafka/simulated/", "confluent_kafka"),
    ("runtime/io/connectors/kafka/simulated/", "kafka"),
    ("runtime/io/connectors/sql/postgres", "psycopg"),
    ("runtime/io/connectors/sql/cdc/", "psycopg"),
]
#: Py4J comes with the extra for Spark. IPython is looked for and used only where a notebook runs.
OTHERS = {"py4j", "ipython"}


def distribution_names(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[\[<>=!~; ]", requirement)[0]) for requirement in requirements}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


DECLARED = distribution_names(PROJECT["dependencies"])
EXTRAS = {
    name
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra not in {"dev", "mutants"}
    for name in distribution_names(requirements)
}


def imported(tree: ast.AST, *, at_import: bool) -> Iterator[tuple[int, str]]:
    """Line and top-level module of imports: those that run with the module, or also those of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and at_import:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.lineno, node.module.partition(".")[0]
        else:
            yield from imported(node, at_import=at_import)


def distributions_of(file: Path, *, at_import: bool) -> Iterator[tuple[str, set[str]]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for line, module in imported(tree, at_import=at_import):
        if module in sys.stdlib_module_names or module == "penstock":
            continue
        names = {canonical(name) for name in PARTS.get(module) or PROVIDERS.get(module, [module])}
        yield f"{file.relative_to(ROOT)}:{line} imports {module}", names


def test_every_import_is_of_a_declared_dependency_or_extra() -> None:
    undeclared = [
        place
        for file in FILES
        for place, names in distributions_of(file, at_import=False)
        if not names & (DECLARED | EXTRAS | OTHERS)
    ]
    assert undeclared == []


@pytest.mark.parametrize("part", ["runtime", "actors"])
def test_what_runs_without_extras_imports_them_only_where_it_uses_them(part: str) -> None:
    early = [
        place
        for file in FILES
        if file.relative_to(ROOT).parts[0] == part
        for place, names in distributions_of(file, at_import=True)
        if not names & DECLARED
        and not any(place.startswith(folder) and place.endswith(f" {name}") for folder, name in WITH_EXTRAS)
    ]
    assert early == []


def test_no_ray_is_admitted_whose_local_clusters_ask_for_no_token() -> None:
    """Ray has token authentication since 2.52, and turns it on for local clusters since 2.59."""
    (ray,) = (Requirement(each) for each in PROJECT["dependencies"] if each.startswith("ray"))
    refused, admitted = ("2.49.0", "2.52.0", "2.58.1"), ("2.59.0", "2.60.0")
    assert not [version for version in refused if ray.specifier.contains(version)]
    assert all(ray.specifier.contains(version) for version in admitted)
