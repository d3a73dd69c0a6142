"""Finds the classes of records and enums by name, without running anything that the data names.

A class of Penstock has a name of its own in data (`stable_names.py`). Any other class is looked for among
those that were handed in (a job's own `__main__` classes are known there only), then in its module. Lookups
read namespaces directly: no module-level `__getattr__`, no descriptor, no call. A user's module that is not
loaded yet is imported only where pickle is allowed, too. Otherwise bytes could choose which code of this
machine runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType

from penstock.runtime.errors import CodecError
from penstock.runtime.record.stable_names import OURS, home_of, is_ours, name_in_data


def describe_type(cls: type) -> str:
    """Name a type for a message.

    Example:
        >>> describe_type(int), describe_type(CodecError)
        ('int', 'penstock.runtime.errors.CodecError')
    """
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class ClassDirectory:
    """Maps a class to the two parts of its name in data, and back: its module and its qualified name.

    Example:
        >>> from fractions import Fraction
        >>> directory = ClassDirectory()
        >>> directory.find(*directory.name_of(Fraction)) is Fraction
        True
    """

    def __init__(self, classes: Iterable[type] = (), *, may_import: bool = True) -> None:
        """Create a directory.

        Args:
            classes: Classes that can't be found through their module in this process.
            may_import: Import a module that is not loaded.
        """
        self._given: dict[tuple[str, str], type] = {(c.__module__, c.__qualname__): c for c in classes}
        self._may_import = may_import
        self._found: dict[tuple[str, str], type] = {}

    @property
    def given(self) -> frozenset[type]:
        """The classes that were handed in."""
        return frozenset(self._given.values())

    def name_of(self, cls: type) -> tuple[str, str]:
        """Module and qualified name under which a reader finds exactly this class.

        Raises:
            CodecError: It can't be found again, so that its values could be written but never read.
        """
        stable = name_in_data(cls)
        name = (cls.__module__, cls.__qualname__) if stable is None else (OURS, stable)
        if stable is None and is_ours(cls.__module__):
            msg = (
                f"values of {describe_type(cls)} can't be encoded: this class of Penstock has no name that "
                "stays when it moves. Keep its content in a class of your own or in plain values; whoever "
                "works on Penstock adds it to runtime/record/stable_names.py"
            )
            raise CodecError(msg)
        if self._look_up(*name) is not cls:  # not from the cache: a notebook may define a class again
            msg = (
                f"values of {describe_type(cls)} can't be encoded: no class is found under this name when "
                "they are read. Define it at the top level of a module that every worker can import, "
                "or hand it to the codec (classes=[...])"
            )
            raise CodecError(msg)
        return name

    def find(self, module: str, qualname: str) -> type:
        """The class of this name.

        Raises:
            CodecError: There is none.
        """
        key = (module, qualname)
        cls = self._found.get(key) or self._look_up(module, qualname)
        if cls is None:
            raise CodecError(_unknown(module, qualname))
        self._found[key] = cls
        return cls

    def _look_up(self, module: str, qualname: str) -> type | None:
        home = home_of(module, qualname)
        if home is not None:
            # The tables are fixed: the data chooses among these modules and no others.
            return _class_in(_imported(home[0]), home[1])
        return self._given.get((module, qualname)) or _class_in(self._module(module), qualname)

    def _module(self, name: str) -> ModuleType | None:
        if not self._may_import or not all(map(str.isidentifier, name.split("."))):
            return sys.modules.get(name)
        return _imported(name)


def _unknown(module: str, qualname: str) -> str:
    """The message for a class that is not found."""
    if module == OURS or is_ours(module):
        return (
            f"the data holds a value of Penstock's class {qualname} ({module}), which this version does not "
            "know: another version wrote it. Read it with that version"
        )
    return (
        f"the data holds a value of {module}.{qualname}, but no such class is known in this process. "
        "Make its module importable by every worker, import it in the job's program, "
        "or hand the class to the codec (classes=[...])"
    )


def _imported(name: str) -> ModuleType | None:
    """A module, loaded or imported now; `None` when there is none of this name."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, something that it needs is not
        return None


def _class_in(module: ModuleType | None, qualname: str) -> type | None:
    found: object = module
    for part in qualname.split("."):
        if not isinstance(found, (ModuleType, type)):
            return None
        found = vars(found).get(part)
    return found if isinstance(found, type) else None
