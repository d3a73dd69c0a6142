"""`FunctionClass`: a class whose objects are functions, each made in the subtask that uses it.

A model takes seconds to load and does not pickle. So the graph carries the class and the arguments of its
constructor, and each subtask makes an object of its own before the first record.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.runtime.errors import PenstockError
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
        """Make an object of the class; it shares nothing with those of other subtasks."""
        # Subtasks of a simulation live in one process. They share no argument, as if it had been pickled.
        args, kwargs = copy.deepcopy((self.args, dict(self.kwargs)))
        made: Callable[..., Any] = self.kind(*args, **kwargs)
        return made

    @property
    def where(self) -> str:
        constructor = function_location(inspect.getattr_static(self.kind, "__init__"))
        return constructor if "(" in constructor else f"{function_name(self.kind)}()"


def is_function_class(value: object) -> bool:
    """Return whether a class has callable objects; a conversion such as `str` is none.

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
    """Refuse the result of a method that has not run when it returned.

    Raises:
        PenstockError: The result is a generator or a coroutine.

    Example:
        >>> def close():
        ...     yield "closed"
        >>> check_has_run("close", close())
        Traceback (most recent call last):
        penstock.runtime.errors.PenstockError: close yields, so it never runs: write it without `yield`
    """
    if isinstance(given, Coroutine):
        given.close()  # otherwise Python warns later that it was never awaited
        msg = f"{name} is declared `async def`, so it never runs: declare it `def`"
        raise PenstockError(msg)
    if isinstance(given, Generator | AsyncGenerator):
        msg = f"{name} yields, so it never runs: write it without `yield`"
        raise PenstockError(msg)
