"""Checks that a user's function can be called with the arguments that it will get.

Python would raise a `TypeError` for the first record, in a subtask of a running job. This check finds the
mistake where the program passes the function. It never refuses a function that might work: it skips functions
without a signature. For a decorated function it checks the parameters of the wrapper.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from penstock.runtime.user_location import function_location


def arity_problem(function: Callable[..., Any], arguments: Sequence[str]) -> str | None:
    """Return why a function can't be called with positional arguments; `None` if it can, or if unknown.

    Args:
        arguments: Names of the arguments, for the message.

    Example:
        >>> arity_problem(lambda a, b: a, ["record"])  # doctest: +ELLIPSIS
        "is called with (record), but ... takes (a, b): missing a required argument: 'b'"
        >>> arity_problem(lambda a, b=1: a, ["record"]) is None
        True
    """
    try:
        # A wrapper may add or remove arguments of the function that it wraps.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # such as a function that is written in C
        return None
    return _problem(function, signature, arguments, len(arguments))


def arity_problem_of_class(kind: type, arguments: Sequence[str]) -> str | None:
    """Return why objects of a class can't be called with positional arguments, as `arity_problem` does."""
    call = inspect.getattr_static(kind, "__call__", None)
    if not inspect.isfunction(call):
        return None
    signature = inspect.signature(call, follow_wrapped=False)
    return _problem(call, signature, arguments, len(arguments) + 1)  # and `self`


def _problem(
    function: Callable[..., Any], signature: inspect.Signature, arguments: Sequence[str], count: int
) -> str | None:
    try:
        signature.bind(*(None,) * count)
    except TypeError as error:
        given, where = ", ".join(arguments), function_location(function)
        takes = ", ".join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())
        return f"is called with ({given}), but {where} takes ({takes}): {error}"
    return None
