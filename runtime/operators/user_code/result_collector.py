"""Output batches from functions that return any number of records.

The result of a function may be a list, `None`, or a generator that never ends. So results are consumed
lazily: `itertools.chain` joins them, and rows are drawn from it in chunks at C speed. A batch is emitted when
it has `OUTPUT_SLICE` rows, or after about ten milliseconds, so that a slow generator does not delay control
messages. The clock is read once per chunk. Chunks become smaller if rows are slow, and larger if they are
fast.

`Emission` decides when emitted records are copied. A record must keep the value that it had when it was
emitted. But a function may keep the record, and change it in its next call or after its `yield`. So each
mutable record is copied before the function continues (`own_copy`). If a function only reads its records,
all records of a batch are copied together, which is several times faster. If all functions of a subtask only
read, nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import chain, islice
from types import GeneratorType
from typing import Any, Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.state.own_copy import LEAVES, draw_copies, own_batch, own_copies, own_copy


def reading(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a function so that it receives a copy of each record, unless it only reads.

    Example:
        >>> row = {"at": 5}
        >>> reading(lambda row: row.pop("at"))(row), row
        (5, {'at': 5})
    """
    return function if only_reads(function) else lambda row: function(own_copy(row))


class Emission(Enum):
    """Moment at which records are copied: never, after a whole batch, or each when it is emitted."""

    NEVER = "never"
    BY_BATCH = "by batch"
    AT_ONCE = "at once"

    @staticmethod
    def of(functions: Iterable[Callable[..., Any]], *, isolates: bool) -> Emission:
        if not isolates:
            return Emission.NEVER
        return Emission.BY_BATCH if all(map(only_reads, functions)) else Emission.AT_ONCE

    def mapped(self, function: Callable[[Any], Any], rows: Iterator[Any]) -> list[Any]:
        """Results of a function for each row, copied if necessary.

        Example:
            >>> row = []
            >>> def grown(number):
            ...     row.append(number)
            ...     return row
            >>> Emission.AT_ONCE.mapped(grown, iter([1, 2]))
            [[1], [1, 2]]
        """
        if self is Emission.AT_ONCE:
            leaves = LEAVES
            return [made if type(made := function(row)) in leaves else own_copy(made) for row in rows]
        return self.batch([function(row) for row in rows])

    def batch(self, rows: list[Any]) -> list[Any]:
        return own_copies(rows) if self is Emission.BY_BATCH else rows

    def drawn(self, records: Iterator[Any], most: int) -> list[Any]:
        return draw_copies(records, most) if self is Emission.AT_ONCE else list(islice(records, most))


#: Maximum number of rows of one output batch.
OUTPUT_SLICE: Final = 4096

#: Seconds after which rows are emitted, even if there are few.
PATIENCE: Final = 0.01

_FIRST_CHUNK: Final = 64
_LARGEST_CHUNK: Final = 1024

#: Iterable types that are usually one record; a function that returns one should probably wrap it in a list.
_SINGLE_RECORDS: Final = (str, bytes, bytearray, dict)


class ResultCollector:
    """Collects the results of one operator's function into batches; `monotonic` is a clock in seconds.

    Example:
        >>> from itertools import count
        >>> batches = ResultCollector(lambda: 0.0).collect([["a"], None, count()], None)
        >>> next(batches).rows[:3], len(next(batches))
        (['a', 0, 1], 4096)
    """

    def __init__(self, monotonic: Callable[[], float], emission: Emission = Emission.AT_ONCE) -> None:
        self._monotonic = monotonic
        self._emission = emission
        self._chunk = _FIRST_CHUNK

    def collect(
        self,
        results: Iterable[Any],
        timestamps: Iterable[int | list[int]] | None,
        *,
        are_iterable: bool = False,
    ) -> Iterator[RowBatch]:
        """Flatten results into batches, in order.

        Args:
            results: One result for each input record, drawn when the previous result has been consumed.
            timestamps: Timestamps of the input records, each drawn right after its result; may be `None`. The
                entry for a result that is a list may be a list of as many timestamps.
            are_iterable: Whether all results are iterable already (`iterable_of`), so that none is checked.
        """
        stamps: list[int] = []
        if timestamps is None:
            parts = results if are_iterable else _iterables(results)
            flat: Iterator[Any] = chain.from_iterable(parts)
            draw = self._emission.drawn
        else:
            flat = chain.from_iterable(self._lists(results, timestamps, stamps))
            draw = Emission.NEVER.drawn  # the lists hold copies where these are needed
        rows: list[Any] = []
        begun = last = self._monotonic()
        while True:
            wanted = min(self._chunk, OUTPUT_SLICE - len(rows))
            before = len(rows)
            rows += draw(flat, wanted)
            ended = len(rows) - before < wanted
            now = self._monotonic()
            self._adapt(now - last)
            last = now
            if rows and (ended or len(rows) == OUTPUT_SLICE or now - begun > PATIENCE):
                yield RowBatch(
                    self._emission.batch(rows), None if timestamps is None else stamps[: len(rows)]
                )
                del stamps[: len(rows)]
                rows = []
                begun = last = self._monotonic()
            if ended:
                return

    def _adapt(self, took: float) -> None:
        if took > PATIENCE / 2:
            self._chunk = max(1, self._chunk // 2)
        elif took < PATIENCE / 8:
            self._chunk = min(_LARGEST_CHUNK, self._chunk * 2)

    def _lists(
        self, results: Iterable[Any], timestamps: Iterable[int | list[int]], stamps: list[int]
    ) -> Iterator[list[Any]]:
        draw = self._emission.drawn
        for result, stamp in zip(results, timestamps, strict=True):
            kind = type(result)
            if kind is list:
                stamps += stamp if isinstance(stamp, list) else [stamp] * len(result)
                yield draw(iter(result), len(result))
            elif result is not None:
                assert not isinstance(stamp, list), "only a list has several timestamps"
                iterator = result if kind is GeneratorType else iterator_of(result)
                wanted = drawn = self._chunk
                while drawn == wanted:
                    some = draw(iterator, wanted)
                    drawn = len(some)
                    stamps += [stamp] * drawn
                    yield some


def _iterables(results: Iterable[Any]) -> Iterator[Iterable[Any]]:
    for result in results:
        kind = type(result)
        if kind is list or kind is GeneratorType:
            yield result
        elif result is not None:
            yield iterator_of(result)


def isolated(batch: Batch) -> Batch:
    """A batch with copies of all records and timestamps that user code could change."""
    if isinstance(batch, ArrowBatch):
        return ArrowBatch(own_batch(batch.batch), batch.timestamps)
    stamps = batch.timestamps
    return RowBatch(own_copies(batch.rows), None if stamps is None else list(stamps))


def iterable_of(result: Any) -> Iterable[Any]:
    return () if result is None else iterator_of(result)


def iterator_of(result: Any) -> Iterator[Any]:
    """Iterate over the records of a result; refuses values such as a `str`, which is probably one record.

    Example:
        >>> iterator_of("abc")
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.PenstockError: it returned a str, did you mean ['abc']?
    """
    if isinstance(result, _SINGLE_RECORDS):
        msg = f"it returned a {type(result).__name__}, did you mean [{short_repr(result)}]?"
        raise PenstockError(msg)
    try:
        return iter(result)
    except TypeError:
        kind = type(result).__name__
        msg = f"it returned {short_repr(result)} of type {kind}; return a list of records, or yield them"
        raise PenstockError(msg) from None
