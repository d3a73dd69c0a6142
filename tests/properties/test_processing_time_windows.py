"""Windows by the time of day against the model of windows, with a clock that moves, restarts and rescales.

Windows of the model begin and end at whole seconds, and the clock moves by whole seconds. The model counts
microseconds since the clock began, because a window is over in its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from deep import DEEP
from hypothesis import example, given, settings
from hypothesis import strategies as st
from window_models import Model, Record, Row, Span, aligned, cumulative

from penstock.runtime.config.job_config import ON_HEAP, RocksDB
from penstock.runtime.operators import held_watermark
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.manual_time import ManualClock
from penstock.windows import (
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    CumulativeProcessingTimeWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingProcessingTimeWindows,
)

KEYS = ["ann", "bob", "eve"]
SECOND = 1_000_000
START = 1_000_000


def in_seconds(spans: Callable[[Record], Iterable[Span]]) -> Callable[[Record], list[Span]]:
    """Windows that are computed in seconds."""

    def found(record: Record) -> list[Span]:
        rounded = Record(record.key, record.value, record.stamp // SECOND)
        return [(start * SECOND, end * SECOND) for start, end in spans(rounded)]

    return found


def told(key: str, window: TimeWindow, values: list[tuple[str, int]]) -> list[Row]:
    span = (window.start_timestamp - START * SECOND, window.end_timestamp - START * SECOND)
    return [(key, span, tuple(value for _, value in values))]


@dataclass(frozen=True)
class Case:
    """Some windows; spans are in seconds.

    Attributes:
        kind: Name of the assigner.
        size: Of a window; the gap of a session.
        steps: By so much a window slides or grows.
        purges: Whether a window forgets what it has emitted.
        early: A result after every so many records, and none at the end.
        on_disk: Whether the state is in RocksDB.
    """

    kind: str
    size: int
    steps: int
    purges: bool
    early: int | None
    on_disk: bool

    @property
    def assigner(self) -> Any:
        # The model counts windows from 0, which is the beginning of the clock.
        offset = START % (self.size * self.steps if self.kind == "cumulative" else self.size)
        match self.kind:
            case "tumbling":
                return TumblingProcessingTimeWindows(self.size, offset)
            case "sliding":
                return SlidingProcessingTimeWindows(self.size * self.steps, self.size, offset)
            case "cumulative":
                return CumulativeProcessingTimeWindows(self.size * self.steps, self.size, offset)
        return ProcessingTimeSessionWindows(self.size)

    @property
    def model(self) -> Model:
        match self.kind:
            case "tumbling":
                spans: Any = aligned(self.size, self.size, 0)
            case "sliding":
                spans = aligned(self.size * self.steps, self.size, 0)
            case "cumulative":
                spans = cumulative(self.size * self.steps, self.size, 0)
            case _:
                spans = lambda record: [(record.stamp, record.stamp + self.size)]  # noqa: E731
        return Model(
            in_seconds(spans),
            merges=self.kind == "session",
            early=self.early,
            purges=self.purges,
            ends_silently=self.early is not None,
        )

    def build(self, rows: Any) -> Any:
        windows = rows.key_by(lambda row: row[0]).window(self.assigner)
        trigger: Any = ProcessingTimeTrigger() if self.early is None else CountTrigger(self.early)
        windows = windows.trigger(PurgingTrigger(trigger) if self.purges else trigger)
        return windows.apply("w", told)


class OftenModel(Model):
    """A window that never ends, and emits at whole intervals while a record has come since it last did."""

    def __init__(self, interval: int, purges: bool) -> None:
        super().__init__(lambda record: (), purges=purges)
        self.interval = interval
        self.held: dict[str, list[int]] = {}
        self.awaited: dict[str, int] = {}

    def record(self, record: Record) -> list[Row]:
        self.held.setdefault(record.key, []).append(record.value)
        second = START + record.stamp // SECOND
        self.awaited.setdefault(record.key, second - second % self.interval + self.interval)
        return []

    def watermark(self, moment: int) -> list[Row]:
        due = [key for key, at in self.awaited.items() if (at - START) * SECOND <= moment]
        rows = [(key, (0, 0), tuple(self.held[key])) for key in due]
        for key in due:
            del self.awaited[key]
            if self.purges:
                del self.held[key]
        return rows


def build_often(interval: int, purges: bool) -> Any:
    def build(rows: Any) -> Any:
        often = ContinuousProcessingTimeTrigger(interval)
        windows = rows.key_by(lambda row: row[0]).window(GlobalWindows())
        windows = windows.trigger(PurgingTrigger(often) if purges else often)
        return windows.apply("w", lambda key, window, values: [(key, (0, 0), tuple(v for _, v in values))])

    return build


cases = st.builds(
    Case,
    kind=st.sampled_from(["tumbling", "sliding", "cumulative", "session"]),
    size=st.integers(1, 6),
    steps=st.integers(1, 3),
    purges=st.booleans(),
    early=st.none() | st.integers(1, 2),
    on_disk=st.sampled_from([False] * 9 + [True]),
)
#: A record, how many seconds pass, or what happens to the job.
steps = st.lists(
    st.sampled_from(KEYS) | st.integers(0, 9) | st.sampled_from(["restore", "rescale"]), max_size=40
)


class Run:
    """Harnesses of one operator with one clock, and the model of all of them."""

    def __init__(self, build: Any, on_disk: bool, model: Model) -> None:
        self.build, self.model = build, model
        self.backend = RocksDB() if on_disk else ON_HEAP
        self.clock, self.seconds, self.value = ManualClock(float(START)), 0, 0
        self.harnesses = [self.opened(0, 1, ())]

    def opened(self, subtask: int, parallelism: int, saved: Sequence[Any]) -> OperatorHarness:
        return OperatorHarness.of(
            self.build,
            subtask=subtask,
            parallelism=parallelism,
            restored=saved,
            clock=self.clock,
            state_backend=self.backend,
        )

    def step(self, step: Any) -> None:
        if step == "restore":
            self.restart(len(self.harnesses))
        elif step == "rescale":
            self.restart(3 - len(self.harnesses))
        elif isinstance(step, int):
            self.seconds += step
            self.clock.advance(step)
            self.check(self.flushed(), self.model.watermark(self.seconds * SECOND))
        else:
            self.value += 1
            (harness,) = (each for each in self.harnesses if each.owns(step))
            record = Record(step, self.value, self.seconds * SECOND)
            self.check(harness.push([(step, self.value)]), self.model.record(record))

    def flushed(self) -> list[Row]:
        """As the task does: what is due, some at a time."""
        rows: list[Row] = []
        for harness in self.harnesses:
            while (at := harness._operator.flush_at) is not None and at <= self.clock.monotonic():
                rows += harness.flush()
        return rows

    def restart(self, parallelism: int) -> None:
        number = 1 + max(harness._last_id for harness in self.harnesses)
        saved = [harness.snapshot(number) for harness in self.harnesses]
        self.close()
        self.harnesses = [self.opened(subtask, parallelism, saved) for subtask in range(parallelism)]

    def end(self) -> None:
        rows = [row for harness in self.harnesses for row in harness.push_watermark(END_OF_TIME)]
        self.check(rows, self.model.watermark(END_OF_TIME))

    def check(self, rows: Sequence[Any], expected: Sequence[Row]) -> None:
        assert sorted(map(tuple, rows)) == sorted(expected)

    def close(self) -> None:
        for harness in self.harnesses:
            harness.close()


def live(run: Run, steps: Sequence[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_watermark, "MOST_FIRED", 2)  # so that few windows are a storm
        for step in steps:
            run.step(step)
        run.end()


#: A record joins a session that was purged on its way.
PURGED = Case("session", 6, 1, purges=True, early=1, on_disk=False)


@settings(max_examples=50 * DEEP, deadline=None)
@example(PURGED, ["ann", 3, "ann"])
@given(cases, steps)
def test_windows_by_the_time_of_day_emit_what_the_model_says(case: Case, steps: list[Any]) -> None:
    run = Run(case.build, case.on_disk, case.model)
    live(run, steps)
    assert [harness.state("triggered_windows") for harness in run.harnesses] == [{}] * len(run.harnesses)
    run.close()


@settings(max_examples=25 * DEEP, deadline=None)
@given(st.integers(1, 7), st.booleans(), st.sampled_from([False] * 9 + [True]), steps)
def test_results_every_so_often_have_what_came_since_then(
    interval: int, purges: bool, on_disk: bool, steps: list[Any]
) -> None:
    run = Run(build_often(interval, purges), on_disk, OftenModel(interval, purges))
    live(run, steps)
    if purges:
        assert all(harness.state("triggered_windows") == {} for harness in run.harnesses)
    run.close()
