"""Code that data can make Python run: none with `allow_pickle=False`.

Reading a pickle can run any code, so a codec that does not allow pickle neither writes nor reads one. Four
other ways would run code that the data chooses:

- The data names a class in a module that is not loaded. Without pickle it is not imported.
- It has a record whose class has a `__del__`.
- It gives a record an attribute that hides a method. Python, pickle and copy call some methods by themselves.
- It has an Arrow extension type (`arrow_bytes.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from functools import partialmethod, singledispatchmethod
from typing import Final

from penstock.runtime.errors import CodecError

#: Methods that can't be called before an instance or a class has been asked for them.
_METHODS: Final = (classmethod, staticmethod, partialmethod, singledispatchmethod)


class PicklePolicy:
    """The setting `allow_pickle` of a codec, with all that it refuses."""

    __slots__ = ("allowed",)

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed

    def may_import(self, module: str) -> bool:
        return self.allowed and all(map(str.isidentifier, module.split(".")))

    def check_writing(self, type_name: str) -> None:
        if not self.allowed:
            msg = (
                f"a value of type {type_name} can only be pickled, and pickle is not allowed here "
                "(allow_pickle=False). Turn it into a dataclass, a named tuple or plain values, or allow it"
            )
            raise CodecError(msg)

    def check_reading(self) -> None:
        if not self.allowed:
            msg = (
                "the data holds a pickled value, and pickle is not allowed here (allow_pickle=False). "
                "Read it with pickle allowed, if you trust who wrote it"
            )
            raise CodecError(msg)

    def check_class(self, cls: type, type_name: str) -> None:
        if hasattr(cls, "__del__") and not self.allowed:
            msg = (
                f"the data holds a record of {type_name}, whose `__del__` would run, and pickle "
                "is not allowed here (allow_pickle=False). Allow it, or remove the method"
            )
            raise CodecError(msg)

    def check_hidden(self, method: str | None, type_name: str) -> None:
        """Refuse an attribute of a record that hides a method, as `hidden_method` found it."""
        if method is not None and not self.allowed:
            msg = (
                f"the data gives a {type_name} the attribute {method!r:.80}, which hides a "
                "method, and pickle is not allowed here (allow_pickle=False)"
            )
            raise CodecError(msg)


def hidden_method(cls: type, fields: Collection[str], attributes: Iterable[str]) -> str | None:
    """The first of an instance's attributes, fields aside, that would hide a method."""
    for name in attributes:
        reserved = name.startswith("__") and name.endswith("__")
        if name not in fields and (reserved or _is_called(cls, name)):
            return name
    return None


def _is_called(cls: type, name: str) -> bool:
    """Whether a class has something of this name that is called, also by the look at an attribute.

    A plain value for all instances is not called. Nor is what computes an attribute once.
    """
    found = inspect.getattr_static(cls, name, None)
    return callable(found) or isinstance(found, _METHODS) or hasattr(type(found), "__set__")
