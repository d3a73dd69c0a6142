"""`key_by(names).window(EventTimeSessionWindows(gap)).aggregate(...)`: accumulators of sessions, in columns.

A session is a slot of the table. Its first moment is a column of the key, as the start of a window is in
`window_aggregate.py`. Its first and last moments are accumulators, too, so they are merged like all others.

A pane is as long as the gap, so records of a key in one pane are always in one session. A batch is first
grouped by key and pane. Each row is a span from the first record to the last record of its pane. These spans
are joined with the live sessions of the same keys (`joined`). Then there are three cases:

- Spans extend a live session, and its start stays. They are merged into its slot.
- The start of a live session changes, or two live sessions become one. The accumulators move to the slot of
  the new start.
- Spans join no live session. They become new sessions in new slots.

To find live sessions, each key with a session has a number, and each slot has the number of its key. A table
assigns the numbers; snapshots do not hold it. A key is deleted with its last session.

Functions that depend on the order of rows receive the rows of each session in their order, not panes. When
two sessions become one, the earlier session comes first.

**Joining spans without a loop over keys** (`joined`). The spans are sorted by key and start. A session begins
at each new key. It also begins at each span that starts a gap or more after the key's latest record so far.
The time of this record is a running maximum within each key, computed for all keys at once. For that, moments
are replaced by their ranks, and each key's ranks are shifted above the ranks of the keys before it.

**Late records.** A session ends a gap after its last moment. It is late when the watermark has reached the
microsecond before this end. Then its records in the batch go to the side output. The records of a batch count
as simultaneous. So a record is not late if other records of the batch join it to an open session.

Never leave two live sessions of a key less than a gap apart: the next record would join only one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.column_aggregate import distinct, filtered, grown
from penstock.runtime.operators.aggregation.functions import Max, Min
from penstock.runtime.operators.aggregation.panes import PANE, Moments, moments_in, moments_of
from penstock.runtime.operators.aggregation.window_aggregate import START, Columns, ColumnWindowOperator
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.operator import Output
from penstock.runtime.operators.windows.window import WindowShape
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import Batch
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.typed_columns import Slots

#: Numbers of keys, moments in microseconds, and indices.
Numbers = NDArray[np.int64]

#: Name of the state table that holds the accumulators.
SESSION_AGGREGATE_STATE: Final = "session_aggregate"

#: Column of the records' timestamps; results with the first and last moment of a session.
_MOMENT: Final = ":moment"
_FIRST, _LAST = ":first", ":last"
#: Columns of these results in the table and in partial results.
_FIRSTS, _LASTS = f"{_FIRST}:min", f"{_LAST}:max"


class SessionAggregateOperator(ColumnWindowOperator):
    """Aggregates by key and session; `gap` is in microseconds, and all functions are `PartialAggregate`s."""

    state_name = SESSION_AGGREGATE_STATE

    def __init__(
        self, key: ColumnKey, aggregation: Aggregation, gap: int, late_tag: str = LATE_RECORDS
    ) -> None:
        super().__init__(key, aggregation, WindowShape(gap, "aggregates of sessions in columns"), late_tag)
        self._aggregation = aggregation.and_also({_FIRST: Min(_MOMENT), _LAST: Max(_MOMENT)})
        self._gap = gap
        self._keys = _KeysWithSessions()

    def process(self, batch: Batch) -> Iterator[Output]:
        stamps = moments_of(batch)
        add = self._add_in_order if self._results.is_ordered else self._add_by_pane
        is_late = np.zeros(len(batch), np.bool_)
        for rows, keys, inputs in self._columns.of(batch):
            places = slice(None) if rows is None else rows
            own = stamps[places]
            is_late[places] = add(keys, {**inputs, _MOMENT: pa.array(own)}, own)
        if is_late.any():
            yield from self._late_output(batch, is_late)

    def _ends_of(self, slots: Slots) -> Moments:
        return self._lasts(slots) + self._gap

    def _starts_of(self, slots: Slots, ends: Moments) -> Moments:
        return self._firsts(slots)

    def _restored(self, slots: Slots) -> None:
        numbers = self._numbers_of(slots)
        self._keys.enter(slots, numbers)
        self._keys.count(numbers, np.ones(len(slots), np.bool_))

    def _delete_beside(self, slots: Slots, reached: int) -> None:
        self._keys.leave(slots)

    def _add_in_order(self, keys: Columns, inputs: Columns, stamps: Moments) -> NDArray[np.bool_]:
        """Add rows to their sessions in their order; return whether each row is late."""
        found = self._join(self._keys.numbers_of(keys), stamps, stamps)
        session = found.session[: len(stamps)]
        is_late = self._are_late(found)[session]
        if not is_late.all():
            on_time = pa.array(~is_late)
            starts = pa.array(found.firsts[session]).filter(on_time)
            keys, inputs = filtered(keys, on_time), filtered(inputs, on_time)
            partials = self._aggregation.partials({**keys, START: starts}, inputs)
            self._merge(partials, moments_in(partials, START))
        self._settle(found)
        return is_late

    def _add_by_pane(self, keys: Columns, inputs: Columns, stamps: Moments) -> NDArray[np.bool_]:
        panes = pa.array(stamps - stamps % self._gap)
        partials = self._aggregation.partials({**keys, PANE: panes}, inputs)
        of_panes = {name: partials.column(name) for name in keys}
        numbers = self._keys.numbers_of(of_panes)
        found = self._join(numbers, moments_in(partials, _FIRSTS), moments_in(partials, _LASTS))
        session = found.session[: partials.num_rows]
        is_late = self._are_late(found)[session]
        if not is_late.all():
            self._merge(partials.filter(pa.array(~is_late)), found.firsts[session][~is_late])
        self._settle(found)
        if not is_late.any():
            return np.zeros(len(stamps), np.bool_)
        late = pa.array(is_late)
        late_panes = filtered({**of_panes, PANE: partials.column(PANE)}, late)
        return _are_among({**keys, PANE: panes}, late_panes)

    def _join(self, keys: Numbers, firsts: Moments, lasts: Moments) -> JoinedSpans:
        """Join spans with the live sessions of their keys, and move sessions whose start has changed."""
        live = self._keys.slots_with(self._table.all_slots, keys)
        starts = self._firsts(live)
        found = joined(
            np.concatenate([keys, self._keys.of(live)]),
            np.concatenate([firsts, starts]),
            np.concatenate([lasts, self._lasts(live)]),
            self._gap,
        )
        begin = found.firsts[found.session[len(keys) :]]
        moves = np.flatnonzero(begin != starts)
        if len(moves):
            moves = moves[np.argsort(starts[moves], kind="stable")]
            alike = self._table.alike(live[moves])
            moved = [self._aggregation.partials_of(self._table, live[moves][some]) for some in alike]
            self._table.delete(live[moves])
            for some, own in zip(alike, moved, strict=True):
                self._merge(own, begin[moves][some])
        return found

    def _merge(self, partials: pa.RecordBatch, starts: Moments) -> None:
        touched = self._aggregation.merge(self._table, partials, {START: pa.array(starts)})
        self._keys.enter(touched, self._numbers_of(touched))

    def _settle(self, found: JoinedSpans) -> None:
        stay = ~self._are_late(found)
        self._keys.count(found.keys, stay)
        if stay.any():
            self._note_end(int(found.lasts[stay].min()) + self._gap)

    def _are_late(self, found: JoinedSpans) -> NDArray[np.bool_]:
        reached = self._reached.timestamp
        if reached is None:
            return np.zeros(len(found.lasts), np.bool_)
        are_late: NDArray[np.bool_] = found.lasts + (self._gap - 1) <= reached
        return are_late

    def _numbers_of(self, slots: Slots) -> Numbers:
        numbers = np.empty(len(slots), np.int64)
        for some in self._table.alike(slots):
            keys = self._table.keys(slots[some])
            numbers[some] = self._keys.numbers_of(
                {name: keys.column(name) for name in self._results.key_names}
            )
        return numbers

    def _firsts(self, slots: Slots) -> Moments:
        return self._table.key_numbers(START, slots) if len(slots) else np.empty(0, np.int64)

    def _lasts(self, slots: Slots) -> Moments:
        if not len(slots):
            return np.empty(0, np.int64)
        lasts: Moments = self._table.columns[_LASTS].all[0].values[slots]
        return lasts


class JoinedSpans(NamedTuple):
    """Keys, first and last moments of sessions; `session` has the index of each span's session."""

    session: Numbers
    keys: Numbers
    firsts: Numbers
    lasts: Numbers


