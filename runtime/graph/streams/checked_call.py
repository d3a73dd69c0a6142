"""Wrong calls of the graph API become errors that name the user's line and the nearest right name.

Python's own `TypeError` for `reduce(add)` says that `function` is missing, while what the user forgot is the
id. The decorator here binds the arguments first and explains what did not fit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, ParamSpec, TypeVar

from penstock.runtime.errors import GraphError
from penstock.runtime.graph.operator_ids import problem_with_id
from penstock.runtime.misspelt_names import nearest_name
from penstock.runtime.user_location import user_location

_ID_HINT: Final = "; the id comes first and stays the same when the program changes: state is found under it"

P = ParamSpec("P")
R = TypeVar("R")


def refuse(what: str) -> NoReturn:
    """Raise a `GraphError` that begins with the user's line.

    Raises:
        GraphError: Always.
    """
    msg = f"{user_location()}: {what}"
    raise GraphError(msg)


def need_function(call: str, function: object) -> None:
    """Refuse what can't be called.

    Raises:
        GraphError: It can't; names the user's line.
    """
    if not callable(function):
        refuse(f"{call} needs a function, not {function!r:.80}")


def need_object(call: str, value: object, kind: type, hint: str = "") -> None:
    """Refuse what is no object of a class that users derive from.

    Args:
        call: The method that was called.
        kind: The class.
        hint: What to do instead, where it is something else.

    Raises:
        GraphError: It is the class itself, or something else; names the user's line.
    """
    if inspect.isclass(value):
        refuse(f"{call}: give an object, {value.__name__}(...), not the class itself")
    if not isinstance(value, kind):
        refuse(f"{call}: {value!r:.80} is no {kind.__name__}{hint}")


class WrongStreamError(GraphError, AttributeError):
    """A method was looked for on the wrong kind of stream; still an `AttributeError` for `hasattr`.

    Args:
        what: What is wrong and what to do; the user's line is put in front of it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{user_location()}: {what}")


def checked_call(
    options: Iterable[str] = (), *, takes_others: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function of the graph API explain calls that don't fit, and ids that can't be ids.

    Args:
        options: The names that the function takes as `**options`.
        takes_others: Whether it takes keywords of any other name, too.
    """
    option_names = tuple(options)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        known = [*(p.name for p in parameters if p.name != "self"), *option_names]
        name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        shown = f"{name}({_required(parameters)})"

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for keyword in kwargs:
                if keyword not in known and not takes_others:
                    refuse(f"{shown} has no argument {keyword!r}{nearest_name(keyword, known)}")
            problem = _problem(signature, args, kwargs)
            if problem is not None:
                refuse(f"{shown}: {problem}")
            return function(*args, **kwargs)

        return call

    return decorate


def _required(parameters: list[inspect.Parameter]) -> str:
    """The arguments that must be given, in order."""
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
    return ", ".join(p.name for p in positional if p.default is p.empty)


def _problem(
    signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str | None:
    """What is wrong with a call: arguments that don't fit, or an id that can't be one."""
    parameter = signature.parameters.get("id")
    must_have_id = parameter is not None and parameter.default is parameter.empty
    hint = _ID_HINT if must_have_id else ""
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        return f"{error}{hint}"
    value = arguments.get("id")
    if parameter is None or (value is None and not must_have_id):
        return None
    problem = problem_with_id(value)
    return problem and (problem if isinstance(value, str) else f"{problem}{hint}")
