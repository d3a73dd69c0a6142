"""Push-down: sources leave out what the steps right behind them drop.

`source.filter(pc.field("v") > 3).select("k", "v")` needs two columns, and only those parts of the files that
may hold such rows. So the source is told. The steps stay as they are, and do their work on what is left. What
is pushed is only a hint, which a source may take in part or not at all. Operators, their ids and their states
are those that the user wrote.

The pass follows a source as long as exactly one step reads what comes out:

* Filters by expressions are pushed up to the first step that computes columns or gives timestamps. A row that
  a filter drops behind the timestamps has moved the watermark before.
* Columns are pushed only if a step is found behind which no other column goes on: `select`, or an
  aggregation. All that the steps up to there look at is needed.

What must never happen: a column is left out that somebody reads. So a step of another kind ends the walk, and
so does a key by a function. A second reader ends it, and one of a side output: late records have all columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow.compute as pc

from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode
from penstock.runtime.operators.aggregation.combine_keys import CombineOperator
from penstock.runtime.operators.aggregation.combine_panes import WindowCombineOperator
from penstock.runtime.operators.aggregation.keyed_aggregate import KeyedAggregateOperator
from penstock.runtime.operators.aggregation.session_aggregate import SessionAggregateOperator
from penstock.runtime.operators.aggregation.windowed_aggregate import WindowedAggregateOperator
from penstock.runtime.operators.event_time.timestamps_and_watermarks import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expressions.filter_expression import FilterExpressionOperator
from penstock.runtime.operators.expressions.needed_columns import NeededColumns, ReadsInPart
from penstock.runtime.operators.expressions.select_columns import SelectOperator
from penstock.runtime.record.column_key import ColumnKey


@dataclass(slots=True)
class _Walk:
    """What the steps that were seen so far need."""

    names: list[str] = field(default_factory=list)
    expressions: list[pc.Expression] = field(default_factory=list)
    wanted: pc.Expression | None = None
    computed: set[str] = field(default_factory=set)
    pushes_filters: bool = True
    is_closed: bool = False

    def needed(self) -> NeededColumns:
        """What the source is told."""
        if not self.is_closed:
            return NeededColumns(wanted=self.wanted)
        return NeededColumns(tuple(dict.fromkeys(self.names)), tuple(self.expressions), self.wanted)

    def reads(self, names: Sequence[str]) -> None:
        """A step looks at columns, some of which steps before may have computed."""
        self.names += [name for name in names if name not in self.computed]


def with_push_down(graph: StreamGraph) -> tuple[StreamNode, ...]:
    """The nodes of a graph, with sources that know what is needed of them."""
    return tuple(_told(number, node, graph) for number, node in enumerate(graph.nodes))


def _told(number: int, node: StreamNode, graph: StreamGraph) -> StreamNode:
    if not isinstance(node.source, ReadsInPart):
        return node
    walk = _Walk()
    if node.watermarks is not None and not _takes_operator(
        walk, TimestampsAndWatermarksOperator, (node.watermarks,)
    ):
        return node
    for step in _steps_behind(number, graph):
        if not _takes(walk, step) or walk.is_closed:
            break
    needed = walk.needed()
    return node if needed.is_all else replace(node, source=node.source.reading(needed))


def _steps_behind(number: int, graph: StreamGraph) -> Iterator[StreamNode]:
    """The steps behind a node, as long as each is the only one that reads the step before."""
    while True:
        readers = [(at, up) for at, node in enumerate(graph.nodes) for up in node.inputs if up.node == number]
        if len(readers) != 1:
            return
        ((number, upstream),) = readers
        step = graph.node(number)
        if upstream.tag is not None or len(step.inputs) != 1 or _is_read_aside(number, graph):
            return
        yield step


def _is_read_aside(number: int, graph: StreamGraph) -> bool:
    return any(up.node == number and up.tag is not None for node in graph.nodes for up in node.inputs)


def _takes(walk: _Walk, step: StreamNode) -> bool:
    """Note what a step needs; whether it is a step that is understood."""
    (upstream,) = step.inputs
    selector = None if upstream.partitioner is None else upstream.partitioner.key_selector
    if selector is not None:
        if not isinstance(selector, ColumnKey):
            return False
        walk.reads(selector.names)
    if not isinstance(step.factory, partial):
        return False
    return _takes_operator(walk, step.factory.func, step.factory.args)


def _takes_operator(walk: _Walk, operator: Any, given: tuple[Any, ...]) -> bool:
    match operator, given:
        case _, (pc.Expression() as wanted,) if operator is FilterExpressionOperator:
            walk.expressions.append(wanted)
            if walk.pushes_filters:
                walk.wanted = wanted if walk.wanted is None else walk.wanted & wanted
        case _, (names, columns) if operator is SelectOperator:
            walk.reads(names or ())
            walk.expressions += columns.values()
            walk.computed.update(columns)
            walk.pushes_filters = walk.pushes_filters and not columns
            walk.is_closed = names is not None
        case _, (strategy,) if operator is TimestampsAndWatermarksOperator:
            if strategy.timestamp_assigner is not None or strategy.generator is not None:
                return False
            walk.reads([] if strategy.timestamp_column is None else [strategy.timestamp_column])
            walk.pushes_filters = False
        case _, (key, aggregation, *_) if operator is WindowCombineOperator:
            # It hands late records on as they are; the windows behind it say whether somebody reads them.
            walk.reads([*key.names, *aggregation.inputs])
        case _, (key, aggregation, *_) if operator in _AGGREGATIONS:
            walk.reads([*key.names, *aggregation.inputs])
            walk.is_closed = True
        case _:
            return False
    return True


_AGGREGATIONS = (
    CombineOperator,
    KeyedAggregateOperator,
    WindowedAggregateOperator,
    SessionAggregateOperator,
)
