"""The public modules of Penstock."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import penstock

#: The packages of the implementation.
HOUSE = ("runtime", "actors", "bridge")


def public_modules() -> list[ModuleType]:
    """`penstock` and its public submodules."""
    return [penstock, *_below(penstock)]


def _below(package: ModuleType) -> Iterator[ModuleType]:
    for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if found.name not in HOUSE and not found.name.startswith("_"):
            module = importlib.import_module(f"{package.__name__}.{found.name}")
            yield module
            if found.ispkg:
                yield from _below(module)


def public_values() -> dict[str, object]:
    """All public values, by qualified name."""
    return {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in public_modules()
        for name in module.__all__
    }
