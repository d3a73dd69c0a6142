"""`map`, `filter`, `flat_map`, `split` and `map_batches`: operators around a function of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import GeneratorType
from typing import Any, ClassVar, get_args

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.operators.functions.function_operator import (
    FunctionOperator,
    check_function,
    filtered_rows,
    rows_of,
)
from penstock.runtime.operators.operator import OperatorContext, Output, Tagged
from penstock.runtime.operators.user_code.failure import no_dict, short_repr
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.operators.user_code.result_collector import OUTPUT_SLICE, Emission, ResultCollector
from penstock.runtime.record.arrow_types import NoColumnTypeError
from penstock.runtime.record.arrow_values import MisfitError, exact_batch, exact_column
from penstock.runtime.record.elements import ArrowBatch, Batch, BatchFormat, RowBatch
from penstock.runtime.record.own_types import batches_of_rows
from penstock.runtime.state.own_copy import own_batch, own_copies, own_copy


class MapOperator(FunctionOperator):
    """Replaces every record by the function's result; timestamps stay.

    Example:
        >>> [batch.rows for batch in MapOperator(str.upper).process(RowBatch(["a", "b"]))]
        [['A', 'B']]
    """

    kind: ClassVar[str] = "map"

    def process(self, batch: Batch) -> Iterator[Output]:
        rows = rows_of(batch)
        result = self._emission.mapped(self._function, self._cursor.over(rows.rows))
        self._cursor.done()
        yield RowBatch(result, rows.timestamps)


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function returns a true value, with their timestamps.

    Example:
        >>> [batch.rows for batch in FilterOperator(bool).process(RowBatch([0, 1, 2]))]
        [[1, 2]]
    """

    kind: ClassVar[str] = "filter"

    def process(self, batch: Batch) -> Iterator[Output]:
        kept = self._kept(rows_of(batch))
        self._cursor.done()
        yield kept

    def _kept(self, batch: RowBatch) -> RowBatch:
        function = self._function
        rows = self._cursor.over(batch.rows)
        stamps = batch.timestamps
        if self._emission is Emission.AT_ONCE:
            kept = [(own_copy(row), place) for place, row in enumerate(rows) if function(row)]
            times = None if stamps is None else [stamps[place] for _, place in kept]
            return RowBatch([row for row, _ in kept], times)
        # A predicate that only reads keeps no reference, so its records need no copy.
        if stamps is None:
            return RowBatch([row for row in rows if function(row)])
        pairs = [(row, time) for row, time in zip(rows, stamps, strict=True) if function(row)]
        return RowBatch([row for row, _ in pairs], [time for _, time in pairs])


class FlatMapOperator(FunctionOperator):
    """Emits every record of the function's result, each with the timestamp of its input.

    A generator may be endless: its records are emitted in batches as it yields them.
    """

    kind: ClassVar[str] = "flat_map"
    takes_generators = True

    _collector: ResultCollector

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = self._collector_of(context)

    def process(self, batch: Batch) -> Iterator[Output]:
        rows = rows_of(batch)
        function = self._function
        # Not map(): it would take a StopIteration of the user's function for the end of the batch.
        results = (function(row) for row in self._cursor.over(rows.rows))
        yield from self.collected(results, rows.timestamps)
        self._cursor.done()

    def collected(
        self, results: Iterable[Any], timestamps: Iterable[int | list[int]] | None
    ) -> Iterator[RowBatch]:
        """Flatten results of the function into batches."""
        return self._collector.collect(results, timestamps)


