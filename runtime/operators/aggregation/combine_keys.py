"""`CombineOperator`: a part of an aggregation by key, in front of the exchange.

Watermarks pass what it keeps. That is harmless: an aggregation without windows looks at no event time, and
its results have no timestamps. `combine_panes` is the one for windows.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.runtime.operators.aggregation.combiner import Combiner
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.elements import ArrowBatch, Batch


class CombineOperator(Combiner):
    """Reduces records by key before they are sent."""

    @property
    def doing(self) -> str:
        """What it is part of."""
        return "combining rows by key"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Take a batch in, or hand it on."""
        self._records_in += len(batch)
        if isinstance(batch, ArrowBatch) and not self._gain.should_try(len(batch)):
            yield from self._handed_on(self._columns.projected(batch))
            return
        for rows, keys, inputs in self._columns.of(batch):
            count = len(batch) if rows is None else len(rows)
            yield from self._taken_in(count, self._aggregation.reduced(keys, inputs))
