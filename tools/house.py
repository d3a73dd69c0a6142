"""Measures the code: files, code and docstrings by room, walks through the code, and the public names.

    python tools/house.py

A room is a folder of the implementation, which is the *house*. A line of code is a line with a token that is
neither comment nor docstring. The walks are recorded from a real job (`walks.py`). `make house` prints the
tables.
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from door import HOUSE, public_modules
from rich.console import Console
from rich.table import Table
from walks import passed_files, table_of

ROOT: Final = Path(__file__).resolve().parents[1]
#: The implementation, and the public modules.
PACKAGES: Final = (*HOUSE, "src/penstock")
_NO_CODE: Final = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)


@dataclass(frozen=True, slots=True)
class FileSize:
    """One file.

    Attributes:
        path: Relative to the root.
        code: Lines of code.
        docstrings: Lines of docstrings.
        classes: Classes at any depth.
    """

    path: Path
    code: int
    docstrings: int
    classes: int

    @property
    def room(self) -> str:
        """The path of its folder, at most two levels deep."""
        return "/".join(self.path.parts[:2]) if len(self.path.parts) > 2 else self.path.parts[0]


def docstring_lines(tree: ast.Module) -> set[int]:
    """Numbers of the lines that docstrings take."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body:
            case [ast.Expr(value=ast.Constant(value=str())) as docstring, *_]:
                found.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return found


def code_lines(source: str) -> set[int]:
    """Numbers of the lines with a token that is not a comment, including the lines of docstrings."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return found


def measure(path: Path) -> FileSize:
    """The size of a Python file.

    Example:
        >>> measure(ROOT / "tools" / "house.py").classes
        1
    """
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstrings = docstring_lines(tree)
    classes = sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
    return FileSize(path.relative_to(ROOT), len(code_lines(source) - docstrings), len(docstrings), classes)


def files() -> Iterator[FileSize]:
    """All files of the house; links are not followed."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not any(part.is_symlink() for part in path.parents if part != ROOT):
                yield measure(path)


def sizes() -> Table:
    """Files, code and docstrings by room."""
    table = Table("room", *("files", "code", "docstrings", "classes", "median code"))
    for column in table.columns[1:]:
        column.justify = "right"
    found = list(files())
    for room in dict.fromkeys(file.room for file in found):
        _add(table, room, [file for file in found if file.room == room])
    table.add_section()
    _add(table, "all", found)
    return table


def _add(table: Table, name: str, sized: list[FileSize]) -> None:
    sums = (len(sized), *(sum(getattr(file, a) for file in sized) for a in ("code", "docstrings", "classes")))
    table.add_row(name, *map(str, sums), f"{statistics.median(file.code for file in sized):.0f}")


def door() -> Table:
    """The public modules and their names."""
    table = Table("module", "names", "")
    for module in public_modules():
        table.add_row(module.__name__, str(len(module.__all__)), ", ".join(module.__all__))
    return table


def main() -> int:
    """Print the tables."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(sizes())
    console.print(table_of(passed_files()))
    console.print(door())
    return 0


if __name__ == "__main__":
    sys.exit(main())
