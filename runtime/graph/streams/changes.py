"""Refuses calls that would treat changes as additions, when the graph is built.

Two kinds of operators emit more than additions. Some emit changes, with the kind of each in a column: `top_n`
with `change_kind`, and sources of changes. Others emit updates: a new record of a key replaces the last one.
These are a running `aggregate`, `latest_by`, and `dedup` with `keep="last"`. The graph tracks changes through
`filter`, `split` and `assign_timestamps_and_watermarks`; it forgets them at any other operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode, Upstream
from penstock.runtime.graph.streams.checked_call import refuse


@runtime_checkable
class GivesChanges(Protocol):
    """A source whose records may be changes.

    Attributes:
        change_kind: Column with the kind of each change; `None` if all records are rows.
    """

    change_kind: str | None


@runtime_checkable
class AppliesChanges(Protocol):
    """A sink that can replace and delete rows by key.

    Attributes:
        key: Columns that identify a row; empty if all records are added.
        change_kind: Column with the kind of each change; `None` if each record replaces the row of its key.
    """

    key: Sequence[str]
    change_kind: str | None


def check_sink(graph: StreamGraph, inputs: Sequence[Upstream], operator_id: str, sink: object) -> None:
    """Refuse changes that a table would treat as additions; other sinks write each change as a record."""
    maker = graph.maker_of_changes(inputs)
    if maker is None or not isinstance(sink, AppliesChanges):
        return
    assert maker.changes is not None, "it makes changes"
    column, what = maker.changes.change_kind, f"sink {operator_id!r}: {_shown(maker)}"
    kind = type(sink).__name__
    if column is not None and sink.change_kind != column:
        refuse(
            f"{what} emits changes, whose kinds are in the column {column!r}, but this {kind} has "
            f"change_kind={sink.change_kind!r}. Set key= and change_kind={column!r}, or map the records "
            "before the sink to add each of them"
        )
    if column is None and not sink.key:
        refuse(
            f"{what} emits a new record when the result of a key changes, but a {kind} without key= adds "
            "each of them. Set key= to the columns of the key, or map the records before the sink to add "
            "each of them"
        )


def refuse_changes(
    graph: StreamGraph, inputs: Sequence[Upstream], call: str, key_columns: Sequence[str] = ()
) -> None:
    """Refuse changes with a kind for an operator that would treat a deletion as a row.

    Args:
        key_columns: Columns of the operator's key. Changes are allowed if the column of kinds is among them.
    """
    maker = graph.maker_of_changes(inputs)
    column = maker.changes.change_kind if maker is not None and maker.changes is not None else None
    if maker is not None and column is not None and column not in key_columns:
        refuse(
            f"{call}: {_shown(maker)} emits changes, whose kinds are in the column {column!r}, and {call} "
            "would treat a deletion as a row. Map or select the records before it, for example to negative "
            "numbers for deletions"
        )


def _shown(maker: StreamNode) -> str:
    operator = maker.operator
    name = f"{maker.kind} {operator.id!r}" if operator.id else maker.kind
    return f"{name} ({operator.defined_at})"
