"""`aggregate` over columns: adds an aggregation to a graph, with combiners before the exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast, get_args

from penstock.runtime.graph.stream_graph import Changes, Upstream
from penstock.runtime.graph.streams.changes import refuse_changes
from penstock.runtime.graph.streams.checked_call import (
    OPTION_NAMES,
    OperatorOptions,
    check_flag,
    need_methods,
    need_object,
    refusals,
    refuse,
)
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.graph.streams.window_settings import WindowSettings
from penstock.runtime.names import nearest_name
from penstock.runtime.operators.aggregation.aggregation import OF, Aggregation
from penstock.runtime.operators.aggregation.column_aggregate import ColumnAggregate
from penstock.runtime.operators.aggregation.keyed_aggregate import CombineOperator, KeyedAggregateOperator
from penstock.runtime.operators.aggregation.paned_aggregate import PanedAggregateOperator
from penstock.runtime.operators.aggregation.panes import PANE, ColumnWindows, Panes, WindowCombineOperator
from penstock.runtime.operators.aggregation.session_aggregate import SessionAggregateOperator
from penstock.runtime.operators.aggregation.vectorized_aggregate import AnyAggregate, VectorizedAggregate
from penstock.runtime.operators.aggregation.window_aggregate import (
    START,
    WINDOW_END,
    WINDOW_START,
    WindowedAggregateOperator,
)
from penstock.runtime.operators.functions.keyed_folds import AggregateFunction
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.record.column_key import ALL_RECORDS, ColumnKey
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.time.windows import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    slide_of,
)

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream


class AggregateCall(NamedTuple):
    """Arguments of an `aggregate` call: one `AggregateFunction`, or functions of columns.

    Attributes:
        function: The `AggregateFunction`; `None` if columns are given.
        columns: Functions by the name of their result; their names and columns are not yet checked.
    """

    function: AggregateFunction[Any, Any, Any] | None
    columns: Mapping[str, AnyAggregate]
    options: OperatorOptions
    combine: bool = True
    emit_every: Duration | None = None


def function_or_columns(
    function: object, named: Mapping[str, Any], settings: tuple[str, ...], other_call: str
) -> AggregateCall:
    """Separate the arguments of `aggregate`, which have the same meaning on every kind of stream.

    Args:
        named: Options, settings, and functions of columns.
        settings: Names of the settings that functions of columns take in addition to the options.
        other_call: The call that messages suggest for a plain function, besides `reduce`.
    """
    options = cast(OperatorOptions, {name: named[name] for name in OPTION_NAMES if name in named})
    own = {name: named[name] for name in settings if name in named}
    columns = {name: value for name, value in named.items() if name not in options and name not in own}
    for name, value in columns.items():
        if isinstance(value, type) or not isinstance(value, ColumnAggregate | VectorizedAggregate):
            hint = nearest_name(name, (*OPTION_NAMES, *settings))
            refuse(
                f'aggregate: {name} is not an aggregate function such as Sum("amount"), '
                f"but {value!r:.80}{hint}"
            )
    if function is None:
        combine = own.get("combine", True)
        check_flag("aggregate", "combine", combine)
        return AggregateCall(None, columns, options, combine, own.get("emit_every"))
    if columns:
        names = ", ".join(columns)
        refuse(f"aggregate: give one AggregateFunction or functions of columns ({names}), not both")
    if own:
        refuse(f"aggregate: only functions of columns take {', '.join(own)}, not an AggregateFunction")
    need_object(
        "aggregate", function, AggregateFunction, f"; for a plain function use reduce or {other_call}"
    )
    need_methods(
        "aggregate",
        function,
        create_accumulator=(),
        add=("value", "accumulator"),
        get_result=("accumulator",),
    )
    return AggregateCall(cast("AggregateFunction[Any, Any, Any]", function), {}, options)


def add_aggregate(
    builder: GraphBuilder,
    inputs: tuple[Upstream, ...],
    operator_id: str,
    key_selector: Callable[[Any], Any],
    call: AggregateCall,
) -> DataStream[Any]:
    key = _column_key(key_selector)
    aggregation = _checked_aggregation(call.columns, key)
    refuse_changes(builder.graph, inputs, "aggregate", key.names)
    with refusals("aggregate"):
        every = None if call.emit_every is None else seconds_in("emit_every", call.emit_every, above=0.0)
    has_combiner = call.combine and aggregation.combines
    if has_combiner:
        factory = partial(CombineOperator, key, aggregation)
        inputs = _combined(builder, inputs, key, factory, operator_id)
    return builder.add(
        "aggregate",
        _shown(call),
        partial(KeyedAggregateOperator, key, aggregation, every, has_combiner=has_combiner),
        inputs,
        operator_id,
        call.options,
        keyed=True,
        in_columns=True,
        changes=Changes(),
    )


def add_windowed_aggregate(
    builder: GraphBuilder,
    inputs: tuple[Upstream, ...],
    operator_id: str,
    key_selector: Callable[[Any], Any],
    settings: WindowSettings,
    call: AggregateCall,
) -> DataStream[Any]:
    """Add an aggregation in windows, by key if the stream has a key."""
    key = _column_key(key_selector)
    aggregation = _checked_aggregation(call.columns, key, WINDOW_START, WINDOW_END)
    refuse_changes(builder.graph, inputs, "aggregate", key.names)
    windows = settings.assigner
    if not settings.is_plain:
        refuse(
            "aggregate: functions of columns emit once, at the end of a window, so they take no trigger, "
            "evictor or lateness; use aggregate(id, AggregateFunction)"
        )
    operator: OperatorFactory
    if type(windows) is EventTimeSessionWindows and windows.gap is not None:
        if not aggregation.combines:
            refuse(
                "aggregate: sessions merge, but CountDistinct and functions without merge(...) can't be "
                "merged; use ApproxCountDistinct, or aggregate(id, AggregateFunction)"
            )
        operator = partial(SessionAggregateOperator, key, aggregation, windows.gap, settings.late_tag)
    elif _suits_columns(windows):
        overlap = Panes(windows).overlap
        keeps_panes = overlap and not aggregation.is_ordered
        kind = PanedAggregateOperator if keeps_panes else WindowedAggregateOperator
        operator = partial(kind, key, aggregation, windows, settings.late_tag)
        if call.combine and aggregation.combines and (keeps_panes or not overlap):
            combiner = partial(WindowCombineOperator, key, aggregation, windows)
            inputs = _combined(builder, inputs, key, combiner, operator_id, stateful=True)
    else:
        known = ", ".join(kind.__name__ for kind in get_args(ColumnWindows))
        refuse(
            f"aggregate: functions of columns need {known} or EventTimeSessionWindows with one gap, not "
            f"{windows!r:.80}; use reduce, apply or aggregate(id, AggregateFunction)"
        )
    return builder.add(
        "window",
        f"{windows!r}, {_shown(call)}",
        operator,
        inputs,
        operator_id,
        call.options,
        keyed=True,
        in_columns=True,
        side_outputs=(settings.late_tag,),
    )


def _shown(call: AggregateCall) -> str:
    return ", ".join(f"{name}={function!r}" for name, function in call.columns.items())


def _suits_columns(windows: object) -> TypeGuard[ColumnWindows]:
    """Whether columnar operators support these windows.

    They support no class with `starts` of its own, and no subclass of cumulative windows.
    """
    if isinstance(windows, TumblingEventTimeWindows | SlidingEventTimeWindows):
        return slide_of(windows) is not None
    return type(windows) is CumulativeEventTimeWindows


def _combined(
    builder: GraphBuilder,
    inputs: tuple[Upstream, ...],
    key: ColumnKey,
    factory: OperatorFactory,
    operator_id: str,
    *,
    stateful: bool = False,
) -> tuple[Upstream, ...]:
    combined: list[Upstream] = []
    for number, upstream in enumerate(inputs):
        options: OperatorOptions = {"parallelism": builder.graph.node(upstream.node).parallelism}
        combiner = builder.add(
            "combine",
            key.__name__,
            factory,
            (replace(upstream, partitioner=None),),
            f"{operator_id}-combine{number or ''}",
            options,
            stateful=stateful,
        )
        combined += [replace(output, partitioner=upstream.partitioner) for output in combiner._inputs]
    return tuple(combined)


def _column_key(key_selector: Callable[[Any], Any]) -> ColumnKey:
    if not isinstance(key_selector, ColumnKey):
        refuse('aggregate needs a key that names columns: key_by("name") or key_by(["a", "b"])')
    return key_selector


def _checked_aggregation(functions: Mapping[str, AnyAggregate], key: ColumnKey, *own: str) -> Aggregation:
    if not functions:
        refuse('aggregate: name at least one function, for example total=Sum("amount")')
    for name, function in functions.items():
        if name in key.names or name in own:
            refuse(f"aggregate: {name!r} is already a column of the result; choose another name")
        if OF in name or not name:
            refuse(f"aggregate: {name!r} can't be the name of a result: it is empty or contains {OF!r}")
        for column in function.columns:
            if not isinstance(column, str):
                refuse(f"aggregate: {name} reads {column!r}, which is not the name of a column")
    with refusals("aggregate"):
        aggregation = Aggregation(key.state_names, functions)
    _check_key_names(aggregation, key)
    return aggregation


def _check_key_names(aggregation: Aggregation, key: ColumnKey) -> None:
    taken = (*aggregation.accumulator_names, *aggregation.pair_columns.values(), START, PANE, ALL_RECORDS)
    for name in key.names:
        if name in taken:
            other = name.replace(OF, "_").strip("_")
            refuse(
                f"aggregate: the state already has a column {name!r}, so no column of the key can have this "
                f"name; rename it with with_columns({other}=pc.field({name!r})) before key_by"
            )
