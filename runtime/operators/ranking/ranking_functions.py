"""The first, latest or best records of each key, for keys that a function selects; the state is in rows.

A record for which the rank function returns `None` or NaN is never chosen; such records are counted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.functions.function_operator import own_state
from penstock.runtime.operators.functions.process import KeyedProcessOperator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.operators.metrics import UNRANKED_RECORDS
from penstock.runtime.operators.operator import OperatorContext, SavedList
from penstock.runtime.operators.ranking.saved_ranking import RANKING, SavedRanking
from penstock.runtime.operators.ranking.top_n import ChangeKind, ranking_of_top_n, taken_name
from penstock.runtime.operators.user_code.failure import no_dict, short_repr
from penstock.runtime.operators.user_code.result_collector import reading
from penstock.runtime.state.keyed_states import ValueState
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.user_location import function_location


class ChosenByFunction(KeyedProcessFunction[Any, Any, Any]):
    """Emits some of the records of each key.

    Attributes:
        call: Name of the stream's method, for error messages.
        by: Function that ranks records; `None` to rank by timestamps or by arrival.
        rank_of: `by`, wrapped so that it can't change records.
        unranked: Number of records without a rank.
    """

    state_name: ClassVar[str]

    _state: ValueState[Any]

    def __init__(self, call: str, by: Callable[[Any], Any] | None, ttl: StateTtl | None) -> None:
        self.call = call
        self.by = self.rank_of = by
        self.unranked = 0
        self._ttl = ttl

    @property
    @abstractmethod
    def ranking(self) -> SavedRanking:
        """The arguments on which the state depends; functions can't be compared, so they are left out."""

    def open(self, ctx: RuntimeContext) -> None:
        self._state = ctx.value_state(self.state_name, ttl=self._ttl)

    def _rank(self, value: Any, ctx: RuntimeContext) -> Any:
        rank = ctx.timestamp if self.rank_of is None else self.rank_of(value)
        return rank if rank == rank else None

    def _incomparable(self, rank: Any, known: Any) -> PenstockError:
        assert self.by is not None, "timestamps can be compared"
        return PenstockError(
            f"{self.call}: {_shown(self.by)} returned {short_repr(rank)} of type "
            f"{type(rank).__name__}, which can't be compared with the rank {short_repr(known)} of type "
            f"{type(known).__name__}; return ranks of one type"
        )


class FirstOfKey(ChosenByFunction):
    state_name: ClassVar[str] = "first"

    def __init__(self, ttl: StateTtl | None) -> None:
        super().__init__("dedup", None, ttl)

    @property
    def ranking(self) -> SavedRanking:
        return SavedRanking(self.call, state="rows", by=None)

    def process(self, value: Any, ctx: RuntimeContext) -> Iterator[Any]:
        if not self._state.value():
            self._state.update(True)
            yield value


class LatestOfKey(ChosenByFunction):
    """Ranks records by the function `by`, or by timestamps if `by` is `None`."""

    state_name: ClassVar[str] = "latest"

    @property
    def ranking(self) -> SavedRanking:
        return SavedRanking(self.call, state="rows", by=None if self.by is None else "a function")

    def process(self, value: Any, ctx: RuntimeContext) -> Iterator[Any]:
        rank = self._rank(value, ctx)
        if rank is None:
            if self.by is None:  # each record is the latest of its key
                yield value
            else:
                self.unranked += 1
            return
        newest = self._state.value()
        try:
            is_newer = newest is None or rank >= newest
        except TypeError as error:
            raise self._incomparable(rank, newest) from error
        self._state.update(rank if is_newer else newest)  # an older record refreshes the TTL, too
        if is_newer:
            yield value


