"""`RecordOperations`: the methods of a `DataStream` that work on each record or batch alone.

Functions, classes and expressions are checked in the call that receives them, so errors name the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack, cast, overload

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.graph.streams.async_operations import AsyncOperations
from penstock.runtime.graph.streams.checked_call import (
    OPTION_NAMES,
    OperatorOptions,
    check_flag,
    checked_with_keywords,
    checked_with_options,
    refuse,
)
from penstock.runtime.graph.streams.given_function import FunctionObject, given_function
from penstock.runtime.operators.expression_operators import FilterExpressionOperator, SelectOperator
from penstock.runtime.operators.expressions import shown
from penstock.runtime.operators.functions.record_functions import (
    FilterOperator,
    FlatMapOperator,
    MapBatchesOperator,
    MapOperator,
)
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.rate_limit import RateLimitOperator
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")

#: Maximum of `rate_limit`; a larger whole number may not fit a float.
_HIGHEST_RATE: Final = 1e300


def _columns_and_options(
    call: str,
    names: Sequence[str] | None,
    columns: Mapping[str, pc.Expression] | None,
    others: Mapping[str, Any],
) -> tuple[dict[str, pc.Expression], OperatorOptions]:
    """Separate computed columns from options; refuse everything else."""
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
    _check_columns(call, names or (), computed)
    if names is not None and not names and not computed:
        refuse("select needs at least one column")
    if names is None and not computed:
        refuse("with_columns needs at least one column, such as total=pc.field('a') + pc.field('b')")
    return computed, cast(OperatorOptions, options)


def _check_columns(call: str, names: Iterable[object], computed: Mapping[str, Any]) -> None:
    seen = set()
    for name in (*names, *computed):
        if isinstance(name, pc.Expression):
            refuse(f"{call}: give the expression {shown({'': name})} a name: {call}(name=...)")
        if not isinstance(name, str):
            refuse(f"{call}: {name!r:.80} is not the name of a column")
        if name in seen:
            refuse(f"{call}: the column {name!r} is given twice")
        seen.add(name)
    for name, value in computed.items():
        if not isinstance(value, pc.Expression):
            refuse(
                f"{call}: {name}={value!r:.80} is not an expression of pyarrow.compute; "
                f"for a column write pc.field(name), for a constant pc.scalar(value)"
            )


class RecordOperations(AsyncOperations[T_co]):
    """Methods of a `DataStream` that work on each record or batch alone."""

    @overload
    def map(
        self, function: Callable[[T_co], R], *, id: str | None = None, **options: Unpack[OperatorOptions]
    ) -> DataStream[R]: ...

    @overload
    def map(
        self,
        function: type[FunctionObject[T_co, R]],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @checked_with_options
    def map(
        self,
        function: Callable[..., Any],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace each record by `function(record)`.

        The function may be a class with a method `__call__`, with arguments for its constructor; see
        `map_batches`.
        """
        given = given_function("map", function, fn_constructor_args, fn_constructor_kwargs, "record")
        return self._apply("map", given, partial(MapOperator, given), id, options)

    @overload
    def flat_map(
        self,
        function: Callable[[T_co], Iterable[R] | None],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def flat_map(
        self,
        function: type[FunctionObject[T_co, Iterable[R] | None]],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @checked_with_options
    def flat_map(
        self,
        function: Callable[..., Any],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace each record by all results of `function(record)`: a list, a generator, or `None`.

        The function may be a class with a method `__call__`, with arguments for its constructor; see
        `map_batches`.
        """
        given = given_function("flat_map", function, fn_constructor_args, fn_constructor_kwargs, "record")
        return self._apply("flat_map", given, partial(FlatMapOperator, given), id, options)

    @overload
    def filter(
        self,
        function: Callable[[T_co], object] | pc.Expression,
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]: ...

    @overload
    def filter(
        self,
        function: type[FunctionObject[T_co, object]],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]: ...

    @checked_with_options
    def filter(
        self,
        function: Callable[..., object] | pc.Expression,
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]:
        """Keep the records for which a function or an expression is true.

        Args:
            function: A function of a record, or a class with a method `__call__`; see `map_batches`. Or a
                `pyarrow.compute` expression of columns, such as `pc.field("v") > 3`, for dicts and Arrow
                batches, which stay Arrow batches. Null counts as false.
            fn_constructor_args: Positional arguments for the constructor of a class.
            fn_constructor_kwargs: Keyword arguments for the constructor of a class.
            **options: See `OperatorOptions`.
        """
        if isinstance(function, pc.Expression):
            factory = partial(FilterExpressionOperator, function)
            return self._builder.add(
                "filter", shown({"filter": function}), factory, self._inputs, id, options
            )
        if isinstance(function, str):
            refuse(
                f"filter needs a function or an expression, not the text {function!r:.80}: write "
                'filter(lambda row: ...), or filter(pc.field("a") > 1) with pyarrow.compute as pc'
            )
        given = given_function("filter", function, fn_constructor_args, fn_constructor_kwargs, "record")
        return self._apply("filter", given, partial(FilterOperator, given), id, options)

    @checked_with_keywords
    def select(
        self,
        *names: str,
        columns: Mapping[str, pc.Expression] | None = None,
        id: str | None = None,
        **others: Any,
    ) -> DataStream[dict[str, Any]]:
        """Keep some columns, and compute others: `select("k", total=pc.field("a") + pc.field("b"))`.

        Works on Arrow batches, and with the same results on records that are dicts.

        Args:
            *names: Columns to keep.
            columns: Computed columns by name, for names that can't be keywords here, such as `"id"`.
            **others: Computed columns, and options; see `OperatorOptions`.
        """
        return self._selected("select", names, columns, id, others)

    @checked_with_keywords
    def with_columns(
        self,
        columns: Mapping[str, pc.Expression] | None = None,
        *,
        id: str | None = None,
        **others: Any,
    ) -> DataStream[dict[str, Any]]:
        """Add computed columns, or replace columns: `with_columns(total=pc.field("a") + pc.field("b"))`.

        Works on Arrow batches, and with the same results on records that are dicts. Expressions see only the
        columns of the input.

        Args:
            columns: Computed columns by name, for names that can't be keywords here, such as `"id"`.
            **others: Computed columns, and options; see `OperatorOptions`.
        """
        return self._selected("with_columns", None, columns, id, others)

    @overload
    def map_batches(
        self,
        function: Callable[[list[T_co]], list[R] | Iterator[list[R]] | None],
        batch_format: Literal["rows"] = "rows",
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | Iterator[pa.RecordBatch]],
        batch_format: Literal["arrow"],
        *,
        schema: pa.Schema | None = None,
        pushable: bool = False,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[dict[str, Any]]: ...

    @overload
    def map_batches(
        self,
        function: type[FunctionObject[list[T_co], list[R] | Iterator[list[R]] | None]],
        batch_format: Literal["rows"] = "rows",
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def map_batches(
        self,
        function: type[FunctionObject[pa.RecordBatch, pa.RecordBatch | pa.Table | Iterator[pa.RecordBatch]]],
        batch_format: Literal["arrow"],
        *,
        schema: pa.Schema | None = None,
        pushable: bool = False,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[dict[str, Any]]: ...

    @checked_with_options
    def map_batches(
        self,
        function: Callable[..., Any],
        batch_format: Literal["rows", "arrow"] = "rows",
        *,
        schema: pa.Schema | None = None,
        pushable: bool = False,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace whole batches: the fast way to call numpy, pandas, Arrow and models.

        The size of a batch depends on the load, so results must not depend on it. Records keep their
        timestamps only if the function returns one batch as long as its input, in the same order. Otherwise
        assign timestamps again.

        Args:
            function: Takes the records of a batch and returns any number of records in the same format, or
                yields several such results. It may be a class with a method `__call__`, such as a model.
                Each subtask creates an object of the class before the first batch. It calls the object's
                method `close` at the end, if there is one.
            batch_format: `rows` passes a list of records to the function, `arrow` a `pyarrow.RecordBatch`.
                For `arrow`, rows must be dicts. All rows of a batch that is made from dicts have the same
                names and types; null is a type of its own.
            schema: Columns of the Arrow batches that the function receives. With a schema, rows that lack
                values can share a batch with others. A row or batch that does not fit without loss fails the
                job; only Python's floats may be rounded.
            pushable: Whether the function may run in Spark's Python workers, on batches of `from_spark`. It
                then runs again when Spark repeats a task, and must give the same rows. An object of a class
                lives as long as a task. Only for `arrow`.
            fn_constructor_args: Positional arguments for the constructor of a class.
            fn_constructor_kwargs: Keyword arguments for the constructor of a class.
            **options: See `OperatorOptions`; `num_gpus=1` gives each subtask a GPU of its own.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> class Model:
            ...     def __init__(self, weight, bias=0):
            ...         self.weight, self.bias = weight, bias  # or load it from a file
            ...
            ...     def __call__(self, batch):
            ...         return [self.weight * number + self.bias for number in batch]
            >>> def scored(n):
            ...     return n.map_batches(Model, fn_constructor_args=(10,), fn_constructor_kwargs={"bias": 1})
            >>> with OperatorHarness.of(scored) as harness:
            ...     harness.push([1, 2])
            [11, 21]
        """
        if batch_format not in ("rows", "arrow"):
            refuse(f"map_batches: batch_format must be 'rows' or 'arrow', not {batch_format!r}")
        if schema is not None and (batch_format != "arrow" or not isinstance(schema, pa.Schema)):
            refuse(f"map_batches: schema= is a pyarrow.Schema for batch_format='arrow', not {schema!r:.80}")
        check_flag("map_batches", "pushable", pushable)
        if pushable and batch_format != "arrow":
            refuse("map_batches: pushable=True is for batch_format='arrow', because Spark's rows are columns")
        given = given_function("map_batches", function, fn_constructor_args, fn_constructor_kwargs, "batch")
        factory = partial(MapBatchesOperator, given, batch_format, schema, pushable=pushable)
        return self._apply("map_batches", given, factory, id, options)

    @checked_with_options
    def rate_limit(
        self, per_second: float, *, id: str | None = None, **options: Unpack[OperatorOptions]
    ) -> DataStream[T_co]:
        """Limit the stream to a number of records per second, in all subtasks together.

        Each subtask has an equal share, even if others have nothing to read. A subtask that has used up its
        share takes no records for a moment, which slows down the source or the senders. It still processes
        barriers, cancellation and timers. Records that wait in channels delay aligned checkpoints, as with
        any slow operator. So limit the rate directly after the source, or use unaligned checkpoints.

        Args:
            per_second: Maximum number of records per second, greater than 0. A burst has at most about a
                tenth of this number, or one record per subtask if that is more.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock import GeneratorSource, StreamEnvironment
            >>> numbers = StreamEnvironment("numbers").from_source("numbers", GeneratorSource(lambda n: n))
            >>> slow = numbers.rate_limit(100)
        """
        is_number = isinstance(per_second, int | float) and not isinstance(per_second, bool)
        if not is_number or not 0 < per_second <= _HIGHEST_RATE:
            refuse(f"rate_limit: per_second is a finite number greater than 0, not {per_second!r:.80}")
        factory = partial(RateLimitOperator, per_second)
        return self._builder.add("rate_limit", f"{per_second:g}", factory, self._inputs, id, options)

    def _apply(
        self,
        kind: str,
        given: Callable[..., Any] | FunctionClass,
        factory: OperatorFactory,
        operator_id: str | None,
        options: OperatorOptions,
    ) -> DataStream[Any]:
        """Add an operator for a function or a class; a class counts as stateful if an id is given."""
        if not isinstance(given, FunctionClass):
            name = function_name(given)
            return self._builder.add(kind, name, factory, self._inputs, operator_id, options)
        return self._builder.add(
            kind,
            function_name(given.kind),
            factory,
            self._inputs,
            operator_id,
            options,
            stateful=operator_id is not None,
            function=given,
        )

    def _selected(
        self,
        kind: str,
        names: Sequence[str] | None,
        columns: Mapping[str, pc.Expression] | None,
        operator_id: str | None,
        others: Mapping[str, Any],
    ) -> DataStream[Any]:
        computed, options = _columns_and_options(kind, names, columns, others)
        parts = [*(names or ()), *(f"{name}={shown({name: e})}" for name, e in computed.items())]
        factory = partial(SelectOperator, names, computed)
        return self._builder.add(kind, ", ".join(parts), factory, self._inputs, operator_id, options)
