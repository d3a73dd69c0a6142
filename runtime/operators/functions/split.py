"""`split`: each record goes to the first stream whose predicate is true for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress
from typing import Any, ClassVar

from penstock.runtime.operators.functions.function_operator import FunctionOperator, check_function, rows_of
from penstock.runtime.operators.operator import OperatorContext, Output, Tagged
from penstock.runtime.operators.user_code.emission import Emission
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.state.own_copy import own_copy


class SplitOperator(FunctionOperator):
    """Emits each record under the tag of the first predicate that is true, else in the main output.

    A predicate is called with the records of a batch that no predicate before it has taken.

    Args:
        predicates: Take a record, by tag; at least one.

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
        # Messages name the predicate that is called or checked.
        super().__init__(next(iter(predicates.values())))

    def open(self, context: OperatorContext) -> None:
        """Check the predicates.

        Raises:
            ConfigurationError: One can't be called, is a coroutine, or yields.
        """
        super().open(context)
        for predicate in self._predicates.values():
            self._function = predicate
            check_function(self.kind, predicate)

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return self._predicates.values()

    def process(self, batch: Batch) -> Iterator[Output]:
        """Split a batch."""
        rest = rows_of(batch)
        self._records_in += len(rest)
        if self._emission is Emission.AT_ONCE:
            yield from self._split_one_by_one(rest)
            return
        taken = list[Tagged]()
        for tag, predicate in self._predicates.items():
            self._function = predicate
            found, rest = self._divided(rest)
            if found:
                taken.append(Tagged(tag, found))
        self._cursor.done()
        self._records_out += len(rest)
        yield from taken
        if rest:
            yield rest

    def _split_one_by_one(self, batch: RowBatch) -> Iterator[Output]:
        """Ask all predicates about one record before the next, and copy it: they may change or keep it."""
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
        self._records_out += len(rest)
        stamps = batch.timestamps
        for tag, rows in found.items():
            if rows:
                yield Tagged(tag, RowBatch(rows, stamps and [stamps[place] for place in places[tag]]))
        if rest:
            yield RowBatch(rest, stamps and [stamps[place] for place in of_rest])

    def _divided(self, batch: RowBatch) -> tuple[RowBatch, RowBatch]:
        predicate = self._function
        is_true = [bool(predicate(row)) for row in self._cursor.over(batch.rows)]
        is_false = [not each for each in is_true]
        return _chosen(batch, is_true), _chosen(batch, is_false)


def _chosen(batch: RowBatch, chosen: list[bool]) -> RowBatch:
    stamps = batch.timestamps
    return RowBatch(
        list(compress(batch.rows, chosen)), None if stamps is None else list(compress(stamps, chosen))
    )
