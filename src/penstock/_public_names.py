"""Public names that are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from typing import Any

from penstock.runtime.names import nearest_name


def public_names(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a module that loads each public name when it is first used.

    `__version__` is loaded in the same way, and is not in `__all__`.

    Importing all public names would delay every process. Each subtask has its own process, and a job that
    restarts waits for the imports of all its processes.

    Args:
        module: The module's `__name__`.
        file: The module's `__file__`. Its imports under `if TYPE_CHECKING:` list the names.
    """
    with open(file, encoding="utf-8") as source:
        blocks = [node for node in ast.parse(source.read()).body if isinstance(node, ast.If)]
    imports = [node for node in blocks[0].body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def find(name: str) -> Any:
        if name in homes:
            found = getattr(importlib.import_module(homes[name]), name)
            setattr(sys.modules[module], name, found)  # the next use finds it without this function
            return found
        hint = "" if name.startswith("_") else nearest_name(name, homes)
        msg = f"module {module!r} has no public name {name!r}{hint}"
        raise AttributeError(msg, name=name)  # without `obj=`, because tracebacks would add a second hint

    def names() -> list[str]:
        return sorted({*homes, *vars(sys.modules[module])})

    return find, names, [name for name in sorted(homes) if not name.startswith("_")]
