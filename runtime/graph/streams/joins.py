"""Joins of two keyed streams: checks of the arguments, and the operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import pyarrow.compute as pc

from penstock.runtime.graph.stream_graph import Upstream
from penstock.runtime.graph.streams.checked_call import OperatorOptions, need_function, refusals, refuse
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.names import nearest_name
from penstock.runtime.operators.functions.input_keys import InputKeys
from penstock.runtime.operators.functions.record_functions import MapOperator
from penstock.runtime.operators.joins.asof_join import AsofHow
from penstock.runtime.operators.joins.column_interval_join import ColumnIntervalJoinOperator
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, SIDES, How, IntervalJoin, has_null
from penstock.runtime.operators.joins.output_rows import MergedRows, OutputRows
from penstock.runtime.operators.joins.row_interval_join import RowIntervalJoinOperator
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.windows.window_contents import ListedContents
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.time.durations import Duration, micros_in
from penstock.runtime.time.windows import RecordWindowAssigner, TimeWindow, WindowAssigner
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

#: A duration for both directions, or the minimum and maximum distance from a left to a right record.
Within: TypeAlias = Duration | tuple[Duration, Duration]

#: Condition of a pair: a function of both records, or an expression over the columns of the output.
Condition: TypeAlias = Callable[[Any, Any], Any] | pc.Expression

#: Side outputs of late records.
LATE_LEFT: Final = "late_left"
LATE_RIGHT: Final = "late_right"

_FURTHEST: Final = -(1 << 62)


class JoinInputs:
    """Both keyed streams of a join: their upstream operators and their keys."""

    def __init__(
        self,
        builder: GraphBuilder,
        left: tuple[Upstream, ...],
        right: tuple[Upstream, ...],
        keys: tuple[Callable[[Any], Any], Callable[[Any], Any]],
    ) -> None:
        self.builder = builder
        self.sides = left, right
        self.keys = keys

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        left, right = self.sides
        return (*left, *(replace(upstream, input_index=1) for upstream in right))

    @property
    def column_keys(self) -> tuple[ColumnKey, ColumnKey] | None:
        """The keys, if both are named by columns."""
        left, right = self.keys
        return (left, right) if isinstance(left, ColumnKey) and isinstance(right, ColumnKey) else None

    def named_keys(self, call: str) -> tuple[ColumnKey, ColumnKey]:
        """The keys, both named by columns; refuses key functions, because merged records need names."""
        keys = self.column_keys
        if keys is None:
            refuse(
                f"{call}: with key functions, records can't be merged by column names; give "
                "select=function(left, right), or keys that name columns"
            )
        return keys

    @property
    def shown(self) -> str:
        return " = ".join(getattr(key, "__name__", None) or function_name(key) for key in self.keys)


@dataclass(frozen=True)
class JoinSettings:
    """The arguments that all joins share; see `KeyedStream.join`."""

    how: How
    where: Condition | None
    select: Callable[[Any, Any], Any] | None
    suffix: str
    batch_format: BatchFormat
    call: str = "join"

    def __post_init__(self) -> None:
        hows = get_args(How if self.call == "join" else AsofHow)
        check_choice(f"{self.call}: how", self.how, hows)
        check_choice(f"{self.call}: batch_format", self.batch_format, get_args(BatchFormat))
        if not isinstance(self.suffix, str) or not self.suffix:
            refuse(f"{self.call}: suffix must be a non-empty string, not {self.suffix!r:.80}")

    def check_functions(self) -> None:
        """Refuse a condition or a selection that a join of rows can't call."""
        if isinstance(self.where, pc.Expression):
            refuse('join: an expression for where= needs batch_format="arrow"; give a function(left, right)')
        if self.where is not None:
            need_function("join: where", self.where, "left", "right")
        if self.select is not None:
            need_function(f"{self.call}: select", self.select, "left", "right")

    def column_keys_of(self, inputs: JoinInputs) -> tuple[ColumnKey, ColumnKey]:
        """The keys of a join over columns; refuses functions."""
        keys = inputs.column_keys
        if keys is None:
            refuse(
                f'{self.call}: batch_format="arrow" needs keys that name columns, such as on="k", '
                "not a function"
            )
        if self.select is not None:
            refuse(
                f'{self.call}: select is for batch_format="rows"; use select or with_columns after the join'
            )
        return keys

    def output_of(self, inputs: JoinInputs) -> Callable[[], OutputRows]:
        """Return a factory of the output of a join over rows."""
        self.check_functions()
        if self.select is not None:
            return partial(OutputRows, self.select)
        return partial(MergedRows, inputs.named_keys(self.call), self.suffix)


