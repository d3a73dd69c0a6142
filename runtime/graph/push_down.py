"""Push-down: sources, filters and selections leave out columns and rows that no later step reads.

`source.filter(pc.field("v") > 3).select("k", "v")` needs two columns, and only the parts of the files that
may hold matching rows. So the source receives the needed columns and the filter as a hint, which it may use
in part or not at all. Results, ids and states of the operators stay as the user wrote them.

**Columns** are followed from the last steps to the first. Each step adds the columns that it reads to those
that the steps after it read. A stream with several readers needs the columns of all of them. A step without a
known list of columns needs all of them: a function, a sink, a join, or a key by a function. So does a step
with a side output that is read, because late records have all columns.

An aggregation reads its keys and its inputs. Only these reach it: `select` and `with_columns` compute no
column that is not read, and a filter drops such columns. So unread columns are not sent over channels either.
Operators with records in their state keep all columns, because a later version of the job may read others.

**Filters** are followed from the source, as long as each output has exactly one reader. A filter is pushed
unless a step before it computes columns or assigns timestamps. A source with a watermark strategy counts as
such a step. A filter after the timestamps is not pushed, because the rows that it drops must still move the
watermark.

**Steps** on columns can run where a source's rows are (`RunsSteps`). They are filters, selections, computed
columns, pushable functions of `map_batches`, and the combiner of an aggregation. They are followed like
filters. In the place of each step the job has an operator that passes the records on. So ids, chains and
snapshots do not change. Steps with other functions of the user stay in the job. So do steps with resources or
a chain of their own.

A combiner of windows moves together with the step that assigns timestamps, and with the steps between the
two. Their watermarks travel with the rows. `aggregation/panes_at_source.py` says why no record then becomes
late, or on time. These steps stay in the job if

- the windows have no combiner: sessions, `CountDistinct`, overlapping windows that need the order of rows;
- late records are read, because partial results do not contain them;
- the watermarks or timestamps need a function of the user, or the timestamps are those of the source;
- the step has another parallelism than the source, because each subtask follows only its own rows.

A column that an operator reads must never be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow.compute as pc

from penstock.runtime.errors import OperatorLocation
from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode
from penstock.runtime.operators.aggregation.keyed_aggregate import CombineOperator, KeyedAggregateOperator
from penstock.runtime.operators.aggregation.paned_aggregate import PanedAggregateOperator
from penstock.runtime.operators.aggregation.panes import WindowCombineOperator
from penstock.runtime.operators.aggregation.panes_at_source import WindowCombineAtSource
from penstock.runtime.operators.aggregation.session_aggregate import SessionAggregateOperator
from penstock.runtime.operators.aggregation.window_aggregate import WindowedAggregateOperator
from penstock.runtime.operators.carried_watermarks import CarriedWatermarksOperator
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expression_operators import FilterExpressionOperator, SelectOperator
from penstock.runtime.operators.expressions import fields_of
from penstock.runtime.operators.functions.record_functions import MapBatchesOperator
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.source import DescribesPart, NeededColumns, ReadsInPart, RunsSteps
from penstock.runtime.operators.source_steps import PassesOn, SourceStep
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.time.watermarks import WatermarkStrategy

_AGGREGATIONS: Final = (
    CombineOperator,
    KeyedAggregateOperator,
    WindowedAggregateOperator,
    PanedAggregateOperator,
    SessionAggregateOperator,
)


@dataclass(frozen=True, eq=False, slots=True)
class _Columns:
    """Columns of a stream that are read.

    Attributes:
        names: Columns that are read whole.
        expressions: Expressions whose columns are read. None of them refers to a column by its position.
    """

    names: tuple[str, ...] = ()
    expressions: tuple[pc.Expression, ...] = ()

    def __or__(self, other: _Columns) -> _Columns:
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        return _Columns(names, (*self.expressions, *other.expressions))

    @property
    def roots(self) -> frozenset[str]:
        """Names of all columns that are read in whole or in part."""
        return frozenset((*self.names, *(path[0] for path in self._nested)))

    @property
    def fields(self) -> tuple[tuple[str, ...], ...]:
        """Paths of columns and of nested fields."""
        return tuple(dict.fromkeys((*((name,) for name in self.names), *self._nested)))

    @property
    def _nested(self) -> Iterator[tuple[str, ...]]:
        return (path for each in self.expressions for path in fields_of(each) or ())

    def before(self, computed: Mapping[str, pc.Expression]) -> _Columns | None:
        """The columns to read before some columns are computed; `None` for all."""
        read = self.roots
        names = tuple(name for name in self.names if name not in computed)
        expressions = [each for name, each in computed.items() if name in read]
        for each in self.expressions:
            paths = fields_of(each) or ()
            if not any(path[0] in computed for path in paths):
                expressions.append(each)
            else:
                expressions += [pc.field(*path) for path in paths if path[0] not in computed]
        return _of_expressions(expressions, names)


def _of_expressions(expressions: Sequence[pc.Expression], names: Sequence[str] = ()) -> _Columns | None:
    """The columns `names` and those of expressions; `None` if an expression refers to a position."""
    if any(fields_of(each) is None for each in expressions):
        return None
    return _Columns(tuple(names), tuple(expressions))


def pushed_down(graph: StreamGraph) -> list[StreamNode]:
    """The nodes of a graph, with sources, filters and selections that leave out what no step reads."""
    nodes = [
        _narrowed_source(number, graph, read)
        if graph.node(number).operator.source is not None
        else _narrowed(graph.node(number), read)
        for number, read in enumerate(_columns_read(graph))
    ]
    for number, node in enumerate(nodes):
        if isinstance(node.operator.source, RunsSteps) and node.operator.watermarks is None:
            _move_steps(number, graph, nodes)
    return nodes


def _move_steps(number: int, graph: StreamGraph, nodes: list[StreamNode]) -> None:
    """Let a source run the steps after it that it can run; others pass its records on instead."""
    node = nodes[number]
    source = node.operator.source
    assert isinstance(source, RunsSteps)
    moved = _movable_steps(number, graph, nodes)
    ids = graph.operator_ids()
    steps = []
    for at in moved:
        operator = nodes[at].operator
        location = OperatorLocation(ids[at], None, 1, operator.defined_at)
        steps.append(SourceStep(location, _at_source(nodes[at])))
    running = source.running(steps) if steps else None
    if running is None:
        return
    nodes[number] = replace(node, operator=replace(node.operator, source=running))
    for at in moved:
        operator = nodes[at].operator
        name = f"{operator.name}, in {running.steps_run_in}"
        nodes[at] = replace(nodes[at], operator=replace(operator, name=name, factory=_in_job(nodes[at])))


def _at_source(step: StreamNode) -> OperatorFactory:
    """Makes the operator of a step that runs at the source."""
    match _operator_of(step):
        case operator, arguments if operator is WindowCombineOperator:
            return partial(WindowCombineAtSource, *arguments)
    assert step.operator.factory is not None, "it is no source"
    return step.operator.factory


def _in_job(step: StreamNode) -> OperatorFactory:
    """Makes the operator that takes the place of a moved step in the job."""
    match _operator_of(step):
        case operator, arguments if operator is TimestampsAndWatermarksOperator:
            return partial(CarriedWatermarksOperator, *arguments)
    return partial(PassesOn)


def _movable_steps(number: int, graph: StreamGraph, nodes: Sequence[StreamNode]) -> list[int]:
    """The steps behind a source that can run where its rows are.

    A step that assigns timestamps, and the steps after it, move only up to a combiner of windows.
    """
    moved: list[int] = []
    timed: int | None = None
    for at in _steps_behind(number, graph):
        step = nodes[at]
        has_wishes = step.disable_chaining or step.start_new_chain or step.num_cpus or step.num_gpus
        is_partitioned = step.inputs[0].partitioner is not None
        if has_wishes or step.resources or is_partitioned:
            break
        match _operator_of(step):
            case operator, _ if operator in (FilterExpressionOperator, SelectOperator):
                pass
            case operator, _ if operator is MapBatchesOperator and _is_pushable(step):
                pass
            case operator, (strategy,) if operator is TimestampsAndWatermarksOperator:
                if timed is not None or not _follows_newest(strategy):
                    break
                timed = len(moved)
            case operator, (_, aggregation, *_) if operator in (CombineOperator, WindowCombineOperator):
                if (operator is WindowCombineOperator) is (timed is None) or not aggregation.is_built_in:
                    break
                if timed is None:
                    return [*moved, at]
                moved.append(at)
                same = all(nodes[each].parallelism == nodes[number].parallelism for each in moved)
                return moved if same and not _reads_late(at, graph) else moved[:timed]
            case _:
                break
        moved.append(at)
    return moved[:timed]


def _follows_newest(strategy: WatermarkStrategy[Any]) -> bool:
    """Whether a watermark depends on the newest timestamp alone, and timestamps on a column."""
    return strategy.timestamp_column is not None and strategy.generator is None


def _reads_late(combiner: int, graph: StreamGraph) -> bool:
    """Whether late records of the windows after a combiner are read."""
    readers = (at for at, node in enumerate(graph.nodes) for up in node.inputs if up.node == combiner)
    return any(_is_read_aside(at, graph) for at in readers)


def _columns_read(graph: StreamGraph) -> list[_Columns | None]:
    """The columns of each node's output that its readers read; `None` for all."""
    nodes = graph.nodes
    has_reader = [False] * len(nodes)
    is_read_aside = [False] * len(nodes)
    read: list[_Columns | None] = [_Columns() for _ in nodes]
    for number in reversed(range(len(nodes))):  # readers come after the nodes that they read
        if is_read_aside[number] or not has_reader[number]:
            read[number] = None
        before = None if is_read_aside[number] else _columns_before(nodes[number], read[number])
        for upstream in nodes[number].inputs:
            has_reader[upstream.node] = True
            is_read_aside[upstream.node] |= upstream.tag is not None
            wanted = before
            if upstream.partitioner is not None and wanted is not None:
                wanted = _with_key(upstream.partitioner.key_selector, wanted)
            others = read[upstream.node]
            read[upstream.node] = None if others is None or wanted is None else others | wanted
    return read