def joined(keys: Numbers, firsts: Numbers, lasts: Numbers, gap: int) -> JoinedSpans:
    """Join the spans of each key that are less than a gap apart.

    Example:
        >>> spans = joined(np.array([7, 8, 7, 7]), np.array([20, 0, 0, 9]), np.array([20, 0, 4, 9]), gap=10)
        >>> spans.session.tolist(), spans.keys.tolist()
        ([1, 2, 0, 0], [7, 7, 8])
        >>> spans.firsts.tolist(), spans.lasts.tolist()
        ([0, 20, 0], [9, 20, 0])
    """
    order = np.lexsort((firsts, keys))
    keys, firsts = keys[order], firsts[order]
    moments, ranks = _ranked(lasts[order])
    is_new_key = np.ones(len(keys), np.bool_)
    is_new_key[1:] = keys[1:] != keys[:-1]
    above = (np.cumsum(is_new_key) - 1) * len(moments)
    latest = moments[np.maximum.accumulate(ranks + above) - above]
    begins = is_new_key.copy()
    begins[1:] |= firsts[1:] - latest[:-1] >= gap
    places = np.flatnonzero(begins)
    session = np.empty(len(keys), np.int64)
    session[order] = np.cumsum(begins) - 1
    ends = np.append(places[1:], len(keys)) - 1
    return JoinedSpans(session, keys[places], firsts[places], latest[ends])


