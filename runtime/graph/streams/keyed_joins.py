"""`KeyedJoins`: the methods of a `KeyedStream` that join it with another keyed stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import pyarrow.compute as pc

from penstock.runtime.graph.streams.asof_joins import add_asof_join, add_temporal_join
from penstock.runtime.graph.streams.changes import refuse_changes
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    checked_with_options,
    need_function,
    refuse,
)
from penstock.runtime.graph.streams.joins import (
    Condition,
    JoinInputs,
    JoinSettings,
    Within,
    add_co_group,
    add_interval_join,
    add_window_join,
    check_columns,
)
from penstock.runtime.graph.streams.stream import Stream
from penstock.runtime.graph.streams.windowed_stream import GroupedStream
from penstock.runtime.operators.joins.asof_join import AsofHow, Strategy
from penstock.runtime.operators.joins.interval_join import How
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.time.durations import Duration
from penstock.runtime.time.windows import RecordWindowAssigner, TimeWindow, WindowAssigner

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
R = TypeVar("R")


class KeyedJoins(GroupedStream, Generic[T, K]):
    """Joins of a `KeyedStream` with another keyed stream."""

    @checked_with_options
    def join(
        self,
        other: KeyedJoins[Any, K],
        *,
        within: Within | None = None,
        window: WindowAssigner | RecordWindowAssigner[Any] | None = None,
        how: How = "inner",
        where: Condition | None = None,
        select: Callable[[Any, Any], R] | None = None,
        suffix: str = "_right",
        batch_format: BatchFormat = "rows",
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Join this stream, the left one, with another by key and time.

        A left and a right record match if their keys are equal and their timestamps are close enough, as in
        Flink's interval join. With `window` they match if they are in the same window. A key that is `None`
        or has a `None` in it matches nothing. A record of an interval join is late if its timestamp is not
        after the watermark. It then goes to the side output `late_left` or `late_right`. Late records of a
        join with `window` go to `late_records`, as for `co_group`.

        A pair has the later timestamp of its two records. A record without a partner has its own timestamp,
        and is emitted when no partner can arrive any more. So the watermark after an outer, semi or anti join
        lags behind the input's.

        Args:
            other: The right stream.
            within: Earliest and latest time of a matching right record, relative to the left record, both
                included. A single duration limits both directions.
            window: Windows instead of `within`, for an inner join of rows. With windows of event time, the
                timestamp of a result is the window's last microsecond. To get records without a partner, use
                `co_group`.
            how: `"inner"` emits pairs. `"left"`, `"right"` and `"full"` also emit the records of that side,
                or of both, without a partner. `"semi"` emits the left records with a partner, `"anti"` the
                left records without one.
            where: A further condition: a function of a left and a right record, or with
                `batch_format="arrow"` an expression over the columns of the output.
            select: Makes the output from a left and a right record; a missing partner is `None`. By default
                dicts are merged: the left names, then the right names. If both sides have the same key names,
                the key appears once.
            suffix: Appended to the name of a right column that the left side also has.
            batch_format: `"arrow"` joins columns. It requires keys that name columns, and state on the heap.
            id: The operator's id; a restore finds the operator's state by this id. By default an id with a
                number is generated, which may change with the program.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> def joined(orders, payments):
            ...     return orders.key_by("id").join(payments.key_by("id"), within=10, how="left")
            >>> with OperatorHarness.of(joined) as harness:
            ...     _ = harness.push([{"id": 1, "item": "tea"}], timestamps=[0])
            ...     harness.push([{"id": 1, "paid": 5}], timestamps=[2_000_000], input_index=1)
            [{'id': 1, 'item': 'tea', 'paid': 5}]
        """
        inputs = self._join_inputs("join", other)
        settings = JoinSettings(how, where, select, suffix, batch_format)
        if window is not None:
            if within is not None:
                refuse("join: give within=... or window=..., not both")
            return add_window_join(inputs, window, settings, id, options)
        return add_interval_join(inputs, within, settings, id, options)

    @checked_with_options
    def co_group(
        self,
        other: KeyedJoins[U, K],
        window: WindowAssigner | RecordWindowAssigner[Any],
        function: Callable[[K, TimeWindow, list[T], list[U]], Iterable[R] | None],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Call a function with the records of both streams that have the same key and window.

        Late records go to the side output `late_records`, as pairs of side (0 or 1) and record.

        Args:
            other: The right stream.
            window: Windows of any kind.
            function: Takes the key, the window, and the lists of left and right records in order of arrival.
                One of the lists may be empty. Returns the records to emit: a list, a generator, or `None`.
            id: As for `join`.
            **options: See `OperatorOptions`.
        """
        need_function("co_group", function, "key", "window", "left", "right")
        keys = self._keys_with("co_group", other)
        inputs = JoinInputs(self._builder, self._inputs, other._inputs, keys)
        return add_co_group(inputs, "co_group", window, function, id, options)

    @checked_with_options
    def join_asof(
        self,
        other: KeyedJoins[Any, K],
        *,
        strategy: Strategy = "backward",
        tolerance: Duration | None = None,
        how: AsofHow = "left",
        allow_exact_matches: bool = True,
        select: Callable[[Any, Any], R] | None = None,
        suffix: str = "_right",
        batch_format: BatchFormat = "rows",
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Join each record of this stream with one record of another stream, chosen by time and `strategy`.

        The result has the left record's timestamp. It is emitted when no other right record can become
        the partner. With `strategy="backward"` this is when the watermark reaches the left record. Of
        right records with the same timestamp, the last to arrive counts.

        A record is late if its timestamp is not after the watermark. Late records go to the side outputs
        `late_left` and `late_right`. A key that is `None` or has a `None` in it matches nothing.

        Args:
            other: The right stream, such as quotes or readings.
            strategy: `"backward"` takes the newest right record up to the left record's timestamp.
                `"forward"` takes the first right record at or after this timestamp. `"nearest"` takes the
                nearer of these two, and the earlier if both are equally near.
            tolerance: Maximum time between a left record and its partner. With it, the state of keys without
                further records is deleted. Without it, `"forward"` and `"nearest"` may wait for a partner
                until the end of the data, and the output's watermark waits with them.
            how: `"left"` also emits left records without a partner; `"inner"` does not.
            allow_exact_matches: Whether a right record with the left record's timestamp may be its partner;
                `"nearest"` refuses `False`.
            select: As for `join`.
            suffix: As for `join`.
            batch_format: As for `join`.
            id: As for `join`.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> def priced(trades, quotes):
            ...     return trades.key_by("share").join_asof(quotes.key_by("share"), tolerance=60)
            >>> with OperatorHarness.of(priced) as harness:
            ...     _ = harness.push([{"share": "A", "price": 7}, {"share": "A", "price": 8}], [1, 3],
            ...                      input_index=1)
            ...     _ = harness.push([{"share": "A", "count": 10}], timestamps=[2])
            ...     harness.push_watermark(2)
            [{'share': 'A', 'count': 10, 'price': 7}]
        """
        settings = JoinSettings(how, None, select, suffix, batch_format, "join_asof")
        inputs = self._join_inputs("join_asof", other)
        rules = strategy, tolerance, allow_exact_matches
        return add_asof_join(inputs, *rules, settings, id, options)

    @checked_with_options
    def join_temporal(
        self,
        versions: KeyedJoins[Any, K],
        *,
        deleted: Callable[[Any], Any] | pc.Expression | None = None,
        how: AsofHow = "left",
        select: Callable[[Any, Any], R] | None = None,
        suffix: str = "_right",
        batch_format: BatchFormat = "rows",
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Join each record with the version of its key that is valid at its time, as in a versioned table.

        The right stream has the table's changes: each record is valid from its timestamp until the next
        record of its key. The join works like `join_asof` with `strategy="backward"` and without a tolerance.
        So the newest version of each key stays in state until it is deleted.

        Args:
            versions: The changes of the table.
            deleted: Says whether a right record is a delete, after which its key has no version. A function
                of the record, or with `batch_format="arrow"` an expression over its columns.
            how: `"left"` also emits left records without a version; `"inner"` does not.
            select: As for `join`.
            suffix: As for `join`.
            batch_format: As for `join`.
            id: As for `join`.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> def with_rate(orders, rates):
            ...     rates = rates.key_by("currency")
            ...     return orders.key_by("currency").join_temporal(rates, deleted=lambda r: r["rate"] is None)
            >>> with OperatorHarness.of(with_rate) as harness:
            ...     _ = harness.push([{"currency": "EUR", "rate": 2}, {"currency": "EUR", "rate": None}],
            ...                      timestamps=[1, 3], input_index=1)
            ...     _ = harness.push([{"currency": "EUR", "id": 1}, {"currency": "EUR", "id": 2}], [2, 4])
            ...     harness.push_watermark(4)
            [{'currency': 'EUR', 'id': 1, 'rate': 2}, {'currency': 'EUR', 'id': 2, 'rate': None}]
        """
        settings = JoinSettings(how, None, select, suffix, batch_format, "join_temporal")
        inputs = self._join_inputs("join_temporal", versions, takes_changes=deleted is not None)
        return add_temporal_join(inputs, deleted, settings, id, options)

    def _join_inputs(
        self, call: str, other: KeyedJoins[Any, Any], *, takes_changes: bool = False
    ) -> JoinInputs:
        """The inputs of a join; `takes_changes` says whether the right ones may be changes."""
        keys = self._keys_with(call, other)
        refused = self._inputs if takes_changes else (*self._inputs, *other._inputs)
        refuse_changes(self._builder.graph, refused, call)
        return JoinInputs(self._builder, self._inputs, other._inputs, keys)

    def _check_environment(self, call: str, other: Stream) -> None:
        if other._builder is not self._builder:
            refuse(f"{call}: the argument is a stream of another StreamEnvironment")

    def _keys_with(self, call: str, other: object) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """The key functions of this stream and another; refuses a stream that can't be its partner."""
        if not isinstance(other, KeyedJoins):
            refuse(
                f"{call}: the first stream is keyed, so the second must be, too, but it is {other!r:.80}; "
                "call key_by on both streams, or on neither. To apply rules to data, broadcast the rules: "
                "data.connect(rules.broadcast())"
            )
        self._check_environment(call, other)
        check_columns(call, self._key_selector, other._key_selector)
        return self._key_selector, other._key_selector
