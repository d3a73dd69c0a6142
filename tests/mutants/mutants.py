"""`make mutants`: which faults in some rooms of the code no test notices.

    python tests/mutants/mutants.py [ROOM...]

Every module of a room is changed in one place at a time (`mutations`), and the room's tests run against it
(`warm`, `trial`). A mutant that no test kills is a survivor. Survivors are killed by a new test, or explained
in `explained.toml`: some mutants are the same program in other words. The table goes to `docs/mutants.md`;
the exit code is 0 only when every survivor is explained.

Outcomes are kept in `build/mutants`, by what the mutant does. A second run tries what is new and the
survivors that are not explained; `--fresh` forgets all of it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mutations import Mutant, mutants_of
from trial import Outcome, preload, try_mutant
from warm import Source, WarmTrials, try_mutants

HERE = Path(__file__).parent
KEPT = Path("build/mutants")
TABLE = Path("docs/mutants.md")
#: Seconds of processor time that quick and slow tests of a room may take; many times what they do take.
QUICK_SECONDS, SLOW_SECONDS = 20, 300


@dataclass(frozen=True, slots=True)
class Room:
    """A folder whose modules are mutated.

    Attributes:
        folder: The folder, from the top.
        tests: What pytest runs against each mutant, those first that are quick to fail.
        slow_tests: What it runs against those that survive.
        left_out: Modules that are not mutated.
    """

    folder: str
    tests: tuple[str, ...]
    slow_tests: tuple[str, ...]
    left_out: tuple[str, ...]

    def modules(self) -> list[str]:
        """Its modules, by name."""
        paths = sorted(Path(self.folder).glob("*.py"))
        return [str(path) for path in paths if path.name not in ("__init__.py", *self.left_out)]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a survivor is not a gap in the tests.

    Attributes:
        inside: Qualified name of the function that it is in; empty when the line stands in one place only.
    """

    module: str
    before: str
    after: str
    why: str
    inside: str = ""

    def explains(self, mutant: Mutant) -> bool:
        """Whether this is about a mutant."""
        if (self.module, self.before, self.after) != (mutant.module, mutant.before, mutant.after):
            return False
        function = _source(self.module).function_at(mutant.line) if self.inside else None
        return not self.inside or (function is not None and function[1] == self.inside)


@cache
def _source(module: str) -> Source:
    return Source(module)


@dataclass(frozen=True, slots=True)
class Tried:
    """A mutant and what became of it; `None` when it was not tried."""

    mutant: Mutant
    outcome: Outcome | None


def rooms() -> dict[str, Room]:
    """Rooms by name."""
    written = tomllib.loads((HERE / "rooms.toml").read_text(encoding="utf-8"))
    return {
        name: Room(
            room["folder"], tuple(room["tests"]), tuple(room["slow_tests"]), tuple(room.get("left_out", ()))
        )
        for name, room in written.items()
    }


def explanations() -> list[Explanation]:
    """Everything that `explained.toml` says."""
    written = tomllib.loads((HERE / "explained.toml").read_text(encoding="utf-8"))
    return [Explanation(**entry) for entry in written.get("survivor", ())]


@cache
def all_mutants(room: Room) -> tuple[Mutant, ...]:
    """The mutants of all modules of a room."""
    return tuple(mutant for module in room.modules() for mutant in _found(module))


def _found(module: str) -> list[Mutant]:
    """The mutants of a module, from a file if they were found before: that takes long."""
    source = Path(module).read_text(encoding="utf-8")
    how = version("cosmic-ray") + (HERE / "mutations.py").read_text(encoding="utf-8")
    name = hashlib.sha256(f"{module}\n{source}\n{how}".encode()).hexdigest()[:16]
    path = KEPT / "found" / f"{name}.gz"
    if path.exists():
        return [Mutant(**fields) for fields in json.loads(gzip.decompress(path.read_bytes()))]
    found = list(mutants_of(module, source))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps([asdict(mutant) for mutant in found]).encode()))
    return found


class Outcomes:
    """Outcomes of mutants in earlier runs, in a file with one line for each.

    Args:
        path: The file.
        begin: How many of its lines to leave out.
    """

    def __init__(self, path: Path, begin: int = 0) -> None:
        self._path = path
        self._known: dict[str, Outcome] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines()[begin:]:
                entry: dict[str, Any] = json.loads(line)
                self._known[entry["key"]] = Outcome(entry["outcome"])

    @property
    def are_none(self) -> bool:
        """Whether no mutant was ever tried."""
        return not self._known

    def of(self, mutant: Mutant) -> Outcome | None:
        """The outcome of a mutant, if it was tried."""
        return self._known.get(mutant.key)

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        """Keep an outcome, also if this run is ended before its time."""
        self._known[mutant.key] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": mutant.key, "outcome": outcome.value}) + "\n")


