"""As-of and temporal joins of two keyed streams: checks of the arguments, and the operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pyarrow.compute as pc

from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    check_flag,
    need_function,
    refusals,
    refuse,
)
from penstock.runtime.graph.streams.joins import (
    LATE_LEFT,
    LATE_RIGHT,
    JoinInputs,
    JoinSettings,
    check_choice,
)
from penstock.runtime.operators.joins.asof_join import AsofJoin, Strategy
from penstock.runtime.operators.joins.column_asof_join import ColumnAsofJoinOperator
from penstock.runtime.operators.joins.output_rows import OutputRows
from penstock.runtime.operators.joins.row_asof_join import RowAsofJoinOperator
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.time.durations import Duration, micros_in

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream


def add_asof_join(
    inputs: JoinInputs,
    strategy: Strategy,
    tolerance: Duration | None,
    allow_exact_matches: bool,
    settings: JoinSettings,
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    check_choice("join_asof: strategy", strategy, get_args(Strategy))
    check_flag("join_asof", "allow_exact_matches", allow_exact_matches)
    if strategy == "nearest" and not allow_exact_matches:
        refuse(
            'join_asof: strategy="nearest" always allows exact matches, which are the nearest; with '
            'allow_exact_matches=False use "backward" or "forward"'
        )
    with refusals("join_asof"):
        limit = None if tolerance is None else micros_in("tolerance", tolerance, at_least=0)
    join = AsofJoin(strategy, limit, allow_exact_matches, settings.how)
    return _add(inputs, join, None, settings, operator_id, options)


def add_temporal_join(
    inputs: JoinInputs,
    deleted: Callable[[Any], Any] | pc.Expression | None,
    settings: JoinSettings,
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    if deleted is not None and settings.batch_format == "rows":
        if isinstance(deleted, pc.Expression):
            refuse(
                'join_temporal: an expression for deleted= needs batch_format="arrow"; '
                "give a function(record)"
            )
        need_function("join_temporal: deleted", deleted, "record")
    elif deleted is not None and not isinstance(deleted, pc.Expression):
        refuse(
            'join_temporal: with batch_format="arrow", deleted is an expression such as '
            f'pc.field("op") == "delete", not {deleted!r:.80}'
        )
    return _add(inputs, AsofJoin(how=settings.how), deleted, settings, operator_id, options)


def _add(
    inputs: JoinInputs,
    join: AsofJoin,
    deleted: Any,
    settings: JoinSettings,
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    late_tags = LATE_LEFT, LATE_RIGHT
    factory: OperatorFactory
    in_columns = settings.batch_format == "arrow"
    if in_columns:
        keys = settings.column_keys_of(inputs)
        factory = partial(ColumnAsofJoinOperator, join, keys, deleted, settings.suffix, late_tags)
    else:
        factory = partial(_row_operator, join, inputs.keys, settings.output_of(inputs), deleted, late_tags)
    return inputs.builder.add(
        settings.call,
        f"{join.strategy}, {inputs.shown}",
        factory,
        inputs.upstreams,
        operator_id,
        options,
        keyed=True,
        makes_watermarks=join.looks_ahead,
        side_outputs=late_tags,
        in_columns=in_columns,
    )


def _row_operator(
    join: AsofJoin,
    keys: tuple[Callable[[Any], Any], Callable[[Any], Any]],
    output: Callable[[], OutputRows],
    deleted: Callable[[Any], Any] | None,
    late_tags: tuple[str, str],
) -> RowAsofJoinOperator:
    return RowAsofJoinOperator(join, keys, output(), deleted, late_tags)