class RanksOf:
    """Ranks records, which are dicts, by columns; `None` if a rank is missing, or one of several is NaN.

    Example:
        >>> RanksOf(["price", "at"])({"price": 5, "at": 2}), RanksOf(["price", "at"])({"price": 5})
        ((5, 2), None)
        >>> RanksOf(["price"])({"price": 5})
        5
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __str__(self) -> str:
        return f"column{'' if len(self._names) == 1 else 's'} {', '.join(map(repr, self._names))}"

    def __call__(self, record: Any) -> Any:
        try:
            get = record.get
        except AttributeError:
            raise PenstockError(
                no_dict(f"a rank by {self}", record, "make dicts with map before it")
            ) from None
        if len(self._names) == 1:
            return get(self._names[0])
        ranks = tuple(map(get, self._names))
        return None if any(rank is None or rank != rank for rank in ranks) else ranks


def _shown(by: Callable[[Any], Any]) -> str:
    return str(by) if isinstance(by, RanksOf) else f"function {function_location(by)}"


class TopOfKey(ChosenByFunction):
    """Keeps the ranks of the best records of a key, the best one first.

    The state has pairs of rank and record. Without `change_kind`, the record is left out (`None`).

    Args:
        by: Returns a rank, or for several orders a tuple of ranks.
        descending: Whether the greatest ranks are the best, for each order.
    """

    state_name: ClassVar[str] = "top_n"

    def __init__(
        self,
        by: Callable[[Any], Any],
        n: int,
        change_kind: str | None,
        ttl: StateTtl | None,
        descending: Sequence[bool],
    ) -> None:
        super().__init__("top_n", by, ttl)
        self._n = n
        self._change_kind = change_kind
        self._descending = descending

    @property
    def ranking(self) -> SavedRanking:
        by, kind = "a function", self._change_kind
        return ranking_of_top_n("rows", by, self._n, kind, self._descending)

    def process(self, value: Any, ctx: RuntimeContext) -> Iterator[Any]:
        rank = self._rank(value, ctx)
        if rank is None:
            self.unranked += 1
            return
        if self._change_kind is not None:
            self._check_record(value)
        known: tuple[tuple[Any, Any], ...] = self._state.value() or ()
        kept = (rank, value if self._change_kind is not None else None)
        try:
            best = self._best((*known, kept))
        except TypeError as error:
            raise self._incomparable(rank, known[0][0]) from error
        left = best[self._n :]
        self._state.update(tuple(best[: self._n]))
        if left and left[0] is kept:
            return
        for _, gone in left:
            if self._change_kind is not None:
                yield self._changed(gone, "delete")
        yield value if self._change_kind is None else self._changed(value, "insert")

    def _best(self, members: Sequence[tuple[Any, Any]]) -> Sequence[tuple[Any, Any]]:
        # The sort is stable, even in reverse, so incumbents win ties.
        if len(self._descending) == 1:
            return sorted(members, key=itemgetter(0), reverse=self._descending[0])
        for at, descending in reversed(list(enumerate(self._descending))):
            members = sorted(members, key=lambda member: member[0][at], reverse=descending)
        return members

    def _check_record(self, value: Any) -> None:
        if not isinstance(value, dict):
            advice = "make dicts with map before top_n"
            raise PenstockError(no_dict("top_n with change_kind", value, advice))
        if self._change_kind in value:
            raise PenstockError(taken_name(str(self._change_kind)))

    def _changed(self, value: dict[Any, Any], kind: ChangeKind) -> dict[Any, Any]:
        assert self._change_kind is not None, "changes have a kind"
        return {**value, self._change_kind: kind}


class RankingOperator(KeyedProcessOperator):
    """Runs a `ChosenByFunction`; refuses state of different arguments, and reports the `unranked` count."""

    _user: ChosenByFunction

    def open(self, context: OperatorContext) -> None:
        own_state(context, [self._user.state_name], f"a {self._user.call} by a function")
        self._user.ranking.check(context)
        if self._user.by is not None and self.isolates:
            self._user.rank_of = reading(self._user.by)
        super().open(context)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {**super().snapshot(checkpoint_id), RANKING: self._user.ranking.saved()}

    @property
    def doing(self) -> str:
        if self._selecting:
            return super().doing
        by = self._user.by
        return self._user.call + ("" if by is None else f": by {_shown(by)}")

    def built_in_counts(self) -> Mapping[str, int]:
        return {} if self._user.by is None else {UNRANKED_RECORDS: self._user.unranked}