def run_room(room: Room, outcomes_path: Path, told: Sequence[Explanation]) -> None:
    """Try the mutants of a room that are not known to be killed: first those that go quickly."""
    outcomes = Outcomes(outcomes_path)
    due = [m for m in all_mutants(room) if outcomes.of(m) in (None, Outcome.SURVIVED)]
    due = [m for m in due if not (outcomes.of(m) and any(e.explains(m) for e in told))]
    if not due:
        return
    progress = os.fdopen(os.dup(1), "w")
    print(f"{room.folder}: {len(due)} mutants to try", file=progress, flush=True)

    def tell(text: str) -> None:
        print(text, file=progress, flush=True)

    def keep(mutant: Mutant, outcome: Outcome) -> None:
        outcomes.add(mutant, outcome)
        if outcome is not Outcome.KILLED:
            tell(f"{outcome.value}: {mutant.module}:{mutant.line}: {mutant.before}  ->  {mutant.after}")

    begun = len(outcomes_path.read_text(encoding="utf-8").splitlines()) if outcomes_path.exists() else 0
    if not try_mutants(WarmTrials(room.modules(), due, keep, tell), (*room.tests, *room.slow_tests)):
        msg = f"the tests of {room.folder} fail without a mutant"
        raise SystemExit(msg)
    tried = Outcomes(outcomes_path, begun)
    due = [mutant for mutant in due if tried.of(mutant) is None]
    tell(f"{room.folder}: {len(due)} mutants that need a new import")
    for mutant in due:
        outcome = try_mutant(mutant.module, mutant.source, room.tests, QUICK_SECONDS)
        if outcome is Outcome.SURVIVED and room.slow_tests:
            outcome = try_mutant(mutant.module, mutant.source, room.slow_tests, SLOW_SECONDS)
        keep(mutant, outcome)


def rows_of(text: str, folders: Sequence[str]) -> tuple[list[str], list[str]]:
    """The rows of an earlier table about these folders: the counts of modules, and their survivors."""
    counts, _, survivors = text.partition("## Survivors")
    modules = tuple(f"| `{folder}/" for folder in folders)
    first, second = (
        [line for line in part.splitlines() if line.startswith(modules)] for part in (counts, survivors)
    )
    return first, second


def table(
    tried: dict[str, list[Tried]], told: Sequence[Explanation], kept: tuple[list[str], list[str]] = ([], [])
) -> str:
    """The whole text of `docs/mutants.md`.

    Args:
        kept: Rows of rooms that were not tried here; those of modules in `tried` are left out.
    """
    counted, survived_rows = ([row for row in rows if _module_of(row) not in tried] for rows in kept)
    for module, entries in sorted(tried.items()):
        counts = [sum(t.outcome is outcome for t in entries) for outcome in (*Outcome, None)]
        killed, timed_out, survived, not_tried = counts
        counted.append(f"| `{module}` | {len(entries)} | {killed} | {timed_out} | {survived} | {not_tried} |")
        for mutant in (t.mutant for t in entries if t.outcome is Outcome.SURVIVED):
            why = next((e.why for e in told if e.explains(mutant)), "**not explained**")
            survived_rows.append(f"| `{module}` | {_code(mutant.before)} | {_code(mutant.after)} | {why} |")
    lines = [
        "# Mutants",
        "",
        "`make mutants` makes one small change at a time to these modules, runs the tests, and writes the",
        "tables. A survivor is a change that no test noticed. It needs a new test or an explanation.",
        "*Timed out* includes changes that exhausted the memory.",
        "",
        "| module | mutants | killed | timed out | survived | not tried |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        *sorted(counted, key=_module_of),
        "",
        "## Survivors",
        "",
        "| where | was | became | why it is not a gap |",
        "| --- | --- | --- | --- |",
        *sorted(survived_rows, key=_module_of),
    ]
    return "\n".join(lines) + "\n"


def _module_of(row: str) -> str:
    return row.split("`")[1]


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def main() -> int:
    """Try the rooms that are named, or all; write the table."""
    parser = argparse.ArgumentParser(description="Mutation tests of rooms of the runtime.")
    parser.add_argument("rooms", nargs="*", help="rooms to try; all by default")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--quick", action="store_true", help="leave the slow tests of each room out")
    parser.add_argument("--table-only", action="store_true", help="try nothing, write the table")
    arguments = parser.parse_args()
    known, told = rooms(), explanations()
    tried: dict[str, list[Tried]] = {}
    untried: list[str] = []
    preload()
    for name, room in known.items():
        if arguments.quick:
            room = replace(room, slow_tests=())
        outcomes_path = KEPT / f"{name}.jsonl"
        if arguments.fresh:
            outcomes_path.unlink(missing_ok=True)
        if not arguments.table_only and (not arguments.rooms or name in arguments.rooms):
            run_room(room, outcomes_path, told)
        outcomes = Outcomes(outcomes_path)
        if outcomes.are_none:
            print(f"the room {name} was never tried here: its rows stay")
            untried.append(room.folder)
            continue
        for mutant in all_mutants(room):
            tried.setdefault(mutant.module, []).append(Tried(mutant, outcomes.of(mutant)))
    kept = rows_of(TABLE.read_text(encoding="utf-8"), untried)
    TABLE.write_text(table(tried, told, kept), encoding="utf-8")
    survivors = [t.mutant for entries in tried.values() for t in entries if t.outcome is Outcome.SURVIVED]
    open_ones = [m for m in survivors if not any(e.explains(m) for e in told)]
    print(f"{len(survivors)} survived, {len(open_ones)} of them are not explained; see {TABLE}")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