def _with_key(selector: object, columns: _Columns) -> _Columns | None:
    if selector is None:
        return columns
    return columns | _Columns(tuple(selector.names)) if isinstance(selector, ColumnKey) else None


def _columns_before(step: StreamNode, read: _Columns | None) -> _Columns | None:
    """The columns that a step reads if `read` are read of its output; `None` for all."""
    match _operator_of(step):
        case operator, (pc.Expression() as wanted, *_) if operator is FilterExpressionOperator:
            own = _of_expressions([wanted])
            return None if read is None or own is None else own | read
        case operator, (names, computed) if operator is SelectOperator:
            if names is None:
                return None if read is None else read.before(computed)
            kept = _Columns(tuple(dict.fromkeys((*names, *computed))))
            return (kept if read is None else _kept(read, kept.names)).before(computed)
        case operator, (strategy,) if operator is TimestampsAndWatermarksOperator:
            return _before_timestamps(strategy, read)
        case operator, (key, aggregation, *_) if operator is WindowCombineOperator:
            # This operator passes on late records unchanged; the windows after it may read them.
            own = _Columns((*key.names, *aggregation.inputs))
            return None if read is None else own | read
        case operator, (key, aggregation, *_) if operator in _AGGREGATIONS:
            return _Columns((*key.names, *aggregation.inputs))
    return None


