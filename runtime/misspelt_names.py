"""Answers a misspelt name with the nearest one: of a package, a class, an object or an argument.

Python's own errors name what is wrong, but their hints reach only tracebacks that Python prints itself.
Notebooks, logs and job reports show the message alone. So the hint is part of the message here.

Nothing here runs for a name that is spelt right, except one look at the keywords of a constructor. Classes of
the record path must not use `NearestNames`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from enum import EnumMeta
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from penstock.runtime.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, to be appended to a sentence; empty when nothing is near.

    Example:
        >>> nearest_name("paralelism", ["id", "parallelism"])
        "; did you mean 'parallelism'?"
    """
    from difflib import get_close_matches  # only for a mistake

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_attribute(owner: object, name: str) -> AttributeError:
    """The error for an attribute that an object or a class does not have.

    Names that begin with an underscore get no hint: protocols such as pickle, copy and IPython look for them.

    Example:
        >>> str(unknown_attribute(dict, "form_keys"))
        "type object 'dict' has no attribute 'form_keys'; did you mean 'fromkeys'?"
    """
    is_class = inspect.isclass(owner)
    cls: type = owner if is_class else type(owner)  # type: ignore[assignment]
    what = f"type object {cls.__name__!r}" if is_class else f"{cls.__name__!r} object"
    message = f"{what} has no attribute {name!r}"
    if not name.startswith("_"):
        known = [other for other in dir(cls) if not other.startswith("_")]
        message += nearest_name(name, known) if name not in known else " yet"
    return AttributeError(message)  # given name and object, Python's traceback would add a hint of its own


def check_keywords(call: str, given: Iterable[str], known: Iterable[str] | None) -> None:
    """Refuse a keyword argument that a call does not have.

    Args:
        call: Named in the message.
        given: The keywords of this call.
        known: The keywords that it takes; `None` stands for any.

    Raises:
        ConfigurationError: Names the unknown keyword and the nearest known one.
    """
    for name in given:
        if known is not None and name not in known:
            msg = f"{call} has no argument {name!r}{nearest_name(name, known)}"
            raise ConfigurationError(msg)


def checked_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function answer an unknown keyword argument with the nearest known one.

    Example:
        >>> @checked_keywords
        ... def read(path: str, encoding: str = "utf-8") -> None: ...
        >>> read("a", encodng="ascii")
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: read has no argument 'encodng'; did you mean 'encoding'?
    """
    known = keywords_of(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_keywords(function.__qualname__, kwargs, known)
        return function(*args, **kwargs)

    return call


def keywords_of(function: Callable[..., object]) -> tuple[str, ...] | None:
    """The names that a function takes as keywords, without `self`; `None` when it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in parameters if p.kind in kinds and p.name not in ("self", "cls"))


class NearestNames(type):
    """Metaclass of what users make and set up: answers misspelt members and constructor arguments.

    A class can name members that are called otherwise here, in `_renamed`: the old or foreign name and ours.

    Example:
        >>> class Window(metaclass=NearestNames):
        ...     _renamed = {"of_size": "tumbling"}
        ...
        ...     def __init__(self, size: int) -> None: ...
        ...
        ...     @staticmethod
        ...     def tumbling() -> None: ...
        >>> Window.tumblin()
        Traceback (most recent call last):
        ...
        AttributeError: type object 'Window' has no attribute 'tumblin'; did you mean 'tumbling'?
        >>> Window.of_size(1)
        Traceback (most recent call last):
        ...
        AttributeError: type object 'Window' has no attribute 'of_size': it is called 'tumbling'
        >>> Window(sise=1)
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: Window has no argument 'sise'; did you mean 'size'?
    """

    if not TYPE_CHECKING:  # a type checker goes on refusing unknown names, and sees the constructor itself

        def __getattr__(cls, name: str) -> Any:
            """Explain what the class does not have."""
            renamed = cls.__dict__.get("_renamed", {})
            if name in renamed:
                here = f"type object {cls.__name__!r} has no attribute {name!r}"
                msg = f"{here}: it is called {renamed[name]!r}"
                raise AttributeError(msg)
            raise unknown_attribute(cls, name)

        @property
        def __signature__(cls) -> inspect.Signature:
            """The constructor's; `inspect` would take that of `__call__` below."""
            signature = inspect.signature(cls.__init__)
            return signature.replace(parameters=list(signature.parameters.values())[1:])

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            """Make an object, unless a keyword is unknown."""
            if kwargs:
                check_keywords(cls.__name__, kwargs, keywords_of(cls.__init__))
            return super().__call__(*args, **kwargs)


class NearestEnumMembers(EnumMeta):
    """Metaclass of users' enums: answers a misspelt member.

    Example:
        >>> from enum import Enum
        >>> class Color(Enum, metaclass=NearestEnumMembers):
        ...     GREEN = "green"
        >>> Color.GREN
        Traceback (most recent call last):
        ...
        AttributeError: type object 'Color' has no attribute 'GREN'; did you mean 'GREEN'?
    """

    if not TYPE_CHECKING:  # a type checker goes on refusing unknown names

        def __getattr__(cls, name: str) -> Any:
            """The member of this name; Python 3.11 finds some members only here."""
            members = cls.__dict__.get("_member_map_", {})
            if name in members:
                return members[name]
            raise unknown_attribute(cls, name)


class NearestMembers:
    """Base of classes whose objects answer a misspelt member. Reading their members costs a little more."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker goes on refusing unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain what the object does not have."""
            raise unknown_attribute(self, name)
