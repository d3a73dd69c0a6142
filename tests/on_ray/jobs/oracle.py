"""The output that a word count must have committed, computed without Penstock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Updates = Counter[tuple[str, int]]


def expected_updates(lines: Iterable[str]) -> Updates:
    """Every (word, 1..n) once."""
    totals: Counter[str] = Counter()
    for line in lines:
        totals.update(line.split())
    return Counter((word, n) for word, total in totals.items() for n in range(1, total + 1))


def committed_rows(folder: Path) -> list[Any]:
    """The records of all committed files, as any reader of the folder sees them."""
    rows: list[Any] = []
    for file in sorted(folder.glob("**/*")):
        if file.is_file() and not hidden(file.relative_to(folder)):
            rows += map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return rows


def committed_updates(folder: Path) -> Updates:
    """The number of commits of each (word, n)."""
    return Counter((row["word"], row["count"]) for row in committed_rows(folder))


def hidden(path: Path) -> bool:
    """Whether readers of a folder pass over this path."""
    return any(part.startswith((".", "_")) for part in path.parts)


def hidden_files(folder: Path) -> list[Path]:
    """Files of transactions that are not committed."""
    return [f for f in sorted(folder.glob("**/*")) if f.is_file() and hidden(f.relative_to(folder))]


def attempts_of_files(folder: Path) -> set[int]:
    """The attempts that wrote the committed files of a folder, as their names tell."""
    return {int(file.name.rsplit("-", 2)[1]) for file in folder.glob("part-*")}


def assert_exactly_once(folder: Path, lines: Iterable[str]) -> None:
    """The committed updates are the expected ones, as multisets."""
    expected, committed = expected_updates(lines), committed_updates(folder)
    missing, surplus = expected - committed, committed - expected
    assert not missing, f"{missing.total()} of {expected.total()} updates lost: {missing.most_common(5)}"
    assert not surplus, f"{surplus.total()} updates too many: {surplus.most_common(5)}"
    assert committed.total() == expected.total() > 0