def add_interval_join(
    inputs: JoinInputs,
    within: Within | None,
    settings: JoinSettings,
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    if within is None:
        refuse(
            "join: give within=..., the time between two records that match, or window=...; without a "
            "bound the state would grow for ever"
        )
    join = IntervalJoin(*_bounds(within), settings.how)
    in_columns = settings.batch_format == "arrow"
    make = _column_join if in_columns else _row_join
    return inputs.builder.add(
        "join",
        f"{join.how}, {inputs.shown}",
        make(join, inputs, settings),
        inputs.upstreams,
        operator_id,
        options,
        keyed=True,
        makes_watermarks=join.delay > 0,
        side_outputs=(LATE_LEFT, LATE_RIGHT),
        in_columns=in_columns,
    )


def add_co_group(
    inputs: JoinInputs,
    call: str,
    window: WindowAssigner | RecordWindowAssigner[Any],
    function: Callable[[Any, TimeWindow, list[Any], list[Any]], Iterable[Any] | None],
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    """Read both streams as one stream of pairs of side and record, in windows (Flink: `CoGroupedStreams`)."""
    tagged = [
        inputs.builder.add("map", SIDES[side], partial(MapOperator, Tagging(side)), unkeyed, None, {})
        for side, upstreams in enumerate(inputs.sides)
        for unkeyed in [tuple(replace(upstream, partitioner=None) for upstream in upstreams)]
    ]
    windows = tagged[LEFT].union(tagged[RIGHT]).key_by(KeyOfTagged(inputs.keys)).window(window)
    what = f"{call}({function_name(function)})"
    return windows._add(operator_id, call, what, partial(ListedContents, BySide(function)), options)


def add_window_join(
    inputs: JoinInputs,
    window: WindowAssigner | RecordWindowAssigner[Any],
    settings: JoinSettings,
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    """Add a join that emits pairs of records of one key and window, and nothing else."""
    if settings.how != "inner" or settings.batch_format != "rows":
        refuse(
            'join: with window=..., only how="inner" and batch_format="rows" are possible; co_group gives a '
            "function the records of both sides"
        )
    product = Product(settings.output_of(inputs), settings.where)
    return add_co_group(inputs, "join", window, product, operator_id, options)


class Tagging:
    """Pairs records with the number of their side."""

    def __init__(self, side: int) -> None:
        self._side = side

    def __call__(self, record: Any) -> tuple[int, Any]:
        return self._side, record


class KeyOfTagged:
    """Computes the key of a pair of side and record with the key function of that side.

    The subtask that gets both sides refuses keys that can never be equal. Types of keys are compared only
    when a side has new ones.
    """

    def __init__(self, keys: tuple[Callable[[Any], Any], Callable[[Any], Any]]) -> None:
        self._keys = keys
        self._kinds = InputKeys()
        self._types: tuple[set[Any], set[Any]] = set(), set()

    def __call__(self, tagged: tuple[int, Any]) -> Any:
        side, record = tagged
        key = self._keys[side](record)
        kind = tuple(map(type, key)) if type(key) is tuple else type(key)
        if kind not in self._types[side]:
            self._kinds.check(side, [key])
            self._types[side].add(kind)
        return key


class BySide:
    """Adapts a function of the records of both sides to windows of pairs."""

    def __init__(self, function: Callable[[Any, TimeWindow, list[Any], list[Any]], Any]) -> None:
        self.__wrapped__ = function

    def __call__(self, key: Any, window: TimeWindow, tagged: list[tuple[int, Any]]) -> Any:
        sides: tuple[list[Any], list[Any]] = [], []
        for side, record in tagged:
            sides[side].append(record)
        return self.__wrapped__(key, window, *sides)


class Product:
    """All pairs of left and right records of a window that meet `where`; none for a null key.

    Each merged record has the columns of all records of its window and key.
    """

    def __init__(self, output: Callable[[], OutputRows], where: Callable[[Any, Any], Any] | None) -> None:
        self._output, self._where = output, where

    def __call__(self, key: Any, window: TimeWindow, left: list[Any], right: list[Any]) -> Iterator[Any]:
        if has_null(key):
            return
        where, output = self._where, self._output()
        output.note(LEFT, left)
        output.note(RIGHT, right)
        for one in left:
            for other in right:
                if where is None or where(one, other):
                    yield output.function(one, other)


def _column_join(join: IntervalJoin, inputs: JoinInputs, settings: JoinSettings) -> OperatorFactory:
    keys, where = settings.column_keys_of(inputs), settings.where
    if where is not None and not isinstance(where, pc.Expression):
        refuse(
            'join: with batch_format="arrow", where must be an expression such as '
            f'pc.field("a") < pc.field("b"), not {where!r:.80}'
        )
    return partial(ColumnIntervalJoinOperator, join, keys, where, settings.suffix, (LATE_LEFT, LATE_RIGHT))


def _row_join(join: IntervalJoin, inputs: JoinInputs, settings: JoinSettings) -> OperatorFactory:
    make: Callable[[], OutputRows]
    if join.emits_pairs:
        make = settings.output_of(inputs)
    else:
        settings.check_functions()
        if settings.select is not None:
            refuse(f"join: how={join.how!r} emits left records as they are, so it takes no select")
        make = partial(OutputRows, _left)
    return partial(_row_operator, join, inputs.keys, make, settings.where)


def _row_operator(
    join: IntervalJoin,
    keys: tuple[Callable[[Any], Any], Callable[[Any], Any]],
    output: Callable[[], OutputRows],
    where: Callable[[Any, Any], Any] | None,
) -> RowIntervalJoinOperator:
    return RowIntervalJoinOperator(join, keys, output(), where, (LATE_LEFT, LATE_RIGHT))


def _left(left: Any, right: Any) -> Any:
    return left


def check_columns(call: str, *keys: Callable[[Any], Any]) -> None:
    """Refuse keys of different numbers of columns, which are never equal."""
    first, second = keys
    if not (isinstance(first, ColumnKey) and isinstance(second, ColumnKey)):
        return
    if len(first.names) != len(second.names):
        refuse(
            f"{call}: the first stream is keyed by {first.__name__} and the second by {second.__name__}, so "
            "their keys are never equal: name the same number of columns for both"
        )


def check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = nearest_name(value, known) if isinstance(value, str) else ""
        refuse(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r:.80}{hint}")


def _bounds(within: Within) -> tuple[int, int]:
    """Minimum and maximum distance, in microseconds."""
    with refusals("join"):
        if not isinstance(within, tuple):
            distance = micros_in("within", within, at_least=0)
            return -distance, distance
        if len(within) != 2:
            refuse(f"join: within must be one duration or two, not {len(within)}: {within!r:.80}")
        lower, upper = (micros_in("within", bound, at_least=_FURTHEST) for bound in within)
    if lower > upper:
        refuse(
            f"join: within={within!r:.80} is the wrong way round: the first bound is the earliest right "
            "record, relative to the left record, and the second bound the latest"
        )
    return lower, upper
