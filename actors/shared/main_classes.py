"""The classes that only the user's program knows: those defined in its `__main__`.

In a worker `__main__` is Ray's own module, so a class of the user's script or notebook can't be imported
there. Functions bring such classes along by value, but a codec looks classes up by name. So they travel with
the job, and each subtask's codec gets them. They are pickled together with the graph, which makes them the
same objects as those that the user's functions make and test for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

import ray.cloudpickle as cloudpickle

#: Bytes of a pickled class. A larger one holds on to data through its methods; it is no record.
LARGEST_CLASS: Final = 256 * 1024


def main_classes() -> tuple[type, ...]:
    """All classes of this program's `__main__` and of modules that are registered to be pickled by value.

    A class that can't be pickled is left out. Most jobs don't use it; for one that does, the codec raises.
    """
    by_value: set[str] = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    names = ["__main__", *sorted(by_value)]
    modules = (sys.modules.get(name) for name in names)
    return tuple(cls for module in modules if module is not None for cls in classes_of(module) if _fits(cls))


def classes_of(module: ModuleType) -> list[type]:
    """The classes that a module defines, nested ones included; what it imports is not its own.

    Example:
        >>> import fractions
        >>> [cls.__qualname__ for cls in classes_of(fractions)]
        ['Fraction']
    """
    found: dict[type, None] = {}
    namespaces = [vars(module)]
    while namespaces:
        for value in list(namespaces.pop().values()):
            if isinstance(value, type) and value.__module__ == module.__name__ and value not in found:
                found[value] = None
                namespaces.append(dict(vars(value)))
    return list(found)


def _fits(cls: type) -> bool:
    try:
        data: bytes = cloudpickle.dumps(cls)  # type: ignore[no-untyped-call]
    except Exception:  # whatever the user's class raises; the codec names it, should a record be one
        return False
    return len(data) <= LARGEST_CLASS
