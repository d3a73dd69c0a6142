"""The public modules of Penstock."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import penstock

#: The packages of the implementation.
HOUSE = ("runtime", "actors", "bridge")


def public_modules() -> list[ModuleType]:
    """`penstock` and its public submodules."""
    beside = sorted(found.name for found in pkgutil.iter_modules(penstock.__path__))
    public = [name for name in beside if name not in HOUSE and not name.startswith("_")]
    return [penstock, *(importlib.import_module(f"penstock.{name}") for name in public)]


def public_values() -> dict[str, object]:
    """All public values, by qualified name."""
    return {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in public_modules()
        for name in module.__all__
    }
