"""Steps that users give to streams: functions, expressions, splits and operators of their own.

Each is checked where it is given, so an error names the user's line. `column_step` is for `select` and
`with_columns`, `split_step` for `split`, `given_function` for `map`, `flat_map`, `filter` and `map_batches`,
`add_transform` for `transform`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, get_args

import pyarrow.compute as pc

from penstock.runtime.graph.stream_graph import Upstream
from penstock.runtime.graph.streams.checked_call import (
    OPTION_NAMES,
    OperatorOptions,
    need_function,
    need_object,
    refuse,
)
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.names import problem_with_name
from penstock.runtime.operators.coordinators import HasCoordinator
from penstock.runtime.operators.expressions.expression_operators import SplitExpressionsOperator, shown
from penstock.runtime.operators.functions.record_functions import SplitOperator
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorFactory
from penstock.runtime.operators.user_code.function_class import FunctionClass, is_function_class
from penstock.runtime.operators.user_operator import UserOperator
from penstock.runtime.state.known_states import list_states_of
from penstock.runtime.user_location import function_name


class ColumnStep(NamedTuple):
    """A checked call."""

    columns: dict[str, pc.Expression]
    options: OperatorOptions
    shown: str


def column_step(
    call: str,
    names: Sequence[str] | None,
    columns: Mapping[str, pc.Expression] | None,
    others: Mapping[str, Any],
) -> ColumnStep:
    """Tell computed columns from options, and refuse what is neither.

    Raises:
        GraphError: Names the argument and the user's line.
    """
    computed: dict[str, Any] = {}
    if columns is not None:
        if not isinstance(columns, Mapping):
            refuse(f"{call}: columns are given by name, as keywords or in a dict, not {columns!r:.80}")
        computed.update(columns)
    options = {}
    for name, value in others.items():
        if name in OPTION_NAMES and not isinstance(value, pc.Expression):
            options[name] = value
        elif name in computed:
            refuse(f"{call}: the column {name!r} is given twice")
        else:
            computed[name] = value
    _check(call, names or (), computed)
    if names is not None and not names and not computed:
        refuse("select needs at least one column")
    if names is None and not computed:
        refuse("with_columns needs at least one column, such as total=pc.field('a') + pc.field('b')")
    text = ", ".join([*(names or ()), *(f"{name}={shown({name: e})}" for name, e in computed.items())])
    return ColumnStep(computed, cast(OperatorOptions, options), text)


def _check(call: str, names: Iterable[object], computed: Mapping[str, Any]) -> None:
    seen = set()
    for name in (*names, *computed):
        if isinstance(name, pc.Expression):
            refuse(f"{call}: give the expression {shown({'': name})} a name: {call}(name=...)")
        if not isinstance(name, str):
            refuse(f"{call}: {name!r:.80} is no name of a column")
        if name in seen:
            refuse(f"{call}: the column {name!r} is given twice")
        seen.add(name)
    for name, value in computed.items():
        if not isinstance(value, pc.Expression):
            refuse(
                f"{call}: {name}={value!r:.80} is no expression of pyarrow.compute; "
                f"for a column write pc.field(name), for a constant pc.scalar(value)"
            )


#: The stream of the records that no predicate has taken.
REST: Final = "rest"


class SplitStep(NamedTuple):
    """A split's operator, and its predicates as the operator's name shows them."""

    shown: str
    factory: OperatorFactory


def split_step(predicates: Any) -> SplitStep:
    """The operator of a split.

    Raises:
        GraphError: A name or a predicate can't be meant; names the user's line.
    """
    if not isinstance(predicates, Mapping) or not predicates:
        refuse(f'split needs predicates by name, such as {{"large": is_large}}, not {predicates!r:.80}')
    for name, predicate in predicates.items():
        problem = problem_with_name(name)
        if problem is not None:
            refuse(f"split: {problem} ({name!r:.80})")
        if name == REST:
            refuse("split: 'rest' is the stream of what no predicate takes; choose another name")
        if not isinstance(predicate, pc.Expression):
            need_function(f"split: {name!r}", predicate)
        if inspect.isclass(predicate):
            refuse(f"split: {name!r} needs a function, not the class {predicate.__name__}")
    are_expressions = {isinstance(predicate, pc.Expression) for predicate in predicates.values()}
    if len(are_expressions) == 2:
        refuse("split: give functions or expressions of columns, not both")
    if are_expressions == {True}:
        return SplitStep(shown(predicates), partial(SplitExpressionsOperator, dict(predicates)))
    names = ", ".join(map(function_name, predicates.values()))
    return SplitStep(names, partial(SplitOperator, dict(predicates)))


In = TypeVar("In", contravariant=True)

Out = TypeVar("Out", covariant=True)


class FunctionObject(Protocol[In, Out]):
    """An object that is called as a function."""

    def __call__(self, given: In, /) -> Out:
        """Called with a record or a batch."""
        ...


def given_function(
    call: str, function: object, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Callable[..., Any] | FunctionClass:
    """A function as it is, or a class with the arguments of its constructor.

    Args:
        args: The user's `fn_constructor_args`.
        kwargs: The user's `fn_constructor_kwargs`.

    Raises:
        GraphError: It can't be called, or can't be made with these arguments; names the user's line.
    """
    if isinstance(args, str | bytes) or not isinstance(args, Iterable):
        refuse(f"{call}: fn_constructor_args is a tuple or a list of arguments, not {args!r:.80}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        refuse(f"{call}: fn_constructor_kwargs is a dict of arguments by name, not {kwargs!r:.80}")
    positional, named = tuple(args), dict(kwargs or {})
    if inspect.isclass(function) and is_function_class(function):
        _check_constructor(call, function, positional, named)
        return FunctionClass(function, positional, named)
    need_function(call, function)
    if positional or named:
        refuse(
            f"{call}: fn_constructor_args and fn_constructor_kwargs are for a class with a method __call__, "
            f"whose objects are made in the subtasks, not for {function!r:.80}"
        )
    if list_states_of(type(function)):
        kind = type(function).__name__
        refuse(
            f"{call}: {kind} declares state, so each subtask makes an object of its own: give the class, "
            f"{call}({kind}, fn_constructor_args=(...)), not an object"
        )
    own: Any = function
    return own  # type: ignore[no-any-return]


def _check_constructor(call: str, kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(kind)
    except (TypeError, ValueError):  # one that is written in C tells nothing
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        refuse(
            f"{call}: {kind.__name__}{signature} can't be made: {error}. Give its arguments with "
            "fn_constructor_args=(...) and fn_constructor_kwargs={...}"
        )


def add_transform(
    builder: GraphBuilder,
    inputs: tuple[Upstream, ...],
    operator_id: str,
    operator: Operator,
    options: OperatorOptions,
    key_selector: Callable[[Any], Any] | None = None,
) -> Upstream:
    """Add a user's operator; its main output comes back.

    Args:
        key_selector: Of a keyed stream; `None` for any other.

    Raises:
        GraphError: It is no operator, or declares what can't be; names the user's line.
    """
    hint = "; for a plain function use map, flat_map or map_batches" if callable(operator) else ""
    need_object("transform", operator, Operator, hint)
    name, known = type(operator).__name__, get_args(BatchFormats)
    if type(operator).process is Operator.process and "process" not in vars(operator):
        refuse(f"transform: {name} has no method process(batch): write one that yields batches")
    if operator.batch_format not in known:
        allowed = ", ".join(map(repr, known))
        refuse(f"transform: {name}.batch_format is {operator.batch_format!r}; it is one of {allowed}")
    if operator.keyed and key_selector is None:
        refuse(f"transform: {name}.keyed is True, so it needs a keyed stream: call key_by(function) first")
    return builder.add(
        "transform",
        name,
        partial(UserOperator, operator, key_selector),
        inputs,
        operator_id,
        options,
        stateful=True,
        keyed=key_selector is not None,
        makes_watermarks=operator.makes_watermarks,
        coordinator=operator if isinstance(operator, HasCoordinator) else None,
        function=operator,
    )
