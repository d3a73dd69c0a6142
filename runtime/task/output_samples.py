"""Samples of the records that a subtask sends on an edge, while a user looks at them.

Without a user who looks, sending costs nothing more. A sample replaces the partition
among the outputs by a `SampledPartition`, and the partition comes back with the last sample. All of this runs
in the task thread, except `OutputSample.records`.

A record becomes text at once, because the user's function may change the object later. A text is bounded, and
so is the time to make it from containers and dataclasses. A record that can't be shown never fails the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


class _BoundedRepr(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = 30
        self.maxstring = self.maxother = self.maxlong = 500

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """In the record's own order; `Repr` would sort the keys."""
        if level <= 0:
            return "{...}"
        pairs = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in islice(x.items(), self.maxdict)
        ]
        return f"{{{', '.join([*pairs, '...'] if len(x) > self.maxdict else pairs)}}}"

    def repr_instance(self, x: Any, level: int) -> str:
        if not is_dataclass(x) or isinstance(x, type):
            return super().repr_instance(x, level)
        if level <= 0:
            return f"{type(x).__name__}(...)"
        names = [each.name for each in fields(x) if each.repr]
        values = (f"{name}={self.repr1(getattr(x, name), level - 1)}" for name in names)
        return f"{type(x).__name__}({', '.join(values)})"


_REPR: Final = _BoundedRepr()


def shown(record: object) -> str:
    """A record as text of bounded length; never raises.

    Example:
        >>> shown({"word": "to", "count": 2}), len(shown("x" * 10_000))
        ("{'word': 'to', 'count': 2}", 500)
    """
    try:
        text = _REPR.repr(record)
    except Exception as error:  # of the user's own class
        text = f"<{type(record).__name__}, which can't be shown: {type(error).__name__}>"
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def _records_of(batch: Batch) -> list[SampledRecord]:
    try:
        rows = rows_of(batch)
    except Exception as error:  # Arrow has values that Python has not, such as nanoseconds
        text = f"<a batch of {len(batch)} rows, which can't be shown: {type(error).__name__}: {error}>"
        return [SampledRecord(text[:MOST_CHARACTERS])]
    stamps: Sequence[int | None] = rows.timestamps or [None] * len(rows)
    return [SampledRecord(shown(row), at) for row, at in zip(rows.rows, stamps, strict=True)]


class OutputSample:
    """Collects the next records of one edge, at most `most`; calls `on_full` once."""

    def __init__(self, most: int, on_full: Callable[[], None]) -> None:
        self._most = min(most, MOST_RECORDS)
        self._on_full = on_full
        self._records: list[SampledRecord] = []

    @property
    def records(self) -> tuple[SampledRecord, ...]:
        """The records so far; callable from any thread."""
        return tuple(self._records)

    @property
    def is_full(self) -> bool:
        return len(self._records) >= self._most

    def take(self, batch: Batch) -> None:
        wanted = self._most - len(self._records)
        if wanted <= 0 or not len(batch):
            return
        parts: Iterator[Batch] = batch.slices(wanted)
        self._records += _records_of(next(parts))
        if self.is_full:
            self._on_full()


class Emits(Protocol):
    """A partition, or a sampled one."""

    def emit(self, batch: Batch) -> None: ...


class SampledPartition:
    """A partition whose records samples see first; `on_last` is called when the last sample has ended."""

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
            sample.take(batch)
            if sample.is_full:
                self.end(sample)
        self.partition.emit(batch)
