"""Adds an operator of the user's own to a graph: `transform` of plain and of keyed streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from penstock.runtime.graph.stream_graph import Upstream
from penstock.runtime.graph.streams.checked_call import need_object, refuse
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.graph.streams.operator_options import OperatorOptions
from penstock.runtime.operators.coordinators.operator_coordinator import HasCoordinator
from penstock.runtime.operators.operator import BatchFormats, Operator
from penstock.runtime.operators.user_operators.user_operator import UserOperator


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
    if operator.takes not in known:
        refuse(f"transform: {name}.takes is {operator.takes!r}; it is one of {', '.join(map(repr, known))}")
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
