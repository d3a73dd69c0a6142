"""The first, the latest and the best records of keys that a function selects, with keyed state in rows.

A record whose rank is `None` or NaN is never chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.operators.ranking.top_n import ChangeKind
from penstock.runtime.operators.user_code.failure import no_dict
from penstock.runtime.state.keyed_states import ValueState
from penstock.runtime.state.time_to_live import StateTtl


class FirstOfKey(KeyedProcessFunction[Any, Any, Any]):
    _seen: ValueState[Any]

    def __init__(self, ttl: StateTtl | None) -> None:
        self._ttl = ttl

    def open(self, ctx: RuntimeContext) -> None:
        self._seen = ctx.value_state("first", default=False, ttl=self._ttl)

    def process(self, value: Any, ctx: RuntimeContext) -> Iterator[Any]:
        if not self._seen.value():
            self._seen.update(True)
            yield value


class _RankedFunction(KeyedProcessFunction[Any, Any, Any]):
    """Ranks records by a function, or by timestamps if that is `None`."""

    _state: ValueState[Any]

    def __init__(self, by: Callable[[Any], Any] | None, ttl: StateTtl | None) -> None:
        self._by = by
        self._ttl = ttl

    def _rank(self, value: Any, ctx: RuntimeContext) -> Any:
        rank = ctx.timestamp if self._by is None else self._by(value)
        return rank if rank == rank else None


class LatestOfKey(_RankedFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self._state = ctx.value_state("latest", ttl=self._ttl)

    def process(self, value: Any, ctx: RuntimeContext) -> Iterator[Any]:
        rank = self._rank(value, ctx)
        if rank is None:
            if self._by is None:  # each record is the latest of its key
                yield value
            return
        newest = self._state.value()
        is_newer = newest is None or rank >= newest
        self._state.update(rank if is_newer else newest)  # each record is a use
        if is_newer:
            yield value


class TopOfKey(_RankedFunction):
    """Keeps the best records of a key as tuples of rank and record, the best one first."""

    def __init__(
        self,
        by: Callable[[Any], Any],
        n: int,
        change_kind: str | None,
        ttl: StateTtl | None,
        *,
        descending: bool,
    ) -> None:
        super().__init__(by, ttl)
        self._n = n
        self._change_kind = change_kind
        self._descending = descending

    def open(self, ctx: RuntimeContext) -> None:
        self._state = ctx.value_state("top_n", ttl=self._ttl)

    def process(self, value: Any, ctx: RuntimeContext) -> Iterator[Any]:
        rank = self._rank(value, ctx)
        if rank is None:
            return
        known = self._state.value() or ()
        kept = (rank, value if self._change_kind is not None else None)
        # The sort is stable, also in reverse, so incumbents win ties.
        best = sorted((*known, kept), key=itemgetter(0), reverse=self._descending)
        left = best[self._n :]
        self._state.update(tuple(best[: self._n]))
        if left and left[0] is kept:
            return
        for _, gone in left:
            if self._change_kind is not None:
                yield self._changed(gone, "delete")
        yield value if self._change_kind is None else self._changed(value, "insert")

    def _changed(self, value: Any, kind: ChangeKind) -> dict[Any, Any]:
        if not isinstance(value, dict):
            advice = "put a map before top_n that makes dicts"
            raise PenstockError(no_dict("top_n with change_kind", value, advice))
        assert self._change_kind is not None, "changes have a kind"
        return {**value, self._change_kind: kind}
