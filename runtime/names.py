"""Names: the rule for names that users give, and the nearest known name for a misspelt one.

A name of a job, a state, a side output, a group or a hook is text in any alphabet. It appears in file names,
Prometheus labels, OpenTelemetry spans, JSON, terminals and web pages; the code that writes it there escapes
it. Only control characters, line separators, lone surrogates and characters that change the direction of text
are refused, and spaces at either end.

All names are in Unicode's normal form C. Otherwise the state under a name would be lost when an editor or a
file system changes the form of the text. Letters that only look alike stay different, and so do upper and
lower case.

Python's hints for misspelt names appear only in tracebacks that Python prints itself. Notebooks, logs and job
reports show the message alone, so the hint is part of the message here. A correct name costs little: one
check of a constructor's keywords, and slower reads of members. Classes on the record path must not use
`NearestNames`.
"""

from __future__ import annotations

import functools
import inspect
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from enum import EnumMeta
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar

from penstock.runtime.errors import ConfigurationError

#: Longest name, in characters of the normal form.
LONGEST_NAME: Final = 200

#: Control characters, lone surrogates, line separators, and characters that change the direction of text.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def problem_with_name(name: object) -> str | None:
    """Return the reason why this is not a valid name; `None` if it is."""
    if not isinstance(name, str):
        return f"a name must be a string, not {type(name).__name__}"
    if not name:
        return "a name must not be empty"
    unseen = _UNSEEN.search(name)
    if unseen is not None:
        place, code = unseen.start() + 1, f"U+{ord(unseen[0]):04X}"
        return f"a name must not have control characters, but character {place} is {code}: leave it out"
    if name != name.strip():
        return "a name must not begin or end with a space: leave it out"
    length = len(normal_name(name))
    if length > LONGEST_NAME:
        return f"a name has at most {LONGEST_NAME} characters, but this one has {length:,}: shorten it"
    return None


def normal_name(name: str) -> str:
    """Return the normal form of a name, by which it is compared and stored."""
    return unicodedata.normalize("NFC", name)


def checked_name(what: str, name: object) -> str:
    """Return the name in its normal form; `what` begins the message of an error.

    Raises:
        ConfigurationError: The name is invalid; the message says why, and what to do.
    """
    problem = problem_with_name(name)
    if problem is not None:
        shown = f"{name!r:.43}"
        msg = f"{what}: {problem} ({shown[:40]}...)" if len(shown) > 42 else f"{what}: {problem} ({shown})"
        raise ConfigurationError(msg)
    assert isinstance(name, str)
    return normal_name(name)


P = ParamSpec("P")

R = TypeVar("R")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name, to append to a sentence; empty when no known name is near.

    Example:
        >>> nearest_name("paralelism", ["id", "parallelism"])
        "; did you mean 'parallelism'?"
    """
    from difflib import get_close_matches  # only for a mistake

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


#: Names that other systems have for arguments, with Penstock's.
_FOREIGN_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "interval": ("every", "within", "emit_every"),
    "checkpoint_interval": ("every", "checkpointing"),
    "key": ("on", "keys"),
    "keys": ("on", "key"),
    "uid": ("id",),
    "name": ("id",),
    "slots": ("parallelism",),
}


def nearest_argument(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown argument: our name for another system's argument, else `nearest_name`.

    Example:
        >>> nearest_argument("interval", ["every", "storage"])
        "; did you mean 'every'?"
    """
    known = list(known)
    for ours in _FOREIGN_ARGUMENTS.get(name, ()):
        if ours in known:
            return f"; did you mean {ours!r}?"
    return nearest_name(name, known)


