"""The tree of a `pyarrow.compute` expression, for sources that compute filters elsewhere.

An expression has no attributes for its parts, and its text is ambiguous. Its serialized form is exact. It
lists calls, fields and literals in order; a call ends with its options and an entry `end`. It stores the
values of literals and options as the columns of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.expressions import FieldPath, entries_of, serialized


@dataclass(frozen=True, slots=True)
class Field:
    """A reference to a column, or to a field inside it."""

    path: FieldPath


@dataclass(frozen=True, slots=True)
class Literal:
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of Arrow's functions.

    Attributes:
        function: Arrow's name of the function, such as `and_kleene` or `greater`.
    """

    function: str
    arguments: tuple[Node, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


Node: TypeAlias = Field | Literal | Call


def tree_of(expression: pc.Expression) -> Node | None:
    """The tree of an expression.

    `None` if it refers to a column by its position, or a later version of Arrow has added a kind of entry.

    Example:
        >>> tree_of(~pc.field("v"))
        Call(function='invert', arguments=(Field(path=('v',)),), options={})
    """
    entries = entries_of(expression)
    if entries is None:
        return None
    values = pa.ipc.open_file(serialized(expression)).get_batch(0).columns
    #: Calls that have not ended: function, arguments so far, options.
    open_calls: list[tuple[str, list[Node], dict[str, Any]]] = [("", [], {})]
    left = iter(entries)
    for key, value in left:
        if key == "call":
            open_calls.append((value, [], {}))
            continue
        if key == "options":
            given = values[int(value)][0]
            open_calls[-1][2].update((name, given[name]) for name in given if name != "_type_name")
            continue
        node: Node
        match key:
            case "field_ref":
                node = Field((value,))
            case "nested_field_ref":
                node = Field(tuple(next(left)[1] for _ in range(int(value))))
            case "literal":
                node = Literal(values[int(value)][0])
            case "end":
                function, arguments, options = open_calls.pop()
                node = Call(function, tuple(arguments), options)
            case _:
                return None  # an entry of a later version of Arrow
        open_calls[-1][1].append(node)
    ((_, (root,), _),) = open_calls
    return root