class SplitOperator(FunctionOperator):
    """Emits each record to the side output of the first predicate that is true, else to the main output.

    A predicate receives only the records of a batch for which no predicate before it is true.

    Example:
        >>> operator = SplitOperator({"even": lambda n: n % 2 == 0, "large": lambda n: n > 2})
        >>> for output in operator.process(RowBatch([1, 2, 3, 4])):
        ...     print(output)
        Tagged(tag='even', batch=RowBatch(rows=[2, 4], timestamps=None))
        Tagged(tag='large', batch=RowBatch(rows=[3], timestamps=None))
        RowBatch(rows=[1], timestamps=None)
    """

    kind: ClassVar[str] = "split"

    def __init__(self, predicates: Mapping[str, Callable[[Any], object]]) -> None:
        self._predicates = dict(predicates)
        # `_function` is always the predicate that is being called or checked; messages name it.
        super().__init__(next(iter(predicates.values())))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        for predicate in self._predicates.values():
            self._function = predicate
            check_function(self.kind, predicate)

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return self._predicates.values()

    def process(self, batch: Batch) -> Iterator[Output]:
        rest = rows_of(batch)
        if self._emission is Emission.AT_ONCE:
            yield from self._split_one_by_one(rest)
            return
        taken = list[Tagged]()
        for tag, predicate in self._predicates.items():
            self._function = predicate
            found, rest = self._divided(rest)
            taken.append(Tagged(tag, found))
        self._cursor.done()
        yield from taken
        yield rest

    def _split_one_by_one(self, batch: RowBatch) -> Iterator[Output]:
        """Find the output of each record, then copy the record: a predicate may have changed or kept it."""
        rest, of_rest, places = list[Any](), list[int](), {tag: list[int]() for tag in self._predicates}
        found: dict[str, list[Any]] = {tag: [] for tag in self._predicates}
        for place, row in enumerate(self._cursor.over(batch.rows)):
            rows, at = rest, of_rest
            for tag, predicate in self._predicates.items():
                self._function = predicate
                if predicate(row):
                    rows, at = found[tag], places[tag]
                    break
            rows.append(own_copy(row))
            at.append(place)
        self._cursor.done()
        stamps = batch.timestamps
        for tag, rows in found.items():
            yield Tagged(tag, RowBatch(rows, stamps and [stamps[place] for place in places[tag]]))
        yield RowBatch(rest, stamps and [stamps[place] for place in of_rest])

    def _divided(self, batch: RowBatch) -> tuple[RowBatch, RowBatch]:
        predicate = self._function
        chosen = [bool(predicate(row)) for row in self._cursor.over(batch.rows)]
        return filtered_rows(batch, chosen), filtered_rows(batch, [not is_chosen for is_chosen in chosen])


class MapBatchesOperator(FunctionOperator):
    """Replaces every batch by the function's result.

    Timestamps stay if the function returns one batch that is as long as its input. Then the i-th output
    record has the timestamp of the i-th input record. Otherwise the output has no timestamps.

    Example:
        >>> operator = MapBatchesOperator(lambda rows: [10 * row for row in rows])
        >>> list(operator.process(RowBatch([2, 1], [77, 78])))
        [RowBatch(rows=[20, 10], timestamps=[77, 78])]
    """

    kind: ClassVar[str] = "map_batches"
    takes_generators = True

    def __init__(
        self,
        function: Callable[[Any], Any] | FunctionClass,
        batch_format: BatchFormat = "rows",
        schema: pa.Schema | None = None,
        *,
        pushable: bool = False,
    ) -> None:
        super().__init__(function)
        #: Whether the function may run in Spark's Python workers, on batches of `from_spark`.
        self.pushable = pushable
        if batch_format not in get_args(BatchFormat):
            msg = f'map_batches has no batch_format {batch_format!r}: it is "rows" or "arrow"'
            raise ConfigurationError(msg)
        self._arrow = batch_format == "arrow"
        if schema is not None and not self._arrow:
            msg = 'map_batches takes a schema only with batch_format="arrow"'
            raise ConfigurationError(msg)
        self._schema = schema
        self._rows_at_work = 0

    @property
    def doing(self) -> str:
        at = f", on a batch of length {self._rows_at_work}," if self._rows_at_work else ""
        return super().doing + at

    def process(self, batch: Batch) -> Iterator[Output]:
        if not self._arrow:
            self._rows_at_work = len(batch)
            yield from self._through_rows(batch)
        else:
            for part in arrow_parts(batch, self._schema):
                self._rows_at_work = len(part)
                yield from self._through_arrow(part)
        self._rows_at_work = 0

    def _through_rows(self, batch: Batch) -> Iterator[Batch]:
        rows = rows_of(batch)
        result = self._function(list(rows.rows))
        if isinstance(result, list):
            stamps = rows.timestamps if len(result) == len(rows) else None
            yield from RowBatch(self._own(result), stamps).slices(OUTPUT_SLICE)
            return
        for part in _parts(result, "a list of records"):
            if not isinstance(part, list):
                msg = f"it yielded {short_repr(part)} of type {type(part).__name__}; yield lists of records"
                raise PenstockError(msg)
            yield from RowBatch(self._own(part)).slices(OUTPUT_SLICE)

    def _own(self, rows: list[Any]) -> list[Any]:
        return own_copies(rows) if self.isolates else rows

    def _own_batches(self, part: Any) -> Iterator[ArrowBatch]:
        """Arrow batches of a result, copied if the function may keep a numpy array with their memory."""
        for batch in _arrow_batches(part):
            yield ArrowBatch(own_batch(batch.batch)) if self._emission is Emission.AT_ONCE else batch

    def _through_arrow(self, batch: ArrowBatch) -> Iterator[Batch]:
        stamps = batch.timestamps
        result = self._function(batch.batch)
        whole = isinstance(result, pa.RecordBatch | pa.Table)
        if stamps is not None and whole and result.num_rows == len(batch):
            start = 0
            for part in self._own_batches(result):
                yield ArrowBatch(part.batch, stamps.slice(start, len(part)))
                start += len(part)
            return
        for part in [result] if whole else _parts(result, "a pa.RecordBatch"):
            yield from self._own_batches(part)