def _operator_of(step: StreamNode) -> tuple[Any, tuple[Any, ...]]:
    """The class of a step's operator and its arguments; `None` without a known class."""
    factory = step.operator.factory
    return (factory.func, factory.args) if isinstance(factory, partial) else (None, ())


def _kept(read: _Columns, there: Sequence[str]) -> _Columns:
    """The columns that are read among those that a selection returns.

    A step that reads a column that the selection lacks raises an error.
    """
    names = tuple(name for name in read.names if name in there)
    return _Columns(names, read.expressions)


def _before_timestamps(strategy: WatermarkStrategy[Any], read: _Columns | None) -> _Columns | None:
    if read is None or strategy.timestamp_assigner is not None or strategy.generator is not None:
        return None
    return read if strategy.timestamp_column is None else _Columns((strategy.timestamp_column,)) | read


def _narrowed(node: StreamNode, read: _Columns | None) -> StreamNode:
    """Return the node; as a filter or a selection it leaves out columns that no step reads."""
    if read is None:
        return node
    roots = read.roots
    factory: partial[Any]
    match _operator_of(node):
        case operator, (wanted,) if operator is FilterExpressionOperator:
            factory = partial(FilterExpressionOperator, wanted, roots)
        case operator, (names, computed) if operator is SelectOperator:
            kept = None if names is None else [name for name in names if name in roots]
            left = {name: each for name, each in computed.items() if name in roots}
            if not (kept or left or names is None):
                return node  # a batch without columns has no number of rows
            factory = partial(SelectOperator, kept, left)
        case _:
            return node
    return replace(node, operator=replace(node.operator, factory=factory))


