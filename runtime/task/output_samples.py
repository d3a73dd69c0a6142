"""Samples of the records that a subtask sends on an edge, while a user looks at them.

Without a sample, sending has no extra cost. A sample replaces the partition among the outputs by a
`SampledPartition`, and the end of the last sample restores the partition. All of this runs in the task
thread, except `OutputSample.records`.

A record becomes text at once, because the user's function may change the object later. A text shows at most
`MOST_VALUES` values of containers and dataclasses. A sample ends early after `MOST_SECONDS`. Only a single
`__repr__` of a user's class can take longer. A record that can't be shown never fails the job.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from reprlib import Repr
from typing import Any, Final, Protocol

from penstock.runtime.graph.execution_graph import ResultPartitionSpec
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.record.elements import Batch

#: Maximum number of records in one sample.
MOST_RECORDS: Final = 100
#: Maximum number of characters of one record.
MOST_CHARACTERS: Final = 2_000
#: Maximum number of values of one record that become text; each has at least one character and a comma.
MOST_VALUES: Final = MOST_CHARACTERS // 2
#: Seconds of the task thread after which a sample ends with the records that it has.
MOST_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """An edge, as its sender knows it.

    Attributes:
        target: Id of the vertex that receives.
        operator: Operator whose output is sent.
        side_output: Name of the side output that is sent; `None` for the main output.
        copy: Index of this edge among edges of the same output and input.
    """

    target: str
    operator: str
    side_output: str | None
    input_index: int
    copy: int

    @classmethod
    def of(cls, spec: ResultPartitionSpec) -> OutputEdge:
        target = spec.channels[0].receiver.vertex
        return cls(target, spec.operator, spec.tag, spec.edge.input_index, spec.edge.copy)


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """A record as text, and its event time in microseconds since the epoch."""

    text: str
    timestamp: int | None = None


#: `__repr__` of the types whose texts are made here, value by value. A subclass with
#: a `__repr__` of its own is not treated as a container.
_MAPPINGS: Final = {each.__repr__ for each in (dict, OrderedDict, defaultdict, Counter)}
_SETS: Final = {each.__repr__ for each in (set, frozenset)}
_SEQUENCES: Final = {each.__repr__ for each in (list, tuple, deque)}
_BYTES: Final = (bytes, bytearray)


class _BoundedRepr(Repr):
    """The text of one record."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxstring = self.maxother = self.maxlong = 500
        self._most = 30
        self._left = MOST_VALUES

    def repr1(self, x: Any, level: int) -> str:
        self._left -= 1
        if self._left < 0:
            return "..."
        shows: object = type(x).__repr__
        if shows in _MAPPINGS:
            return self._shown(x, "{", self._pairs(x, level), "}", level)
        if shows in _SETS:
            return self._shown(x, "{", self._values(x, level), "}", level) if x else super().repr1(x, level)
        if shows in _SEQUENCES:
            begin, end = ("(", ",)" if len(x) == 1 else ")") if isinstance(x, tuple) else ("[", "]")
            return self._shown(x, begin, self._values(x, level), end, level)
        if isinstance(x, _BYTES):
            return super().repr_instance(x[: self.maxother], level)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return self._named(x, x._fields, level)
        if is_dataclass(x) and not isinstance(x, type):
            return self._named(x, [each.name for each in fields(x) if each.repr], level)
        return super().repr1(x, level)

    def _shown(self, x: Any, begin: str, texts: Iterable[str], end: str, level: int) -> str:
        inside = "..." if level <= 0 and x else ", ".join(texts)
        is_plain = type(x) in (dict, set, list, tuple)
        return f"{begin}{inside}{end}" if is_plain else f"{type(x).__name__}({begin}{inside}{end})"

    def _values(self, x: Any, level: int) -> Iterator[str]:
        """The first values, in the order of the record."""
        for value in islice(x, self._most):
            yield self.repr1(value, level - 1)
        if len(x) > self._most:
            yield "..."

    def _pairs(self, x: dict[Any, Any], level: int) -> Iterator[str]:
        for key, value in islice(x.items(), self._most):
            yield f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
        if len(x) > self._most:
            yield "..."

    def _named(self, x: Any, names: Iterable[str], level: int) -> str:
        values = (f"{name}={self.repr1(getattr(x, name), level - 1)}" for name in names)
        return f"{type(x).__name__}({'...' if level <= 0 else ', '.join(values)})"