def arrow_parts(
    batch: Batch,
    schema: pa.Schema | None = None,
    wanted: str = 'batch_format="arrow"',
    instead: str = 'batch_format="rows"',
) -> Iterator[ArrowBatch]:
    """Convert a batch to Arrow batches; their columns do not depend on how the stream was split.

    Without a schema, successive rows with the same names and types of values form one Arrow batch. So a
    column has the type that each of its values has alone, and no row lacks a column. With a schema, Python's
    floats may be rounded. Any other value that does not fit unchanged is refused. A missing value is null.
    """
    if isinstance(batch, ArrowBatch):
        yield batch if schema is None else ArrowBatch(_cast(batch.batch, schema, wanted), batch.timestamps)
        return
    rows: Sequence[Any] = batch.rows
    for row in rows:
        if not isinstance(row, dict):
            raise PenstockError(no_dict(wanted, row, f"convert it with a map first, or use {instead}"))
    stamps = None if batch.timestamps is None else pa.array(batch.timestamps, pa.int64())
    if schema is not None:
        yield ArrowBatch(_columns_of(rows, schema, wanted), stamps)
        return
    start = 0
    try:
        for part in batches_of_rows(rows):
            yield ArrowBatch(part, None if stamps is None else stamps.slice(start, part.num_rows))
            start += part.num_rows
    except NoColumnTypeError as error:
        msg = (
            f"{wanted} needs values that fit a column unchanged: {error}; the row is "
            f"{short_repr(rows[error.place])}. Convert the values with a map first, or use {instead}"
        )
        raise PenstockError(msg) from error


def _columns_of(rows: Sequence[dict[Any, Any]], schema: pa.Schema, wanted: str) -> pa.RecordBatch:
    try:
        return _exact_columns(rows, schema)
    except MisfitError as failure:
        for row in rows:
            try:
                _exact_columns([row], schema)
            except MisfitError as error:
                msg = (
                    f"{wanted} has a schema that a row does not fit: {error}; the row is {short_repr(row)}. "
                    "Convert the row with a map first, or give another schema"
                )
                raise PenstockError(msg) from error
        raise PenstockError(str(failure)) from failure


def _exact_columns(rows: Sequence[dict[Any, Any]], schema: pa.Schema) -> pa.RecordBatch:
    known = set(schema.names)
    unknown = next((name for name in chain.from_iterable(rows) if name not in known), None)
    if unknown is not None:
        msg = f"{unknown!r} is not among the schema's columns {schema.names}"
        raise MisfitError(msg)
    columns = {
        field.name: exact_column([row.get(field.name) for row in rows], field.type, field.name, rounds=True)
        for field in schema
    }
    lacking = next((f.name for f in schema if not f.nullable and columns[f.name].null_count), None)
    if lacking is not None:
        msg = f"column '{lacking}' is 'not null', but the row has no value for it"
        raise MisfitError(msg)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, wanted: str) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        if sorted(batch.schema.names) == sorted(schema.names):
            return exact_batch(batch, schema)
        what = f"it has columns {batch.schema.names}"
    except (MisfitError, pa.ArrowException) as error:
        what = str(error)
    msg = f"{wanted} has a schema that an Arrow batch does not fit: {what}. Give it another schema"
    raise PenstockError(msg)


def _arrow_batches(part: Any) -> Iterator[ArrowBatch]:
    if isinstance(part, pa.Table):
        yield from map(ArrowBatch, part.to_batches())
    elif isinstance(part, pa.RecordBatch):
        yield ArrowBatch(part)
    else:
        msg = f"it gave {short_repr(part)} of type {type(part).__name__}; give a pa.RecordBatch or pa.Table"
        raise PenstockError(msg)


def _parts(result: Any, wanted: str) -> Iterable[Any]:
    if result is None:
        return ()
    if isinstance(result, GeneratorType) or (hasattr(result, "__next__") and hasattr(result, "__iter__")):
        parts: Iterable[Any] = result
        return parts
    msg = f"it returned {short_repr(result)} of type {type(result).__name__}; return {wanted}, or yield them"
    raise PenstockError(msg)
