"""Counters of a subtask, and the rates between two of its reports.

Metrics, the progress line of `run` and tests read the same counters. A rate comes from two reports of the
same attempt: the difference divided by the time between them. The subtask's own clock measures that time, so
delays of reports and clocks of other nodes don't change it.

`RateWindow` keeps the reports of the last seconds. A JobMaster requests reports at least every two seconds,
and when a client reads the job's status. Reports that arrive faster than once a second replace each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.runtime.barrier.handler import BarrierHandlerStatistics
from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import SubtaskCheckpointStatistics
from penstock.runtime.network.buffer_storage import BufferStorageStatistics
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.metrics import OperatorStatistics


@dataclass(frozen=True, slots=True)
class OutputFill:
    """Fill of the channels of one edge, at one sender.

    Attributes:
        target: Id of the vertex that receives.
        operator: Operator whose output is sent.
        side_output: Name of the side output that is sent; `None` for the main output.
        input_index: Input of the target.
        copy: Index of this edge among edges of the same output and input.
        credits: Number of credits of each channel.
        first_receiver: Index of the subtask to which the first channel leads; the other channels follow in
            order.
        outstanding: Credits in use, for elements that the receiver has not consumed, by channel.
        queued: Elements that wait for a credit, by channel.

    Example:
        >>> OutputFill("count", "words", None, 0, 0, 8, 0, (8, 4), (3, 0)).fill
        0.75
    """

    target: str
    operator: str
    side_output: str | None
    input_index: int
    copy: int
    credits: int
    first_receiver: int
    outstanding: tuple[int, ...]
    queued: tuple[int, ...]

    @property
    def fill(self) -> float:
        """Share of the credits of all channels that is in use, from 0 to 1."""
        return sum(self.outstanding) / (self.credits * len(self.outstanding)) if self.outstanding else 0.0


@dataclass(frozen=True, slots=True)
class SubtaskStatistics:
    """Counters of one subtask since its attempt began.

    Attributes:
        records_in: Records taken from the source or from channels.
        records_out: Records sent to channels.
        bytes_out: Encoded bytes sent.
        buffers_out: Buffers that were closed, including those that wait for a credit.
        busy_seconds: Time spent working.
        backpressured_seconds: Time in which an output had no credit.
        slice_overruns: Slices of work that took more than ten times as long as intended.
        pickled_values: Values that had to be pickled.
        operators: Counters by operator id.
        checkpoints: Counters of the subtask's checkpoints.
        reordered_elements: Elements that arrived before an earlier one of their channel.
        barriers: Counters of the barrier handler; `None` for a source.
        stored: Counters of stored alignments; `None` when alignments do not store blocked channels.
        current_watermark: The last watermark that has passed all operators, in microseconds since the epoch;
            `None` before the first watermark.
        is_idle: Whether the subtask is idle, so that its receivers do not wait for its watermarks.
        is_paused: Whether the source waits for other sources of its alignment group.
        bytes_in: Encoded bytes of the records that arrived on input channels; 0 for a source.
        at: Time of the count, in monotonic seconds of the process.
        outputs: Fill of the output channels, by edge.
    """

    records_in: int
    records_out: int
    bytes_out: int
    buffers_out: int
    busy_seconds: float
    backpressured_seconds: float
    slice_overruns: int
    pickled_values: int
    operators: Mapping[str, OperatorStatistics] = field(default_factory=dict)
    checkpoints: SubtaskCheckpointStatistics | None = None
    reordered_elements: int = 0
    barriers: BarrierHandlerStatistics | None = None
    stored: BufferStorageStatistics | None = None
    current_watermark: int | None = None
    is_idle: bool = False
    is_paused: bool = False
    bytes_in: int = 0
    at: float = 0.0
    outputs: tuple[OutputFill, ...] = ()


#: Minimum length of a full `RateWindow` in seconds; a window is shorter at the beginning of an attempt.
WINDOW: Final = 10.0
#: A report replaces the newest one if the report before that is less than this many seconds older.
_SPACING: Final = 1.0


@dataclass(frozen=True, slots=True)
class OperatorRates:
    """Records per second of one operator, and the trend of a source's lag.

    Attributes:
        records_in: Records received.
        records_out: Records emitted.
        lag_records: Growth of the lag in records per second, negative while the source catches up; `None` if
            the lag is not known.
        lag_bytes: Growth of the lag in bytes per second; `None` if it is not known.
        lag_by_split: Growth of the lag of each split: records per second, or bytes per second if the number
            of records is not known.
    """

    records_in: float
    records_out: float
    lag_records: float | None = None
    lag_bytes: float | None = None
    lag_by_split: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubtaskRates:
    """Rates of a subtask; the three shares of time add up to 1.

    Attributes:
        seconds: The interval that was measured.
        busy: Share of the time at work.
        backpressured: Share of the time in which an output had no credit.
        idle: Share of the time without work.
        records_in: Records per second from the source or from channels.
        records_out: Records per second to channels.
        bytes_in: Encoded bytes per second from channels; 0 for a source.
        bytes_out: Encoded bytes per second to channels.
        operators: Records per second of each operator, by its id.
    """

    seconds: float
    busy: float
    backpressured: float
    idle: float
    records_in: float
    records_out: float
    bytes_in: float
    bytes_out: float
    operators: Mapping[str, OperatorRates] = field(default_factory=dict)


def rates_between(earlier: SubtaskStatistics, later: SubtaskStatistics) -> SubtaskRates | None:
    """The rates between two reports; `None` without time between them, or for different attempts."""
    seconds = later.at - earlier.at
    counted = [
        later.records_in - earlier.records_in,
        later.records_out - earlier.records_out,
        later.bytes_in - earlier.bytes_in,
        later.bytes_out - earlier.bytes_out,
    ]
    if seconds <= 0 or min(counted) < 0:
        return None
    busy = _share(later.busy_seconds - earlier.busy_seconds, seconds)
    backpressured = min(
        1.0 - busy, _share(later.backpressured_seconds - earlier.backpressured_seconds, seconds)
    )
    none_yet = OperatorStatistics()
    operators = {
        operator: OperatorRates(
            max(0, counters.records_in - before.records_in) / seconds,
            max(0, counters.records_out - before.records_out) / seconds,
            **_lag_rates(before.lag, counters.lag, seconds),
        )
        for operator, counters in later.operators.items()
        for before in (earlier.operators.get(operator, none_yet),)
    }
    records_in, records_out, bytes_in, bytes_out = (count / seconds for count in counted)
    idle = max(0.0, 1.0 - busy - backpressured)
    return SubtaskRates(
        seconds, busy, backpressured, idle, records_in, records_out, bytes_in, bytes_out, operators
    )


def _lag_rates(earlier: SourceLag | None, later: SourceLag | None, seconds: float) -> dict[str, Any]:
    if earlier is None or later is None:
        return {}
    before = {split.split: split for split in earlier.by_split}
    by_split = {
        split.split: growth
        for split in later.by_split
        if (was := before.get(split.split)) is not None
        and (growth := _growth((was.records, was.bytes), (split.records, split.bytes), seconds)) is not None
    }
    return {
        "lag_records": _growth((earlier.records,), (later.records,), seconds),
        "lag_bytes": _growth((earlier.bytes,), (later.bytes,), seconds),
        "lag_by_split": by_split,
    }


def _growth(earlier: Iterable[int | None], later: Iterable[int | None], seconds: float) -> float | None:
    """The growth per second of the first number that is known at both times."""
    for before, now in zip(earlier, later, strict=True):
        if before is not None and now is not None:
            return (now - before) / seconds
    return None


def _share(spent: float, seconds: float) -> float:
    return min(1.0, max(0.0, spent / seconds))


class RateWindow:
    __slots__ = ("_reports",)

    def __init__(self) -> None:
        self._reports: deque[SubtaskStatistics] = deque()

    @property
    def rates(self) -> SubtaskRates | None:
        """The rates over about `WINDOW` seconds, or since the first report; `None` before the second."""
        return rates_between(self._reports[0], self._reports[-1]) if self._reports else None

    @property
    def reports(self) -> int:
        return len(self._reports)

    def add(self, report: SubtaskStatistics) -> None:
        """Add a report. A report of another attempt clears the window; a repeated one changes nothing."""
        reports = self._reports
        if reports and report.at == reports[-1].at:
            return
        if reports and rates_between(reports[-1], report) is None:
            reports.clear()
        if len(reports) > 1 and report.at - reports[-2].at < _SPACING:
            reports.pop()
        reports.append(report)
        while len(reports) > 2 and reports[1].at <= report.at - WINDOW:
            reports.popleft()
