"""`JoinOperations`: the methods of a `DataStream` that join it with another stream or a table by keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import pyarrow.compute as pc

from penstock.runtime.graph.streams.checked_call import OperatorOptions, checked_with_options, refuse
from penstock.runtime.graph.streams.given_stream import no_stream
from penstock.runtime.graph.streams.keyed_choices import KeyedChoices
from penstock.runtime.graph.streams.lookups import Lookup, LookupSettings, add_lookup
from penstock.runtime.operators.joins.asof_join import AsofHow, Strategy
from penstock.runtime.operators.joins.interval_join import How
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.time.durations import Duration
from penstock.runtime.time.windows import RecordWindowAssigner, WindowAssigner

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream
    from penstock.runtime.graph.streams.joins import Condition, Within
    from penstock.runtime.graph.streams.keyed_stream import KeyedStream
    from penstock.runtime.operators.functions.async_call import Retry

T_co = TypeVar("T_co", covariant=True)


class JoinOperations(KeyedChoices[T_co]):
    """Methods of a `DataStream` that join it with another stream by keys, or look up its keys in a table."""

    @checked_with_options
    def join(
        self,
        other: JoinOperations[Any],
        *,
        on: str | list[str] | None = None,
        left_on: Callable[[T_co], Any] | str | list[str] | None = None,
        right_on: Callable[[Any], Any] | str | list[str] | None = None,
        within: Within | None = None,
        window: WindowAssigner | RecordWindowAssigner[Any] | None = None,
        how: How = "inner",
        where: Condition | None = None,
        select: Callable[[Any, Any], Any] | None = None,
        suffix: str = "_right",
        batch_format: BatchFormat = "rows",
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Join this stream with another by key and time: `key_by` on both, then `KeyedStream.join`.

        Args:
            other: The right stream.
            on: Names of the columns that are the key of both streams.
            left_on: Key of this stream, as for `key_by`, if the keys have different names.
            right_on: Key of the other stream.
            within: See `KeyedStream.join` for this and all further arguments.

        Example:
            >>> from datetime import timedelta
            >>> from penstock.testing import OperatorHarness
            >>> def joined(orders, payments):
            ...     near = -timedelta(seconds=1), timedelta(seconds=10)
            ...     return orders.join(payments, on="id", within=near, how="left")
            >>> with OperatorHarness.of(joined) as harness:
            ...     _ = harness.push([{"id": 1, "item": "tea"}], timestamps=[0])
            ...     harness.push([{"id": 1, "paid": 5}], timestamps=[2_000_000], input_index=1)
            [{'id': 1, 'item': 'tea', 'paid': 5}]
        """
        left, right = self._by_key("join", other, on, left_on, right_on)
        return left.join(
            right,
            within=within,
            window=window,
            how=how,
            where=where,
            select=select,
            suffix=suffix,
            batch_format=batch_format,
            id=id,
            **options,
        )

    @checked_with_options
    def join_asof(
        self,
        other: JoinOperations[Any],
        *,
        on: str | list[str] | None = None,
        left_on: Callable[[T_co], Any] | str | list[str] | None = None,
        right_on: Callable[[Any], Any] | str | list[str] | None = None,
        strategy: Strategy = "backward",
        tolerance: Duration | None = None,
        how: AsofHow = "left",
        allow_exact_matches: bool = True,
        select: Callable[[Any, Any], Any] | None = None,
        suffix: str = "_right",
        batch_format: BatchFormat = "rows",
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Join each record with one record of another stream, chosen by time and `strategy`.

        This is `key_by` on both streams, then `KeyedStream.join_asof`.

        Args:
            other: The right stream, as for `KeyedStream.join_asof`.
            on: Names of the columns that are the key of both streams.
            left_on: Key of this stream, as for `key_by`, if the keys have different names.
            right_on: Key of the other stream.
            strategy: See `KeyedStream.join_asof` for this and all further arguments.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> def priced(trades, quotes):
            ...     return trades.join_asof(quotes, on="share", tolerance=60)
            >>> with OperatorHarness.of(priced) as harness:
            ...     _ = harness.push([{"share": "A", "price": 7}], timestamps=[1], input_index=1)
            ...     _ = harness.push([{"share": "A", "count": 10}], timestamps=[2])
            ...     harness.push_watermark(2)
            [{'share': 'A', 'count': 10, 'price': 7}]
        """
        left, right = self._by_key("join_asof", other, on, left_on, right_on)
        return left.join_asof(
            right,
            strategy=strategy,
            tolerance=tolerance,
            how=how,
            allow_exact_matches=allow_exact_matches,
            select=select,
            suffix=suffix,
            batch_format=batch_format,
            id=id,
            **options,
        )

    @checked_with_options
    def join_temporal(
        self,
        versions: JoinOperations[Any],
        *,
        on: str | list[str] | None = None,
        left_on: Callable[[T_co], Any] | str | list[str] | None = None,
        right_on: Callable[[Any], Any] | str | list[str] | None = None,
        deleted: Callable[[Any], Any] | pc.Expression | None = None,
        how: AsofHow = "left",
        select: Callable[[Any, Any], Any] | None = None,
        suffix: str = "_right",
        batch_format: BatchFormat = "rows",
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Join each record with the version of its key that is valid at its time, as in a versioned table.

        This is `key_by` on both streams, then `KeyedStream.join_temporal`.

        Args:
            versions: The changes of the table.
            on: Names of the columns that are the key of both streams.
            left_on: Key of this stream, as for `key_by`, if the keys have different names.
            right_on: Key of the other stream.
            deleted: See `KeyedStream.join_temporal` for this and all further arguments.
        """
        left, right = self._by_key("join_temporal", versions, on, left_on, right_on)
        return left.join_temporal(
            right,
            deleted=deleted,
            how=how,
            select=select,
            suffix=suffix,
            batch_format=batch_format,
            id=id,
            **options,
        )

    @checked_with_options
    def lookup(
        self,
        table: Lookup,
        *,
        on: Callable[[T_co], Any] | str | list[str],
        how: AsofHow = "left",
        cache: int = 10_000,
        ttl: Duration | None = None,
        negative_ttl: Duration | None = None,
        select: Callable[[Any, Any], Any] | None = None,
        suffix: str = "_right",
        batch_format: BatchFormat = "rows",
        capacity: int | None = None,
        timeout: Duration | None = None,
        retry: Retry | int | None = None,
        ordered: bool = True,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Add to each record the matching record of a table or a function.

        A function is called while its record waits. With a coroutine function many records wait at once, as
        in `map_async`, and calls of one key run one after another. Results are cached in each subtask. If a
        call fails, the job fails, even if the cache has an expired result. The cache is not part of
        checkpoints, so after a restart a record may get a newer result.

        Args:
            table: A dict of records by key, or a `pyarrow.Table` with the columns of the key. Or a function
                that takes a key and returns a record or `None`. Or a coroutine function, or a class of
                objects with `async def __call__`, as for `map_async`.
            on: Names of the columns that are the key, or a function of a record. A key that is or contains
                `None` finds nothing. The key of several columns is a tuple.
            how: `"left"` also emits records for which nothing is found; `"inner"` does not.
            cache: Maximum number of cached results of a subtask; 0 for no cache.
            ttl: Age at which a cached result expires; never by default.
            negative_ttl: Age at which the result of a key without a record expires; `ttl` by default.
            select: Makes the output from a record and the record that was found, or `None`. By default dicts
                are merged.
            suffix: As for `join`.
            batch_format: `"arrow"` looks up Arrow batches in a `pyarrow.Table`, several times faster than
                rows. A function then takes a `pyarrow.RecordBatch` of distinct keys, and returns a batch or
                table of their records with the columns of the key. Keys that it lacks have no record.
            capacity: Maximum number of a subtask's records, or Arrow batches, that wait for a coroutine
                function; 100 by default.
            timeout: Maximum duration of a call of a coroutine function, with all its tries; `None` for no
                limit.
            retry: Number of tries, or a `Retry`, for a coroutine function. Each try calls the function and
                does not read the cache.
            ordered: Whether results of a coroutine function are emitted in the order of the records.
                Otherwise only records of one key keep their order, and no record crosses a watermark.
            id: Required for a coroutine function, because waiting records are state.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> countries = {"AT": {"name": "Austria"}}
            >>> with OperatorHarness.of(lambda users: users.lookup(countries, on="country")) as harness:
            ...     harness.push([{"id": 1, "country": "AT"}, {"id": 2, "country": "XX"}])
            [{'id': 1, 'country': 'AT', 'name': 'Austria'}, {'id': 2, 'country': 'XX', 'name': None}]
        """
        settings = LookupSettings(
            how=how,
            cache=cache,
            ttl=ttl,
            negative_ttl=negative_ttl,
            select=select,
            suffix=suffix,
            batch_format=batch_format,
            capacity=capacity,
            timeout=timeout,
            retry=retry,
            ordered=ordered,
        )
        return add_lookup(self, table, on, settings, id, options)

    def _by_key(
        self, call: str, other: object, on: Any, left_on: Any, right_on: Any
    ) -> tuple[KeyedStream[Any, Any], KeyedStream[Any, Any]]:
        if not isinstance(other, JoinOperations):
            hint = "; call key_by on both streams, or on neither" if hasattr(other, "join") else ""
            refuse(f"{call}: the argument {no_stream(other)}{hint}")
        if (on is None) == (left_on is None) or (left_on is None) != (right_on is None):
            refuse(f"{call}: give the key as on=..., or as left_on=... and right_on=...")
        left, right = (on, on) if on is not None else (left_on, right_on)
        return self.key_by(left), other.key_by(right)

    if TYPE_CHECKING:

        def key_by(self, key: Any) -> KeyedStream[Any, Any]: ...
