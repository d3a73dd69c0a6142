"""Writes `docs/api.md`: the public modules, and the names in each.

Run it when a public name, or the first paragraph of its docstring, changes. `tests/docs/test_api.py` compares
the page with the modules.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import get_args

from door import public_modules

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"

_HEAD = """\
# The public modules

Only the names in these modules are public. The packages `penstock.runtime`,
`penstock.actors` and `penstock.bridge` are the implementation and may change in any version.
Each name's docstring is its reference: `help(penstock.StreamEnvironment)`.

`tools/write_api.py` writes this page from the modules.
"""


def summary(value: object) -> str:
    """A cell of a table: the first paragraph of a docstring, or the types of a union."""
    if isinstance(value, UnionType):
        return f"A {' or '.join(f'`{each.__name__}`' for each in get_args(value))}."
    if not (inspect.isclass(value) or inspect.isroutine(value)) or not value.__doc__:
        return ""
    first = inspect.cleandoc(value.__doc__).split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def page() -> str:
    """The text of the page."""
    parts = [_HEAD]
    for module in public_modules():
        about = " ".join(inspect.cleandoc(module.__doc__ or "").split("\n\n")[0].split())
        rows = [f"| `{name}` | {summary(getattr(module, name))} |" for name in module.__all__]
        parts.append(
            "\n".join([f"## {module.__name__}", "", about, "", "| name | |", "| --- | --- |", *rows, ""])
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
