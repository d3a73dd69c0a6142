"""Checks of calls of the graph API, and the options that every operator takes.

Python's own `TypeError` for `reduce(add)` says that `function` is missing, but the user forgot the id. So a
decorator binds the arguments first. Its error names the user's line and the nearest valid name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, ParamSpec, TypedDict, TypeVar, get_args

from penstock.runtime.arity import arity_problem
from penstock.runtime.config.job_config import HeapState, StateBackend
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.runtime.graph.stream_graph import problem_with_id
from penstock.runtime.names import nearest_argument, problem_with_name
from penstock.runtime.operators.user_code.function_class import OutputTag
from penstock.runtime.user_location import user_location

_ID_HINT: Final = (
    "; the id comes first, and must stay the same when the program changes: a restore finds state by it"
)

P = ParamSpec("P")
R = TypeVar("R")


def refuse(what: str) -> NoReturn:
    """Raise a `GraphError` that begins with the user's line."""
    msg = f"{user_location()}: {what}"
    raise GraphError(msg)


class refusals:
    """Context manager: turns a `ConfigurationError` into a `GraphError` with the user's line."""

    def __init__(self, call: str = "") -> None:
        self._start = f"{call}: " if call else ""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ConfigurationError):
            refuse(f"{self._start}{error}")


def need_function(call: str, function: object, *arguments: str) -> None:
    """Refuse an object that is not a function, or that can't be called with these positional arguments.

    Args:
        arguments: Names of the arguments for the message; none skips that check.
    """
    if not callable(function):
        refuse(f"{call} needs a function, not {function!r:.80}")
    problem = arity_problem(function, arguments) if arguments else None
    if problem is not None:
        refuse(f"{call}: the function {problem}")


def need_methods(call: str, given: object, **methods: tuple[str, ...]) -> None:
    """Refuse an object with a method that can't be called with these positional arguments."""
    for name, arguments in methods.items():
        problem = arity_problem(getattr(given, name), arguments)
        if problem is not None:
            refuse(f"{call}: {name} {problem}")


def need_object(call: str, value: object, kind: type, hint: str = "") -> None:
    """Refuse a class, and objects of another class; `hint` is appended to the message."""
    if inspect.isclass(value):
        refuse(f"{call}: give an object, {value.__name__}(...), not the class itself")
    if not isinstance(value, kind):
        article = "an" if kind.__name__.startswith(("A", "E", "I", "O")) else "a"
        refuse(f"{call}: {value!r:.80} is not {article} {kind.__name__}{hint}")


def need_tag(call: str, tag: object) -> str:
    """Return the name of a side output's tag; refuse other values, and tags without a name."""
    if not isinstance(tag, OutputTag):
        refuse(f'{call} needs an OutputTag("name"), not {tag!r:.80}')
    if not tag.name:
        refuse(f'{call}: the tag has no name; write OutputTag("name")')
    return tag.name


class WrongStreamError(GraphError, AttributeError):
    """A method belongs to another kind of stream; also an `AttributeError`, for `hasattr`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{user_location()}: {what}")


def checked_call(
    options: Iterable[str] = (), *, takes_others: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function of the graph API explain invalid arguments and ids.

    Args:
        options: Names that the function takes as `**options`.
        takes_others: Whether the function checks further keywords itself.
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
                    refuse(f"{shown} has no argument {keyword!r}{nearest_argument(keyword, known)}")
            problem = _problem(signature, args, kwargs)
            if problem is not None:
                refuse(f"{shown}: {problem}")
            return function(*args, **kwargs)

        return call

    return decorate


def _required(parameters: list[inspect.Parameter]) -> str:
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
    return ", ".join(p.name for p in positional if p.default is p.empty)


def _problem(
    signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str | None:
    """Return the problem of a call (wrong arguments or an invalid id); `None` without one."""
    parameter = signature.parameters.get("id")
    must_have_id = parameter is not None and parameter.default is parameter.empty
    hint = _ID_HINT if must_have_id else ""
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        named = [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        if str(error) == "too many positional arguments" and named:
            hint = f"; give {', '.join(f'{name}=...' for name in named)} by name"
        return f"{error}{hint}"
    value = arguments.get("id")
    if parameter is None or (value is None and not must_have_id):
        return None
    problem = problem_with_id(value)
    return problem and (problem if isinstance(value, str) else f"{problem}{hint}")


class OperatorOptions(TypedDict, total=False):
    """Options of an operator: its subtasks and their resources.

    Attributes:
        parallelism: Number of subtasks; the environment's by default.
        num_cpus: CPUs that Ray reserves for each subtask. By default an operator has the number of the chain
            that it joins, or 0 if it begins a chain. Another number begins a new chain.
        num_gpus: GPUs, as for `num_cpus`.
        resources: Amounts of Ray's custom resources by name, as for `num_cpus`: `{"host1": 1}`.
        start_new_chain: Never run in the same subtask as the producer.
        disable_chaining: Run in separate subtasks, without producer and consumer.
        state_backend: Backend of the operator's keyed state; the job's backend by default.
    """

    parallelism: int
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    start_new_chain: bool
    disable_chaining: bool
    state_backend: StateBackend


#: Resources of Ray that have an option of their own.
_OWN_OPTIONS: Final = {"CPU": "num_cpus", "GPU": "num_gpus"}
OPTION_NAMES: Final = tuple(OperatorOptions.__annotations__)

#: Decorators of methods without options, with operator options, and with keywords that the methods check.
checked = checked_call()
checked_with_options = checked_call(OPTION_NAMES)
checked_with_keywords = checked_call(takes_others=True)


def check_options(call: str, options: OperatorOptions) -> None:
    """Refuse invalid values; `None` means that the option is not given."""
    given = {name: value for name, value in options.items() if value is not None}
    if "parallelism" in given:
        check_parallelism(call, given["parallelism"])
    for name in ("num_cpus", "num_gpus"):
        value = given.get(name, 0)
        if not _is_amount(value):
            refuse(f"{call}: {name} must be a number of at least 0, not {value!r}")
    _check_resources(call, given.get("resources", {}))
    for name in ("start_new_chain", "disable_chaining"):
        check_flag(call, name, given.get(name, False))
    if not isinstance(given.get("state_backend", HeapState()), get_args(StateBackend)):
        refuse(
            f"{call}: state_backend must be HeapState() or RocksDB(...), not {given['state_backend']!r:.80}"
        )


def _check_resources(call: str, resources: object) -> None:
    if not isinstance(resources, Mapping):
        refuse(f'{call}: resources must be amounts by name, such as {{"host1": 1}}, not {resources!r:.80}')
    for name, amount in resources.items():
        problem = problem_with_name(name)
        if problem is None and not str(name).isascii():
            problem = "Ray takes only ASCII characters: rename the resource on the nodes"
        if problem is not None:
            refuse(f"{call}: resources: {problem} ({name!r:.80})")
        if name in _OWN_OPTIONS:
            refuse(f"{call}: give {_OWN_OPTIONS[name]}={amount!r:.80} instead of resources={{{name!r}: ...}}")
        if not _is_amount(amount):
            refuse(f"{call}: resources[{name!r}] must be a number of at least 0, not {amount!r:.80}")


def _is_amount(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < float("inf")


def check_flag(call: str, name: str, value: object) -> None:
    if not isinstance(value, bool):
        refuse(f"{call}: {name} must be True or False, not {value!r:.80}")


def check_parallelism(call: str, value: object, what: str = "parallelism") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        refuse(f"{call}: {what} must be a whole number of at least 1, not {value!r}")
