"""Public names of a package that are loaded when somebody asks for them (PEP 562).

A package that imports all its parts so that users find them in one place makes every process pay for all of
them. A subtask is a process, and a job that restarts waits for the imports of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package.

    Args:
        package: The package's `__name__`. No module in it may have the name of something public: once it is
            imported, it would be found instead.
        home: The module of each public name, relative to the package.

    Example:
        >>> load, names = lazy_names("penstock.runtime", {"GraphError": "errors"})
        >>> load("GraphError").__module__
        'penstock.runtime.errors'
        >>> load("GraphEror")
        Traceback (most recent call last):
        AttributeError: module 'penstock.runtime' has no public name 'GraphEror'; did you mean 'GraphError'?
    """

    def load(name: str) -> Any:
        if name not in home:
            from difflib import get_close_matches  # only for a mistake

            near = get_close_matches(name, home, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            msg = f"module {package!r} has no public name {name!r}{hint}"
            raise AttributeError(msg)
        value = getattr(import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return load, names
