"""Checks what users give to `select` and `with_columns`: names, expressions and options in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import pyarrow.compute as pc

from penstock.runtime.graph.streams.checked_call import refuse
from penstock.runtime.graph.streams.operator_options import OPTION_NAMES, OperatorOptions
from penstock.runtime.operators.expressions.expression_operator import shown


class ColumnStep(NamedTuple):
    """A checked call.

    Attributes:
        columns: Computed columns by name.
        options: As the user gave them.
        shown: What the operator does, for people.
    """

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