def _ranked(numbers: Numbers) -> tuple[Numbers, Numbers]:
    order = np.argsort(numbers)
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers))
    return numbers[order], ranks


class _KeysWithSessions:
    """A number for each key that has a session, and the key of each slot of the sessions' table."""

    def __init__(self) -> None:
        self._numbers = ColumnTable("keys with sessions", 1, tracks_changes=False)
        #: Number of sessions, by number of the key.
        self._sessions: Numbers = np.zeros(0, np.int64)
        #: Number of the key, by slot of a session.
        self._of_slot: Numbers = np.zeros(0, np.int64)

    def numbers_of(self, keys: Columns) -> Numbers:
        """The number of each row's key; call `count` next, which deletes new keys without a session."""
        numbers = self._numbers.slots_of(keys)
        self._sessions = grown(self._sessions, numbers)
        return numbers

    def of(self, slots: Slots) -> Numbers:
        return self._of_slot[slots]

    def slots_with(self, slots: Slots, keys: Numbers) -> Slots:
        if not len(slots):
            return slots
        wanted = np.zeros(len(self._sessions), np.bool_)
        wanted[keys] = True
        found: Slots = slots[wanted[self._of_slot[slots]]]
        return found

    def enter(self, slots: Slots, keys: Numbers) -> None:
        self._of_slot = grown(self._of_slot, slots)
        self._of_slot[slots] = keys

    def count(self, keys: Numbers, stay: NDArray[np.bool_]) -> None:
        """Set the number of sessions that `stay`, for some keys; `keys` has one entry per session."""
        self._sessions[keys] = 0
        np.add.at(self._sessions, keys, stay)
        self._forget(keys)

    def leave(self, slots: Slots) -> None:
        keys = self._of_slot[slots]
        np.subtract.at(self._sessions, keys, 1)
        self._forget(keys)

    def _forget(self, keys: Numbers) -> None:
        self._numbers.delete(distinct(keys[self._sessions[keys] == 0]))


def _are_among(rows: Columns, chosen: Columns) -> NDArray[np.bool_]:
    """Return whether each row is among the chosen rows, which are all different."""
    table = ColumnTable("chosen rows", 1, tracks_changes=False)
    last = int(table.slots_of(chosen).max())
    are_among: NDArray[np.bool_] = table.slots_of(rows) <= last
    return are_among
