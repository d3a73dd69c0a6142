"""`stream.split`: checks what the user gave, and makes the operator."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc

from penstock.runtime.graph.streams.checked_call import need_function, refuse
from penstock.runtime.names import problem_with_name
from penstock.runtime.operators.expressions.expression_operator import shown
from penstock.runtime.operators.expressions.split_expressions import SplitExpressionsOperator
from penstock.runtime.operators.functions.split import SplitOperator
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.user_location import function_name

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
