"""`left.join(right, on="k", within=...)` over Arrow batches.

Each side has a `ColumnLog`, which finds rows by key and time. A batch is joined with the other side's log,
and then added to its own side's log. So the row of a pair that arrives second finds the first.
`interval_join.py` has the time rules.

If the kind of join depends on whether a row had a partner, the log has a column `:matched`. Snapshots hold
this column. A pair that the condition `where` rejects does not count.

Rows are deleted only when the watermark advances, never while a batch is joined. A row may have expired when
it arrives: no later row can be its partner. Such a row is joined with the other log, but not added to its
own. If it has no partner, a join that emits rows without a partner emits it at once.

A row with a null in its key has no partner. A join that emits rows without a partner emits it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.runtime.operators.expressions import as_mask, compute
from penstock.runtime.operators.functions.function_operator import only_column_logs
from penstock.runtime.operators.joins.column_join import ColumnJoinOperator, Mask, filtered
from penstock.runtime.operators.joins.column_names import Columns
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, IntervalJoin, Side, moved, other_side
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Watermark
from penstock.runtime.state.row_ring import Moments
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import Slots

#: Names of the logs.
LOGS: Final = "join_left_columns", "join_right_columns"

#: The column of a log that says whether the row had a partner.
MATCHED: Final = ":matched"


class ColumnIntervalJoinOperator(ColumnJoinOperator):
    """Joins Arrow batches by key and time.

    Args:
        keys: Key of each side.
        where: Condition over the output's columns.
        late_tags: Names of the side outputs for late rows of each side.
    """

    own_columns = (MATCHED,)

    def __init__(
        self,
        join: IntervalJoin,
        keys: tuple[ColumnKey, ColumnKey],
        where: pc.Expression | None,
        suffix: str,
        late_tags: tuple[str, str],
    ) -> None:
        super().__init__(join, keys, suffix, late_tags)
        self._join = join
        self._where = where
        self.makes_watermarks = join.delay > 0

    def _open_state(self, context: OperatorContext) -> None:
        left, right = only_column_logs(context, LOGS, "a join over columns")
        self._logs = left, right

    def _comes_alone(self, side: Side) -> bool:
        return self._join.comes_alone(side)

    def _joined(self, side: Side, keys: Columns, values: Columns, times: Moments) -> Iterator[Output]:
        hashes = key_hashes(list(keys.values()))
        other = self._logs[other_side(side)]
        first, last = self._join.distances(side)
        places, slots = other.find(keys, moved(times, first), moved(times, last), hashes)
        matched = np.zeros(len(times), np.bool_)
        for some in self._alike(other_side(side), slots):
            pairs, own, theirs = self._pairs(side, {**keys, **values}, places[some], slots[some])
            if pairs is not None and self._join.emits_pairs and len(own):
                yield ArrowBatch(pairs, pa.array(np.maximum(times[own], other.times[theirs])))
            yield from self._mark(other_side(side), theirs)
            matched[own] = True
        if self._join.how == "semi" and side == LEFT and matched.any():
            columns = filtered({**keys, **values}, matched)
            yield ArrowBatch(self._output.only(columns), pa.array(times[matched]))
        yield from self._add(side, keys, values, times, matched, hashes)

    def _pairs(
        self, side: Side, columns: Columns, places: Slots, slots: Slots
    ) -> tuple[pa.RecordBatch | None, Slots, Slots]:
        """The pairs that the condition accepts, with their places in the batch and slots in the log.

        The pairs are `None` if neither the output nor a condition needs them.
        """
        if not (self._join.emits_pairs or self._where is not None):
            return None, places, slots
        mine = {name: column.take(pa.array(places)) for name, column in columns.items()}
        theirs = self._stored(other_side(side), slots, self._same_keys(side, mine))
        pairs = self._output.pairs(*((mine, theirs) if side == LEFT else (theirs, mine)))
        if self._where is None:
            return pairs, places, slots
        (result,) = compute({"where": self._where}, pairs)
        chosen = np.flatnonzero(as_mask(result, "join").fill_null(False).to_numpy(zero_copy_only=False))
        return pairs.take(pa.array(chosen)), places[chosen], slots[chosen]

    def _same_keys(self, side: Side, columns: Columns) -> Columns | None:
        """The key columns of these rows' partners in the other log; `None` if they have other types there.

        Equal keys of one type are identical, because keys are canonical. So the log need not be read.
        """
        other, own = other_side(side), [columns[name] for name in self._keys[side].names]
        stored = self._logs[other].key_types.values()
        if any(types != [part.type] for types, part in zip(stored, own, strict=True)):
            return None
        return dict(zip(self._keys[other].names, own, strict=True))

    def _mark(self, side: Side, slots: Slots) -> Iterator[Output]:
        """Mark rows in the log as matched; a semi join emits each of them at its first match."""
        if side not in self._join.marks or not len(slots):
            return
        log = self._logs[side]
        flags = log.columns[MATCHED].values
        new = slots[~flags[slots]]
        flags[new] = True
        log.note_changed(new)
        if self._join.how == "semi" and len(new):
            new = np.unique(new)
            yield ArrowBatch(self._output.only(self._stored(side, new)), pa.array(log.times[new]))

    def _add(
        self,
        side: Side,
        keys: Columns,
        values: Columns,
        times: Moments,
        matched: Mask,
        hashes: NDArray[np.uint64],
    ) -> Iterator[Output]:
        """Add rows to the log, except expired rows and rows that need no further partner."""
        join, reached = self._join, self._reached.timestamp
        expired = np.zeros(len(times), np.bool_)
        if reached is not None:
            expired = times <= join.expired(side, reached)
        if join.comes_alone(side):
            alone = expired & ~matched
            if alone.any():
                yield from self._alone(side, filtered({**keys, **values}, alone), times[alone])
        kept = ~expired
        if not join.emits_pairs and side == LEFT:
            kept &= ~matched
        if not kept.all():
            keys, values = filtered(keys, kept), filtered(values, kept)
            times, matched, hashes = times[kept], matched[kept], hashes[kept]
        if side in join.marks:
            values = {**values, MATCHED: pa.array(matched)}
        if len(times):
            self._logs[side].append(keys, times, values, hashes)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        reached = self._reached.advance(watermark.timestamp)
        for side in (LEFT, RIGHT):
            log = self._logs[side]
            slots = log.until(self._join.expired(side, reached))
            if self._join.comes_alone(side) and len(slots):
                alone = slots[~log.columns[MATCHED].values[slots]]
                for some in self._alike(side, alone):
                    yield from self._alone(side, self._stored(side, alone[some]), log.times[alone[some]])
            log.delete(slots)
            self._gauges[side].set(len(log))
        if self.makes_watermarks:
            yield self._join.output_watermark(Watermark(reached))

    def _alone(self, side: Side, columns: Columns, times: Moments) -> Iterator[Output]:
        if self._join.how == "anti":
            yield ArrowBatch(self._output.only(columns), pa.array(times))
        else:
            yield ArrowBatch(
                self._output.alone(side, columns, self._types[other_side(side)]), pa.array(times)
            )
