"""The dictionary for people who come from Flink is whole, and every name on Penstock's side exists.

`flink_names.txt` lists the names of Flink's checkpointing and the versions that have them. It was made of
Flink's releases. Names of Penstock are looked up in its code, never in a list.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer
from door import public_modules

from penstock.actors.command_line.app import app

ROOT = Path(__file__).resolve().parents[2]
DICTIONARY = ROOT / "docs" / "flink.md"
VERSIONS = ("1.7", "1.10", "1.11", "2.3")

_CODE = re.compile(r"`([^`]+)`")
_LINKED = re.compile(r"\[`([^`]+)`\]\(\.\./([^)#\s]+)\)")
_CLASS = re.compile(r"(?!None\Z|True\Z|False\Z)[A-Z]\w*[a-z]\w*\Z")
_CALL = re.compile(r"(\w+)\((\w+)=")
_METHOD_CALL = re.compile(r"(\w+)\.(\w+)\((\w+)=")
_COMMAND = re.compile(r"penstock ([a-z]+)(.*)")


@dataclass(frozen=True)
class Row:
    """A row of the dictionary."""

    line: int
    flink: str
    versions: str
    ours: str
    why: str

    @property
    def names(self) -> list[str]:
        """The names of Flink."""
        return _CODE.findall(self.flink)

    def __str__(self) -> str:
        return f"line {self.line}: {self.flink}"


def rows(text: str) -> Iterator[Row]:
    is_dictionary = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            is_dictionary = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if cells[0] == "Flink":
            assert cells[1] == "versions", f"line {number}: not the head of a table"
            is_dictionary = True
        elif is_dictionary and not line.startswith("| ---"):
            assert len(cells) == 4, f"line {number} has {len(cells)} cells"
            yield Row(number, *cells)


@functools.cache
def dictionary() -> tuple[Row, ...]:
    return tuple(rows(DICTIONARY.read_text(encoding="utf-8")))


@functools.cache
def names_of_flink() -> dict[str, tuple[str, ...]]:
    """The versions that have a class or setting of Flink."""
    text = (Path(__file__).parent / "flink_names.txt").read_text(encoding="utf-8")
    entries = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    assert len(entries) == len({name for name, _ in entries}), "a name is listed twice"
    return {name: tuple(versions.split()) for name, versions in entries}


@functools.cache
def definitions(path: Path) -> frozenset[str]:
    """The definitions of a file: `name`, and `Class.member`.

    Members are methods, fields and attributes set in methods.
    """
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found.update(_bound(node))
        if isinstance(node, ast.ClassDef):
            members = {name for each in node.body for name in _bound(each)}
            members.update(
                target.attr
                for target in ast.walk(node)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            )
            found.update(f"{node.name}.{member}" for member in members)
    return frozenset(found)


def _bound(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


@functools.cache
def classes_of_penstock() -> frozenset[str]:
    return frozenset(
        name
        for package in ("runtime", "actors", "bridge")
        for path in (ROOT / package).rglob("*.py")
        for name in definitions(path)
        if _CLASS.match(name)
    )


def is_public(name: str) -> bool:
    """Whether `Name`, `Name.member`, `Name.method(argument=)` or `Name(field=...)` is public."""
    if found := _METHOD_CALL.match(name):
        homes = [getattr(module, found[1]) for module in public_modules() if found[1] in module.__all__]
        methods = [getattr(home, found[2]) for home in homes if hasattr(home, found[2])]
        return any(found[3] in inspect.signature(method).parameters for method in methods)
    call = _CALL.match(name)
    head, _, member = (f"{call[1]}.{call[2]}" if call else name.removesuffix("()")).partition(".")
    for module in public_modules():
        if head in module.__all__:
            value = getattr(module, head)
            has_field = member in getattr(value, "__dataclass_fields__", {})
            return not member or has_field or (call is None and hasattr(value, member))
    return False


def is_command(name: str) -> bool:
    """Whether `penstock checkpoint JOB --full` names a command, and options that it has."""
    found = _COMMAND.match(name)
    if found is None:
        return False
    command = typer.main.get_command(app).commands.get(found[1])  # type: ignore[attr-defined]
    if command is None:
        return False
    options = {option for parameter in command.params for option in parameter.opts}
    return set(re.findall(r"--[a-z-]+", found[2])) <= options


def unknown_links(cell: str) -> list[str]:
    """The linked names in a cell that their file does not define."""
    return [
        f"{name} in {path}"
        for name, path in _LINKED.findall(cell)
        if not (ROOT / path).exists() or name not in definitions(ROOT / path)
    ]


def unknown_in(cell: str) -> list[str]:
    """The names in a cell that Penstock does not have."""
    written = _CODE.findall(_LINKED.sub("", cell))
    return unknown_links(cell) + [name for name in written if not is_command(name) and not is_public(name)]


def unknown_in_text(cell: str) -> list[str]:
    """Classes that neither side has, and settings and commands that Penstock does not have."""
    unknown = []
    for name in _CODE.findall(_LINKED.sub("", cell)):
        head = re.split(r"[.(]", name)[0]
        if _CALL.match(name) or name.startswith("penstock "):
            unknown.extend(unknown_in(f"`{name}`"))
        elif _CLASS.match(head) and head not in names_of_flink() and head not in classes_of_penstock():
            unknown.append(name)
    return unknown + unknown_links(cell)


def span(row: Row) -> str:
    """The versions that have at least one name of a row, as the row should say it."""
    having = {version for name in row.names for version in names_of_flink().get(name, ())}
    present = [version for version in VERSIONS if version in having]
    first, last = VERSIONS.index(present[0]), VERSIONS.index(present[-1])
    has_no_gap = present == list(VERSIONS[first : last + 1])
    return f"{present[0]} to {present[-1]}" if has_no_gap and last > first else ", ".join(present)


def test_the_names_of_flink_are_listed_by_version() -> None:
    names = names_of_flink()
    assert len(names) > 300
    assert {version for versions in names.values() for version in versions} == set(VERSIONS)


def test_every_name_of_flink_is_in_the_dictionary_once() -> None:
    counted = Counter(name for row in dictionary() for name in row.names)
    assert [name for name, count in counted.items() if count > 1] == []
    assert sorted(names_of_flink().keys() - counted.keys()) == []
    assert sorted(counted.keys() - names_of_flink().keys()) == []


def test_a_row_says_which_versions_have_its_names() -> None:
    wrong = [f"{row}: {span(row)}" for row in dictionary() if row.versions != span(row)]
    assert wrong == []


def test_the_names_of_penstock_exist() -> None:
    assert [f"{row}: {name}" for row in dictionary() for name in unknown_in(row.ours)] == []


def test_each_row_has_a_name_here_or_says_why_there_is_none() -> None:
    assert [str(row) for row in dictionary() if row.ours != "none" and not _CODE.search(row.ours)] == []
    assert [str(row) for row in dictionary() if row.ours == "none" and len(row.why.split()) < 4] == []


def test_the_last_column_names_only_what_exists() -> None:
    assert [f"{row}: {name}" for row in dictionary() for name in unknown_in_text(row.why)] == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert unknown_in("`Checkpointing(evry=10)`, `penstock chekpoints JOB`, `Checkpointing(every=10)`") == [
        "Checkpointing(evry=10)",
        "penstock chekpoints JOB",
    ]
    assert unknown_in("[`CheckpointBarrierAlligner`](../runtime/barrier/aligner.py)") != []
    assert unknown_in("[`CheckpointBarrierAligner.pending`](../runtime/barrier/aligner.py)") == []
    assert unknown_in("`penstock checkpoints JOB --jsn`") == ["penstock checkpoints JOB --jsn"]
    assert unknown_in("`StreamEnvironment.submit(restore_from=...)`") == []
    assert unknown_in("`StreamEnvironment.submit(restor_from=...)`") != []