def shown(record: object) -> str:
    """A record as text of bounded length; never raises.

    Example:
        >>> shown({"word": "to", "count": 2}), len(shown("x" * 10_000))
        ("{'word': 'to', 'count': 2}", 500)
    """
    try:
        text = _BoundedRepr().repr(record)
    except BaseException as error:  # of the user's own class, which may even call `sys.exit`
        text = f"<{type(record).__name__}, which can't be shown: {type(error).__name__}>"
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def _records_of(batch: Batch) -> Iterator[SampledRecord]:
    try:
        rows = rows_of(batch)
    except Exception as error:  # Arrow has values that Python lacks, such as nanoseconds
        text = f"<a batch of {len(batch)} rows, which can't be shown: {type(error).__name__}: {error}>"
        yield SampledRecord(text[:MOST_CHARACTERS])
        return
    for place, row in enumerate(rows.rows):
        at = None if rows.timestamps is None else rows.timestamps[place]
        yield SampledRecord(shown(row), None if at is None else int(at))


class OutputSample:
    """Collects the next records of one edge, at most `most`; calls `on_full` once.

    Args:
        now: Clock in seconds, for the time that the task thread spends.
    """

    def __init__(self, most: int, on_full: Callable[[], None], now: Callable[[], float]) -> None:
        self._most = min(most, MOST_RECORDS)
        self._on_full = on_full
        self._now = now
        self._spent = 0.0
        self._records: list[SampledRecord] = []
        self.is_full = self._most <= 0

    @property
    def records(self) -> tuple[SampledRecord, ...]:
        """The records so far; callable from any thread."""
        return tuple(self._records)

    def take(self, batch: Batch) -> None:
        """Show the first records of a batch, unless the sample is full."""
        if self.is_full or not len(batch):
            return
        begun = self._now()
        first: Iterator[Batch] = batch.slices(self._most - len(self._records))
        for record in _records_of(next(first)):
            self._records.append(record)
            if self._spent + self._now() - begun > MOST_SECONDS:
                self._end()
                return
        self._spent += self._now() - begun
        if len(self._records) >= self._most:
            self._end()

    def fail(self, error: BaseException) -> None:
        """End the sample after an error of `take`; its last record names the error."""
        self._records.append(SampledRecord(f"<records that can't be shown: {type(error).__name__}>"))
        self._end()

    def _end(self) -> None:
        self.is_full = True
        self._on_full()


class Emits(Protocol):
    """A partition, or a sampled one."""

    def emit(self, batch: Batch) -> None: ...


class SampledPartition:
    """A partition that shows its records to samples first; calls `on_last` when the last sample has ended."""

    def __init__(self, partition: Emits, on_last: Callable[[], None]) -> None:
        self.partition = partition
        self._on_last = on_last
        self._samples: list[OutputSample] = []

    def add(self, sample: OutputSample) -> None:
        self._samples.append(sample)

    def end(self, sample: OutputSample) -> None:
        """End a sample; does nothing if it has ended."""
        if sample in self._samples:
            self._samples.remove(sample)
            if not self._samples:
                self._on_last()

    def emit(self, batch: Batch) -> None:
        for sample in tuple(self._samples):
            try:
                sample.take(batch)
            except BaseException as error:  # raised by users' values; the records must still be sent
                sample.fail(error)
            if sample.is_full:
                self.end(sample)
        self.partition.emit(batch)
