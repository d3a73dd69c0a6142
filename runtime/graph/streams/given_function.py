"""Checks of a function that a user gives to a stream, or of a class whose objects are functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

from penstock.runtime.arity import arity_problem_of_class
from penstock.runtime.graph.streams.checked_call import need_function, refuse
from penstock.runtime.operators.user_code.function_class import FunctionClass, is_function_class
from penstock.runtime.state.known_states import operator_states_of

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class FunctionObject(Protocol[In, Out]):
    """An object that is called with a record or a batch."""

    def __call__(self, given: In, /) -> Out: ...


def given_function(
    call: str,
    function: object,
    args: Iterable[Any],
    kwargs: Mapping[str, Any] | None,
    *arguments: str,
) -> Callable[..., Any] | FunctionClass:
    """Check a function and return it; return a class together with its constructor's arguments.

    Args:
        arguments: As for `need_function`.
    """
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        refuse(f"{call}: fn_constructor_args must be a tuple or a list of arguments, not {args!r:.80}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        refuse(f"{call}: fn_constructor_kwargs must be a dict of arguments by name, not {kwargs!r:.80}")
    positional, named = tuple(args), dict(kwargs or {})
    if inspect.isclass(function) and is_function_class(function):
        _check_constructor(call, function, positional, named)
        problem = arity_problem_of_class(function, arguments) if arguments else None
        if problem is not None:
            refuse(f"{call}: an object of the class {problem}")
        return FunctionClass(function, positional, named)
    need_function(call, function, *arguments)
    if positional or named:
        refuse(
            f"{call}: fn_constructor_args and fn_constructor_kwargs are for a class with a method __call__, "
            f"whose objects are made in the subtasks, not for {function!r:.80}"
        )
    if operator_states_of(type(function)):
        kind = type(function).__name__
        refuse(
            f"{call}: {kind} declares state, so each subtask makes an object of its own: give the class, "
            f"{call}({kind}, fn_constructor_args=(...)), not an object"
        )
    return cast("Callable[..., Any]", function)


def _check_constructor(call: str, kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(kind)
    except (TypeError, ValueError):  # a class that is written in C has none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        refuse(
            f"{call}: {kind.__name__}{signature} can't be made: {error}. Give its arguments with "
            "fn_constructor_args=(...) and fn_constructor_kwargs={...}"
        )
