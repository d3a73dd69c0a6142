"""`DeclaredState`: what the states that a function's class declares have in common, keyed or not.

Each class of states is two things. In the body of a function's class it is a *declaration*: name, types,
settings. In a running subtask the attribute of that name is a *view* of what the subtask holds. So one name
serves a type checker and the reader of the class. It serves the runtime, too, which lists the states of a
class without running it (`declared_states.py`).

The view is put into the function object's own `__dict__`. A declaration has no `__set__`, so Python finds the
view there first: reading `self.count` costs an attribute and no call. An object that was never bound finds
the declaration, whose `__get__` says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NoReturn, Self, get_origin, overload

from penstock.runtime.errors import ConfigurationError, PenstockError, UserLocation
from penstock.runtime.names import normal_name, problem_with_name
from penstock.runtime.user_location import user_location

#: What names of Penstock's own tables beside a function's states begin with.
RESERVED: Final = "penstock:"


class DeclaredState:
    """A name, and how saved values of another type are taken over.

    Attributes:
        name: The name under which it is saved; that of the class attribute by default.
        migrate: Makes a value of today's type of a saved one that is of another type; `None` refuses these.
        renamed_from: The name under which it was saved before; `None` for the same.
        where: The user's line that declared it.
    """

    __slots__ = ("migrate", "name", "renamed_from", "where")

    #: How snapshots and messages call this kind.
    kind: ClassVar[str]

    name: str

    def __init__(
        self, name: str | None, migrate: Callable[[Any], Any] | None, renamed_from: str | None
    ) -> None:
        self.where: UserLocation = user_location()
        self.migrate = migrate
        self.renamed_from: str | None = None
        self.name = "" if name is None else self._checked_name(name)
        if renamed_from is not None:
            self.renamed_from = self._checked_name(renamed_from)
        if migrate is not None and not callable(migrate):
            self.refuse(f"migrate is a function from an old value to a new one, not {migrate!r:.80}")

    def __set_name__(self, owner: type, attribute: str) -> None:
        if not self.name:
            self.name = self._checked_name(attribute)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Self: ...
    def __get__(self, instance: object | None, owner: type) -> Self:
        """The declaration itself, of the class.

        Raises:
            PenstockError: It is read of an object that no subtask runs.
        """
        if instance is None:
            return self
        raise self._unbound()

    @property
    def settings(self) -> Mapping[str, object]:
        """What two requests of one name must have in common, beside the kind: by name of the argument."""
        return {}

    @property
    def types(self) -> tuple[type, ...]:
        """The declared types: none, that of the values, or those of map keys and map values."""
        return ()

    @property
    def label(self) -> str:
        """How messages call it: `ValueState 'count' (job.py:12)`."""
        name = f" {self.name!r}" if self.name else ""
        return f"{type(self).__name__}{name} ({self.where})"

    def refuse(self, what: str) -> NoReturn:
        """Raise the error for a declaration that can't be.

        Raises:
            ConfigurationError: Always.
        """
        msg = f"{self.label}: {what}"
        raise ConfigurationError(msg)

    def _checked_name(self, name: object) -> str:
        problem = problem_with_name(name)
        if problem is not None:
            self.name = ""
            self.refuse(f"{problem} ({name!r:.80})")
        name = normal_name(str(name))
        if name.startswith(RESERVED):
            self.name = ""
            self.refuse(f"names that begin with {RESERVED!r} belong to tables of Penstock, such as timers")
        return name

    def _checked_type(self, of_type: Any) -> type | None:
        """The class behind a declared type: `list` for `list[int]`."""
        kind = get_origin(of_type) or of_type
        if kind is not None and not isinstance(kind, type):
            self.refuse(f"a type is a class such as int or list[int], not {of_type!r:.80}")
        if self.migrate is not None and kind is None:
            self.refuse("migrate=... needs the type of the values: those of another type are migrated")
        return kind

    def _unbound(self) -> PenstockError:
        return PenstockError(
            f"{self.label} is a declaration, which holds nothing. Declare it in the body of a class of "
            "functions (KeyedProcessFunction, Operator), and use it there, in process of a running job"
        )
