"""`KeyedChoices`: the methods of a `DataStream` that choose records by key: `dedup`, `latest_by`, `top_n`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack, cast, get_args

from penstock.runtime.graph.stream_graph import Changes
from penstock.runtime.graph.streams.changes import refuse_changes
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    check_flag,
    checked_with_options,
    need_function,
    refusals,
    refuse,
)
from penstock.runtime.graph.streams.record_operations import RecordOperations
from penstock.runtime.names import problem_with_name
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.ranking.deduplicate import FirstOperator, LatestOperator
from penstock.runtime.operators.ranking.ranking_functions import (
    ChosenByFunction,
    FirstOfKey,
    LatestOfKey,
    RankingOperator,
    RanksOf,
    TopOfKey,
)
from penstock.runtime.operators.ranking.top_n import MOST_PLACES, ChangesOfTopNOperator, Order, TopNOperator
from penstock.runtime.record.column_key import ColumnKey, as_column_key
from penstock.runtime.state.time_to_live import StateTtl, Ttl
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

T_co = TypeVar("T_co", covariant=True)

#: The direction of an order: whether the least or the greatest values are the best.
Direction: TypeAlias = Literal["asc", "desc"]

#: A key: the names of columns, or a function of a record.
Keys: TypeAlias = Callable[[Any], Any] | str | list[str] | tuple[str, ...]


class KeyedChoices(RecordOperations[T_co]):
    """Methods of a `DataStream` that emit some of the records of each key.

    Records keep their timestamps, except with `change_kind` of `top_n`. With a key function, results are
    rows, and the state is stored as rows in the operator's backend.

    With keys named by columns, records keep their format, and the state is stored as columns. Such state must
    be on the heap: in a job with `RocksDB()`, give `state_backend=HeapState()`.
    """

    @checked_with_options
    def dedup(
        self,
        id: str,
        keys: Keys,
        *,
        keep: Literal["first", "last"] = "first",
        ttl: Ttl | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]:
        """Drop records whose key has occurred before.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            keys: The key, as in `key_by`.
            keep: `"first"` emits the first record of a key, in the order of arrival. `"last"` emits the
                records that have the greatest timestamp of their key so far, as `latest_by` does. Without
                timestamps the order of arrival counts.
            ttl: Time after which a key is forgotten: a `timedelta`, seconds, or a `StateTtl`. With
                `keep="first"` it runs from the emitted record. If reads refresh it, each duplicate restarts
                it. By default keys are never forgotten.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> with OperatorHarness.of(lambda orders: orders.dedup("new", "order")) as harness:
            ...     harness.push([{"order": 1, "n": 1}, {"order": 2, "n": 2}, {"order": 1, "n": 3}])
            [{'order': 1, 'n': 1}, {'order': 2, 'n': 2}]
        """
        if keep not in ("first", "last"):
            refuse(f"dedup: keep is 'first' or 'last', not {keep!r:.80}")
        what = f"{_shown(keys)}, keep={keep!r}"
        if keep == "last":
            return _latest(self, "dedup", what, id, keys, None, ttl, options)
        with refusals("dedup"):
            life = StateTtl.of(ttl)
        return _add(
            self,
            "dedup",
            what,
            id,
            keys,
            lambda key: partial(FirstOperator, key, life),
            FirstOfKey(life),
            options,
        )

    @checked_with_options
    def latest_by(
        self,
        id: str,
        by: Callable[[T_co], Any] | str,
        keys: Keys,
        *,
        ttl: Ttl | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]:
        """Emit a record unless an earlier record of its key is newer; of two equal records the later wins.

        With keys named by columns, the newest record of each key is emitted once per batch. A receiver that
        keeps the last record of each key always has the newest one. Records whose `by` is null or NaN are
        dropped. The metric `unranked_records` counts them.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            by: The column that orders records from old to new: integers, floats, dates or times. Or a
                function of a record, if the key is also a function.
            keys: The key, as in `key_by`.
            ttl: Time without a record of a key after which the key is forgotten; by default never.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> with OperatorHarness.of(lambda rows: rows.latest_by("newest", "version", "id")) as harness:
            ...     first = harness.push([{"id": 7, "version": 2}])
            ...     harness.push([{"id": 7, "version": 1}, {"id": 7, "version": 3}])
            [{'id': 7, 'version': 3}]
        """
        what = f"{_shown(by)}, {_shown(keys)}"
        return _latest(self, "latest_by", what, id, keys, by, ttl, options)

    @checked_with_options
    def top_n(
        self,
        id: str,
        by: Callable[[T_co], Any] | str | list[str | tuple[str, Direction]],
        n: int,
        keys: Keys,
        *,
        descending: bool = True,
        change_kind: str | None = None,
        ttl: Ttl | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Emit the records that enter the best `n` of their key; of two equal records the earlier wins.

        With keys named by columns, a batch is one step: a record that enters and leaves within it is not
        emitted. Records with a rank that is null or NaN are dropped. The metric `unranked_records` counts
        them.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            by: The column that ranks records: integers, floats, dates or times. Or a function of a record, if
                the key is also a function. Or a list of columns, each with `"asc"`, `"desc"` or neither:
                `[("price", "desc"), ("time", "asc")]`. Each column then orders the records that are equal in
                all columns before it.
            n: Number of places of each key, at most 1,000.
            keys: The key, as in `key_by`.
            descending: Whether the greatest values are the best, for a column without a direction.
            change_kind: Name of an additional column or field of the results. It is `"insert"` for a record
                that enters, and `"delete"` for a record that leaves, which is then emitted again. The state
                holds whole records. With keys named by columns, results are Arrow batches, a missing value
                is null, and each column keeps its type. By default records that leave are not emitted.
            ttl: Time without a record of a key after which its places are empty again; by default never.
                The expiry emits nothing.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> def best(sales):
            ...     return sales.top_n("best", "price", 1, "shop", change_kind="change")
            >>> with OperatorHarness.of(best) as harness:
            ...     first = harness.push([{"shop": "a", "price": 5}])
            ...     for row in harness.push([{"shop": "a", "price": 5}, {"shop": "a", "price": 6}]):
            ...         print(row)
            {'shop': 'a', 'price': 5, 'change': 'delete'}
            {'shop': 'a', 'price': 6, 'change': 'insert'}
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_PLACES:
            refuse(f"top_n: n is a whole number from 1 to {MOST_PLACES}, not {n!r:.80}")
        check_flag("top_n", "descending", descending)
        if change_kind is not None and (problem := problem_with_name(change_kind)) is not None:
            refuse(f"top_n: change_kind: {problem} ({change_kind!r:.80})")
        with refusals("top_n"):
            life = StateTtl.of(ttl)
        orders = _orders(by, descending)
        rank = _rank_of("top_n", by, keys) if orders is None else _rank_in(orders)
        downs = (descending,) if orders is None else tuple(order.descending for order in orders)

        def in_columns(key: ColumnKey) -> OperatorFactory:
            assert orders is not None, "with keys named by columns, records are ranked by columns"
            if change_kind is None:
                return partial(TopNOperator, key, orders, n, ttl=life)
            return partial(ChangesOfTopNOperator, key, orders, n, change_kind, ttl=life)

        what = f"{n} by {_shown(by)}, {_shown(keys)}"
        in_rows = TopOfKey(rank, n, change_kind, life, downs)
        changes = None if change_kind is None else Changes(change_kind)
        return _add(self, "top_n", what, id, keys, in_columns, in_rows, options, changes)


def _orders(by: Any, descending: bool) -> tuple[Order, ...] | None:
    """Return the order of each column in `by`; `None` if `by` is a function."""
    if isinstance(by, str):
        return (Order(by, descending),)
    if isinstance(by, tuple):
        refuse(f'top_n: by takes several columns as a list, [("price", "desc"), "time"], not {by!r:.80}')
    if not isinstance(by, list):
        return None
    orders = []
    for one in by:
        name, direction = one if isinstance(one, tuple) and len(one) == 2 else (one, None)
        if not isinstance(name, str) or direction not in (None, *get_args(Direction)):
            refuse(
                'top_n: by takes column names, or pairs such as ("price", "desc") and ("time", "asc"), '
                f"not {one!r:.80}"
            )
        orders.append(Order(name, descending if direction is None else direction == "desc"))
    names = [order.column for order in orders]
    if not names or len(set(names)) < len(names):
        refuse(f"top_n: by needs at least one column, and each of them once, not {by!r:.80}")
    return tuple(orders)


def _rank_in(orders: Sequence[Order]) -> Callable[[Any], Any]:
    """The function that ranks records by columns when the key is a function."""
    return RanksOf([order.column for order in orders])


def _latest(
    stream: KeyedChoices[Any],
    call: str,
    what: str,
    operator_id: str,
    keys: Keys,
    by: Callable[[Any], Any] | str | None,
    ttl: Ttl | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    with refusals(call):
        life = StateTtl.of(ttl)
    rank = None if by is None else _rank_of(call, by, keys)
    column: Any = by
    in_rows = LatestOfKey(call, rank, life)
    return _add(
        stream,
        call,
        what,
        operator_id,
        keys,
        lambda key: partial(LatestOperator, key, column, life),
        in_rows,
        options,
        Changes(),
    )


def _rank_of(call: str, by: Any, keys: Keys) -> Callable[[Any], Any]:
    """The function that ranks records when the key is a function."""
    if isinstance(by, str):
        return RanksOf([by])
    need_function(f"{call}: by", by, "record")
    if as_column_key(keys) is not None:
        refuse(f"{call}: by must name a column, because the key names columns; or give functions for both")
    function: Callable[[Any], Any] = by
    return function


def _add(
    stream: KeyedChoices[Any],
    call: str,
    what: str,
    operator_id: str,
    keys: Keys,
    in_columns: Callable[[ColumnKey], OperatorFactory],
    in_rows: ChosenByFunction,
    options: OperatorOptions,
    changes: Changes | None = None,
) -> DataStream[Any]:
    """Add the operator for keys named by columns, or for a key function."""
    keyed = cast("DataStream[Any]", stream).key_by(keys)
    selector = keyed._key_selector
    is_named = isinstance(selector, ColumnKey)
    refuse_changes(
        stream._builder.graph, keyed._inputs, call, selector.names if isinstance(selector, ColumnKey) else ()
    )
    factory = (
        in_columns(selector)
        if isinstance(selector, ColumnKey)
        else partial(RankingOperator, selector, in_rows)
    )
    return stream._builder.add(
        call,
        what,
        factory,
        keyed._inputs,
        operator_id,
        options,
        keyed=True,
        in_columns=is_named,
        changes=changes,
    )


def _shown(value: Any) -> str:
    return function_name(value) if callable(value) else repr(value)