def unknown_attribute(owner: object, name: str) -> AttributeError:
    """Return the error for an attribute that an object or a class does not have.

    Names that begin with an underscore get no hint: protocols such as pickle, copy and IPython look for them.
    """
    is_class = inspect.isclass(owner)
    cls: type = owner if is_class else type(owner)  # type: ignore[assignment]
    what = f"type object {cls.__name__!r}" if is_class else f"{cls.__name__!r} object"
    message = f"{what} has no attribute {name!r}"
    if not name.startswith("_"):
        known = [other for other in dir(cls) if not other.startswith("_")]
        message += nearest_name(name, known) if name not in known else " yet"
    return AttributeError(message, name=name)  # with the object, too, tracebacks would have a second hint


def check_keywords(call: str, given: Iterable[str], known: Iterable[str] | None) -> None:
    """Refuse a keyword argument that is not in `known`; `None` accepts any."""
    for name in given:
        if known is not None and name not in known:
            msg = f"{call} has no argument {name!r}{nearest_argument(name, known)}"
            raise ConfigurationError(msg)


def checked_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function refuse an unknown keyword argument, and suggest the nearest known one."""
    known = keywords_of(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_keywords(function.__qualname__, kwargs, known)
        return function(*args, **kwargs)

    return call


def keywords_of(function: Callable[..., object]) -> tuple[str, ...] | None:
    """Return the keyword arguments of a function, without `self`; `None` when it accepts any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in parameters if p.kind in kinds and p.name not in ("self", "cls"))


#: Names of Flink's functions that make objects; here a class is called.
_FACTORIES: Final = frozenset(("of", "create", "with_gap", "withGap"))


class NearestNames(type):
    """Metaclass of classes that users construct: suggests names for misspelt members and arguments.

    `_renamed` of a class maps old or foreign names of members to Penstock's.

    Example:
        >>> class Window(metaclass=NearestNames):
        ...     _renamed = {"of_size": "tumbling"}
        ...
        ...     def __init__(self, size: int) -> None: ...
        ...
        ...     @staticmethod
        ...     def tumbling() -> None: ...
        >>> Window.of_size(1)
        Traceback (most recent call last):
        ...
        AttributeError: type object 'Window' has no attribute 'of_size': it is called 'tumbling'
        >>> Window(sise=1)
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: Window has no argument 'sise'; did you mean 'size'?
    """

    if not TYPE_CHECKING:  # a type checker still refuses unknown names, and sees the constructor itself

        def __getattr__(cls, name: str) -> Any:
            renamed = cls.__dict__.get("_renamed", {})
            if name in renamed:
                here = f"type object {cls.__name__!r} has no attribute {name!r}"
                msg = f"{here}: it is called {renamed[name]!r}"
                raise AttributeError(msg, name=name)
            if name in _FACTORIES:
                arguments = ", ".join(keywords_of(cls.__init__) or ())
                here = f"type object {cls.__name__!r} has no attribute {name!r}"
                msg = f"{here}: call {cls.__name__}({arguments})"
                raise AttributeError(msg, name=name)
            raise unknown_attribute(cls, name)

        @property
        def __signature__(cls) -> inspect.Signature:
            """The constructor's signature; `inspect` would use the signature of `__call__`."""
            signature = inspect.signature(cls.__init__)
            return signature.replace(parameters=list(signature.parameters.values())[1:])

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if kwargs:
                check_keywords(cls.__name__, kwargs, keywords_of(cls.__init__))
            return super().__call__(*args, **kwargs)


class NearestEnumMembers(EnumMeta):
    """Metaclass of users' enums: suggests the nearest name for a misspelt member."""

    if not TYPE_CHECKING:  # a type checker still refuses unknown names

        def __getattr__(cls, name: str) -> Any:
            """Find a member; Python 3.11 finds some members only here."""
            members = cls.__dict__.get("_member_map_", {})
            if name in members:
                return members[name]
            raise unknown_attribute(cls, name)


class NearestMembers:
    """Base of classes that suggest the nearest name for a misspelt member; reading members costs more."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker still refuses unknown names

        def __getattr__(self, name: str) -> NoReturn:
            raise unknown_attribute(self, name)
