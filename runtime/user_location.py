"""The line of the user's program that made an operator.

A graph runs far from the line that built it, so every operator remembers that line. Its frame is the first
one whose module is outside of this package.

A file is shown relative to the folder that its module is imported from (`jobs/words.py`). A script is shown
by its name, and a cell of a notebook by its number.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, Final

from penstock.runtime.errors import UserLocation

_PACKAGE: Final = "penstock."

#: Maximum layers of partials and decorators to unwrap; an object may wrap itself.
_DEEPEST: Final = 32


def user_location() -> UserLocation:
    """The innermost line on the stack outside of Penstock; without one, the outermost line."""
    frame = inspect.currentframe()
    if frame is None:  # an interpreter without frames
        return UserLocation("<unknown>", 0, "<unknown>")
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
        frame = frame.f_back
    file = file_of(frame.f_code, frame.f_globals)
    return UserLocation(file, frame.f_lineno, _short_name(frame.f_code.co_name))


def function_name(function: Callable[..., Any]) -> str:
    """The name of a user's function in operator names and messages."""
    function = _innermost(function)
    own = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    name = own or type(function).__qualname__
    return _short_name(str(name))


def function_location(function: Callable[..., Any]) -> str:
    """A user's function with its line: `split_words (job.py:12)`. Without a line, only its name."""
    name = function_name(function)
    function = _innermost(function)
    if not hasattr(function, "__code__") and not inspect.isbuiltin(function):
        function = inspect.getattr_static(type(function), "__call__", function)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return name
    return f"{name} ({file_of(code, getattr(function, '__globals__', {}))}:{code.co_firstlineno})"


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    for _ in range(_DEEPEST):
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    return function


def _short_name(name: str) -> str:
    """A qualified name without the enclosing functions.

    Example:
        >>> _short_name("main.<locals>.<lambda>"), _short_name("<module>")
        ('lambda', 'main program')
    """
    name = name.rpartition("<locals>.")[2]
    return {"<lambda>": "lambda", "<module>": "main program"}.get(name, name)


def file_of(code: CodeType, module: Mapping[str, Any]) -> str:
    path = code.co_filename.replace("\\", "/")
    if "ipykernel" in path or path.startswith("<ipython-input"):
        return _notebook_cell(code.co_filename, module)
    if path.startswith("<"):
        return path
    parts = path.split("/")
    name = str(module.get("__name__", "__main__"))
    depth = 1 if name == "__main__" else name.count(".") + 1 + (parts[-1] == "__init__.py")
    return "/".join(parts[-depth:])


def _notebook_cell(filename: str, module: Mapping[str, Any]) -> str:
    get_shell = module.get("get_ipython")
    compiler = getattr(get_shell(), "compile", None) if callable(get_shell) else None
    number = getattr(compiler, "_filename_map", {}).get(filename)
    return "notebook cell" if number is None else f"notebook cell In[{number}]"
