"""Explanations of mutants are about code that is there."""

from __future__ import annotations

import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def test_each_explained_survivor_is_a_line_of_its_module() -> None:
    written = tomllib.loads((HERE / "explained.toml").read_text(encoding="utf-8"))
    for entry in written.get("survivor", ()):
        lines = {line.strip() for line in (ROOT / entry["module"]).read_text(encoding="utf-8").splitlines()}
        assert entry["before"] in lines, f"{entry['module']} has no line {entry['before']!r} any more"
        assert entry["why"].strip()


def test_rooms_and_their_tests_are_there() -> None:
    rooms = tomllib.loads((HERE / "rooms.toml").read_text(encoding="utf-8"))
    for room in rooms.values():
        assert list((ROOT / room["folder"]).glob("*.py"))
        for tests in (*room["tests"], *room["slow_tests"]):
            assert not tests.startswith("tests/") or (ROOT / tests).exists()
        for module in room.get("left_out", ()):
            assert (ROOT / room["folder"] / module).exists(), f"{module} is left out and is not there"


def test_table_has_each_module_once_and_explains_each_survivor() -> None:
    table = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    counts, _, survivors = table.partition("## Survivors")
    modules = [row.split("`")[1] for row in counts.splitlines() if row.startswith("| `")]
    assert len(modules) == len(set(modules))
    assert [module for module in modules if not (ROOT / module).exists()] == []
    assert "**not explained**" not in survivors
