"""Classes of users' functions: their objects, and the side outputs that they declare.

An object that holds a model may take seconds to load, and often can't be pickled. So the graph contains a
`FunctionClass`: the class and the arguments of its constructor. Each subtask makes its own object before the
first record.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.names import checked_name, nearest_name, normal_name
from penstock.runtime.user_location import function_location, function_name


@dataclass(frozen=True, slots=True)
class FunctionClass:
    """A class with a method `__call__`, and the constructor arguments of its objects.

    Example:
        >>> class Add:
        ...     def __init__(self, number):
        ...         self.number = number
        ...
        ...     def __call__(self, value):
        ...         return value + self.number
        >>> FunctionClass(Add, (2,)).make()(40)
        42
    """

    kind: type
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Callable[..., Any]:
        """Make an object of the class; it shares nothing with the objects of other subtasks."""
        # Subtasks of a simulation are in one process, and must not share arguments either.
        args, kwargs = copy.deepcopy((self.args, dict(self.kwargs)))
        made: Callable[..., Any] = self.kind(*args, **kwargs)
        return made

    @property
    def where(self) -> str:
        constructor = function_location(inspect.getattr_static(self.kind, "__init__"))
        return constructor if "(" in constructor else f"{function_name(self.kind)}()"


def is_function_class(value: object) -> bool:
    """Return whether a value is a class of callable objects; conversions such as `str` are not.

    Example:
        >>> class Double:
        ...     def __call__(self, number):
        ...         return 2 * number
        >>> is_function_class(Double), is_function_class(str), is_function_class(Double())
        (True, False, False)
    """
    if not inspect.isclass(value) or issubclass(value, type):
        return False
    return any("__call__" in vars(base) for base in value.__mro__)


def check_has_run(name: str, given: Any) -> None:
    """Refuse a generator or coroutine as the result of a method: the method has not run.

    Example:
        >>> def close():
        ...     yield "closed"
        >>> check_has_run("close", close())
        Traceback (most recent call last):
        penstock.runtime.errors.PenstockError: close yields, so it never runs: write it without `yield`
    """
    if isinstance(given, Coroutine):
        given.close()  # otherwise Python warns that it was never awaited
        msg = f"{name} is declared `async def`, so it never runs: declare it `def`"
        raise PenstockError(msg)
    if isinstance(given, Generator | AsyncGenerator):
        msg = f"{name} yields, so it never runs: write it without `yield`"
        raise PenstockError(msg)


def run_method(owner: object, name: str, *arguments: object) -> None:
    """Call a method of a user's object, and check that it has run."""
    check_has_run(name, getattr(owner, name)(*arguments))


T = TypeVar("T")


class OutputTag(Generic[T]):
    """A side output, declared as an attribute of the function's class (Flink's `OutputTag`).

    Pass the tag and a record to `ctx.output`, and the tag to `side_output` of the resulting stream.

    Args:
        name: Name of the side output; by default the attribute's name.

    Raises:
        ConfigurationError: The name is invalid.

    Example:
        >>> class Sort:
        ...     broken = OutputTag[str]()
        ...     odd = OutputTag[int]("odd numbers")
        >>> Sort.broken, Sort.odd
        (OutputTag('broken'), OutputTag('odd numbers'))
    """

    __slots__ = ("name",)

    def __init__(self, name: str | None = None) -> None:
        self.name = "" if name is None else checked_name("OutputTag", name)

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = self.name or attribute

    def __repr__(self) -> str:
        return f"OutputTag({self.name!r})"


def tag_name(tag: OutputTag[Any] | str) -> str:
    return tag.name if isinstance(tag, OutputTag) else normal_name(str(tag))


def tags_of(kind: type) -> Mapping[str, OutputTag[Any]]:
    """The side outputs that a class and its bases declare, by name.

    Example:
        >>> class Sort:
        ...     odd = OutputTag[int]()
        >>> list(tags_of(Sort))
        ['odd']
    """
    found: dict[str, OutputTag[Any]] = {}
    for attribute, tag in attributes_of(kind).items():
        if isinstance(tag, OutputTag) and found.setdefault(tag.name, tag) is not tag:
            msg = f"{kind.__name__}.{attribute} is a second side output called {tag.name!r}; rename it"
            raise ConfigurationError(msg)
    return found


def attributes_of(kind: type) -> dict[str, Any]:
    """The attributes of a class and its bases, without calling descriptors."""
    attributes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        attributes.update(vars(base))
    return attributes


def declared_name(tag: OutputTag[Any] | str, declared: Mapping[str, object], owner: str) -> str:
    """The name of a tag; refuses a tag that is not declared.

    Example:
        >>> declared_name("ood", {"odd": None}, "Sort")
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: Sort declares no side output 'ood'; did you mean 'odd'?
    """
    name = tag_name(tag)
    if name in declared:
        return name
    msg = f"{owner} declares no side output {name!r}{nearest_name(name, declared)}"
    if not declared:
        msg += f"; write `{name if name.isidentifier() else 'name'} = OutputTag()` in its class"
    raise ConfigurationError(msg)