def _narrowed_source(number: int, graph: StreamGraph, read: _Columns | None) -> StreamNode:
    """Return the source's node, in which the source knows the columns and rows that later steps need."""
    node = graph.node(number)
    source, strategy = node.operator.source, node.operator.watermarks
    if not isinstance(source, ReadsInPart):
        return node
    if strategy is not None:
        read = _before_timestamps(strategy, read)
    wanted = None if strategy is not None else _pushed_filter(number, graph)
    needed = NeededColumns(wanted=wanted)
    if read is not None:
        needed = NeededColumns(read.names, read.expressions, wanted, read.fields)
    if needed.is_all:
        return node
    part = source.reading(needed)
    described = part.part if isinstance(part, DescribesPart) else ""
    name = f"{node.operator.name}, {described}" if described else node.operator.name
    return replace(node, operator=replace(node.operator, source=part, name=name))


def _is_pushable(step: StreamNode) -> bool:
    """Whether a step of `map_batches` may run at the source."""
    factory = step.operator.factory
    return isinstance(factory, partial) and factory.keywords.get("pushable", False)


def _pushed_filter(number: int, graph: StreamGraph) -> pc.Expression | None:
    """The conditions that all rows of a source meet when they reach a step other than a filter."""
    pushed = None
    for step in map(graph.node, _steps_behind(number, graph)):
        match _operator_of(step):
            case operator, (pc.Expression() as wanted,) if operator is FilterExpressionOperator:
                pushed = wanted if pushed is None else pushed & wanted
            case operator, (_, computed) if operator is SelectOperator and not computed:
                continue
            case _:
                break
    return pushed


def _steps_behind(number: int, graph: StreamGraph) -> Iterator[int]:
    """The steps after a node, as long as each is the only reader of the step before it."""
    while True:
        readers = [(at, up) for at, node in enumerate(graph.nodes) for up in node.inputs if up.node == number]
        if len(readers) != 1:
            return
        ((number, upstream),) = readers
        step = graph.node(number)
        if upstream.tag is not None or len(step.inputs) != 1 or _is_read_aside(number, graph):
            return
        yield number


def _is_read_aside(number: int, graph: StreamGraph) -> bool:
    return any(up.node == number and up.tag is not None for node in graph.nodes for up in node.inputs)
