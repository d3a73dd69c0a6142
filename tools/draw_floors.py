"""Draws the floors of the code and the imports between rooms: `docs/floors.svg`.

The floors come from the layers contracts of import-linter in `pyproject.toml`, the imports from the code
itself. Type-checking imports are left out, as in the contracts. Each row is a room. A dot in a row means
that the room imports the room of that column. All dots lie left of the diagonal, because a room imports only
from floors below it.

    python tools/draw_floors.py          # writes the picture
    python tools/draw_floors.py --check  # exit code 1 when the picture is out of date
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import grimp

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "floors.svg"

_ROW: Final = 22
_CELL: Final = 22
_LEFT: Final = 620
_TOP: Final = 150
_INDENT: Final = 16
_COLOURS: Final = {"bridge": "#7b4ea3", "actors": "#b5651d", "runtime": "#1f6f8b"}
#: Colour of the public modules.
_DOOR: Final = "#555555"


@dataclass(frozen=True)
class Room:
    """A row of the picture.

    Attributes:
        module: Full name.
        depth: Number of rooms around it.
        floor: Number of its floor in its container, 0 at the top; rooms side by side share it.
        says: The first line of its docstring.
    """

    module: str
    depth: int
    floor: int
    says: str

    @property
    def package(self) -> str:
        """`runtime`, `actors`, `bridge`, or a public module."""
        return self.module.split(".")[1]

    @property
    def colour(self) -> str:
        """The colour of its package."""
        return _COLOURS.get(self.package, _DOOR)

    @property
    def name(self) -> str:
        """The name in the picture: the full name of a package, or the short name of a room."""
        return self.module if self.depth == 0 else self.module.rpartition(".")[2]


def containers(settings: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """The floors of each container, top floor first; a floor is a list of modules side by side."""
    found: dict[str, list[list[str]]] = {}
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            for container in contract.get("containers", [""]):
                prefix = f"{container}." if container else ""
                floors = [floor.replace(":", "|").split("|") for floor in contract["layers"]]
                found[container] = [[prefix + name.strip(" ()") for name in floor] for floor in floors]
    return found


def rooms(
    floors: Mapping[str, Sequence[Sequence[str]]], container: str = "penstock", depth: int = 0
) -> Iterator[Room]:
    """All rooms from the top floor to the ground; each comes before the rooms in it."""
    for number, floor in enumerate(floors[container]):
        for module in sorted(floor):
            yield Room(module, depth, number, first_line(module))
            if module in floors:
                yield from rooms(floors, module, depth + 1)


def first_line(module: str) -> str:
    """The first line of a module's docstring."""
    path = (ROOT / "src").joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def room_of(module: str, known: Mapping[str, int]) -> int | None:
    """Row of the innermost room that a module lies in; `None` for a container's own `__init__`."""
    while module not in known:
        module = module.rpartition(".")[0]
        if not module:
            return None
    return known[module]


def imports(shown: Sequence[Room]) -> set[tuple[int, int]]:
    """Pairs of rows, where the first room imports the second."""
    graph = grimp.build_graph("penstock", exclude_type_checking_imports=True, cache_dir=None)
    known = {room.module: row for row, room in enumerate(shown)}
    found = set()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            a, b = room_of(importer, known), room_of(imported, known)
            if a is not None and b is not None and a != b:
                found.add((a, b))
    return found


def shorter(text: str, most: int) -> str:
    """Cut a text to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0] + " …"


def draw(shown: Sequence[Room], arrows: set[tuple[int, int]]) -> str:
    """The picture as SVG."""
    width, height = _LEFT + _CELL * len(shown) + 20, _TOP + _ROW * len(shown) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="12" y="28" font-size="16" font-weight="bold">The floors of Penstock</text>',
        '<text x="12" y="48" fill="#555">A dot: the room of this row imports the room of that column.</text>',
        '<text x="12" y="66" fill="#555">No dot lies right of the diagonal: nothing imports upwards.</text>',
    ]
    for row, room in enumerate(shown):
        y, colour = _TOP + _ROW * row, room.colour
        x = 12 + _INDENT * room.depth
        weight = "bold" if room.depth == 0 else "normal"
        says = escape(shorter(room.says.replace("`", ""), 72))
        fill = "#f3f5f7" if row % 2 else "#ffffff"
        middle = y + _ROW * 0.68
        column = _LEFT + _CELL * (len(shown) - 1 - row) + _CELL / 2
        parts += [
            f'<rect x="0" y="{y}" width="{width}" height="{_ROW}" fill="{fill}"/>',
            f'<text x="{x}" y="{middle:.1f}" fill="{colour}" font-weight="{weight}">{room.name}</text>',
            f'<text x="195" y="{middle:.1f}" fill="#444" font-size="11">{says}</text>',
            f'<text transform="translate({column + 4:.1f},{_TOP - 8}) rotate(-60)" fill="{colour}" '
            f'font-size="11">{escape(room.name.removeprefix("penstock."))}</text>',
            f'<rect x="{column - 5:.1f}" y="{y + _ROW / 2 - 5:.1f}" width="10" height="10" fill="{colour}"/>',
        ]
    for importer, imported in sorted(arrows):
        x = _LEFT + _CELL * (len(shown) - 1 - imported) + _CELL / 2
        y = _TOP + _ROW * importer + _ROW / 2
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{shown[importer].colour}"/>')
    return "\n".join([*parts, "</svg>", ""])


def picture() -> str:
    """The picture of the current code."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shown = list(rooms(containers(settings)))
    return draw(shown, imports(shown))


def main(arguments: Sequence[str]) -> int:
    """Write or check the picture."""
    drawn = picture()
    if "--check" in arguments:
        return 0 if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == drawn else 1
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
