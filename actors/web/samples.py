"""Curves of a job: some figures of each second for five minutes, and of each tenth one for an hour."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.actors.shared.job_report import JobReport
from penstock.runtime.record.elements import END_OF_TIME

#: Seconds between two samples of the fine and the coarse ring, and how many each keeps.
_FINE: Final = 1.0
_COARSE: Final = 10.0
_FINE_KEPT: Final = 300
_COARSE_KEPT: Final = 360
#: A sample that comes this much early still counts: polls are not exact to the millisecond.
_EARLY: Final = 0.2


@dataclass(frozen=True, slots=True)
class Sample:
    """A job at one moment; `None` where nothing is known.

    Attributes:
        at: Wall-clock seconds.
        records_in: Records per second that its sources read.
        records_out: Records per second that its sinks take.
        lag: Seconds that its lowest watermark is behind the time.
        state_bytes: State in the newest checkpoint at this parallelism.
        checkpoint_bytes: All state in the newest completed checkpoint.
        checkpoint_seconds: How long that one took.
    """

    at: float
    records_in: float | None = None
    records_out: float | None = None
    lag: float | None = None
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    checkpoint_seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON carries."""
        return asdict(self)


def sample_of(report: JobReport, at: float) -> Sample:
    """The figures of a report that came at this moment."""
    sources = {operator.id for operator in report.operators if operator.is_source}
    sinks = {operator.id for operator in report.operators if operator.is_sink}
    rates = [subtask.rates.operators for subtask in report.subtasks if subtask.rates is not None]
    read = [operators[id].records_out for operators in rates for id in sources & operators.keys()]
    written = [operators[id].records_in for operators in rates for id in sinks & operators.keys()]
    reached = [
        vertex.watermark
        for vertex in report.vertices
        if vertex.watermark is not None and vertex.watermark != END_OF_TIME
    ]
    sizes = [vertex.state_bytes for vertex in report.vertices if vertex.state_bytes is not None]
    checkpoints = report.checkpoints
    return Sample(
        at,
        sum(read) if read else None,
        sum(written) if written else None,
        max(0.0, at - min(reached) / 1_000_000) if reached else None,
        sum(sizes) if sizes else None,
        None if checkpoints is None else checkpoints.latest_size,
        None if checkpoints is None else checkpoints.latest_duration,
    )


class Samples:
    """The curves of one job; their size does not grow.

    Example:
        >>> curves = Samples()
        >>> for second in range(700):
        ...     _ = curves.add(Sample(at=float(second)))
        >>> known = [sample.at for sample in curves.all()]
        >>> known[:3], known[-2:], len(known)
        ([0.0, 10.0, 20.0], [698.0, 699.0], 340)
    """

    def __init__(self) -> None:
        self._fine: deque[Sample] = deque(maxlen=_FINE_KEPT)
        self._coarse: deque[Sample] = deque(maxlen=_COARSE_KEPT)

    def add(self, sample: Sample) -> bool:
        """Keep a sample, unless the last one is hardly older; whether it was kept."""
        if self._fine and sample.at - self._fine[-1].at < _FINE - _EARLY:
            return False
        self._fine.append(sample)
        if not self._coarse or sample.at - self._coarse[-1].at >= _COARSE - _EARLY:
            self._coarse.append(sample)
        return True

    def all(self) -> list[Sample]:
        """All samples, oldest first: coarse ones, and from five minutes ago on fine ones."""
        if not self._fine:
            return []
        since = self._fine[0].at
        return [*(sample for sample in self._coarse if sample.at < since), *self._fine]
