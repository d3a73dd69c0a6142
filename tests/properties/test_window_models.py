"""Windows of every kind against a model that looks at all records: assigners, merging, triggers, lateness.

A case is a list of records and watermarks in any order, with restarts and rescales in between. What comes out
after each step must be what the model says, in any order of keys. In the end nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from deep import DEEP
from hypothesis import example, given, settings
from hypothesis import strategies as st
from window_models import Model, Record, Row, aligned, cumulative, sessions_of

from penstock import AggregateFunction
from penstock.runtime.config.job_config import ON_HEAP, RocksDB, StateBackend
from penstock.runtime.operators import held_watermark
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.testing.harness import OperatorHarness
from penstock.windows import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    TumblingEventTimeWindows,
)

KEYS = ["ann", "bob", "eve"]


def micros(number: int) -> timedelta:
    return timedelta(microseconds=number)


def told(key: str, window: TimeWindow, records: list[Record]) -> list[Row]:
    return [(key, tuple(window), tuple(record.value for record in records))]


class Values(AggregateFunction[Record, tuple[int, ...], tuple[int, ...]]):
    def create_accumulator(self) -> tuple[int, ...]:
        return ()

    def add(self, value: Record, accumulator: tuple[int, ...]) -> tuple[int, ...]:
        return (*accumulator, value.value)

    def get_result(self, accumulator: tuple[int, ...]) -> tuple[int, ...]:
        return accumulator

    def merge(self, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
        return first + second


def named(key: str, window: TimeWindow, values: tuple[int, ...]) -> list[Row]:
    return [(key, tuple(window), values)]


def gap_of(record: Record) -> timedelta:
    return micros(1 + record.value % 7)


@dataclass(frozen=True)
class Case:
    """Some windows.

    Attributes:
        kind: Name of the assigner.
        size: Of a window; the gap of a session.
        steps: By so much a window slides or grows.
    """

    kind: str
    size: int
    steps: int
    offset: int
    lateness: int
    early: int | None
    late: int | None
    purges: bool
    aggregates: bool
    every: int | None = None
    evictor: str | None = None
    on_disk: bool = False

    @property
    def backend(self) -> StateBackend:
        return RocksDB() if self.on_disk else ON_HEAP

    @property
    def assigner(self) -> Any:
        step = micros(self.steps)
        match self.kind:
            case "tumbling":
                return TumblingEventTimeWindows(micros(self.size), micros(self.offset))
            case "sliding":
                return SlidingEventTimeWindows(micros(self.size * self.steps), step, micros(self.offset))
            case "cumulative":
                return CumulativeEventTimeWindows(micros(self.size * self.steps), step, micros(self.offset))
            case "session":
                return EventTimeSessionWindows(micros(self.size))
        return EventTimeSessionWindows(gap_of)

    @property
    def model(self) -> Model:
        match self.kind:
            case "tumbling":
                spans: Any = aligned(self.size, self.size, self.offset)
            case "sliding":
                spans = aligned(self.size * self.steps, self.steps, self.offset)
            case "cumulative":
                spans = cumulative(self.size * self.steps, self.steps, self.offset)
            case "session":
                spans = lambda record: [(record.stamp, record.stamp + self.size)]  # noqa: E731
            case _:
                spans = lambda record: [(record.stamp, record.stamp + 1 + record.value % 7)]  # noqa: E731
        merges, left = "session" in self.kind, None if self.evictor is None else EVICTORS[self.evictor][1]
        return Model(spans, merges, self.lateness, self.early, self.late, self.purges, self.every, left)

    def build(self, records: Any) -> Any:
        windows = records.key_by(lambda record: record.key).window(self.assigner)
        windows = windows.allowed_lateness(micros(self.lateness))
        if self.early or self.late or self.every or self.purges:
            early, late = (count and CountTrigger(count) for count in (self.early, self.late))
            trigger: Any = EventTimeTrigger(early, late)
            if self.every:
                trigger = ContinuousEventTimeTrigger(micros(self.every))
            windows = windows.trigger(PurgingTrigger(trigger) if self.purges else trigger)
        if self.evictor is not None:
            windows = windows.evictor(EVICTORS[self.evictor][0])
        return windows.aggregate("w", Values(), named) if self.aggregates else windows.apply("w", told)


class Even(Evictor[Record]):
    """Takes out what is odd."""

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        return [element for element in elements if element.value.value % 2 == 0]


def not_older(values: list[int], stamps: dict[int, int]) -> list[int]:
    return [value for value in values if stamps[value] > max(stamps[each] for each in values) - 4]


#: By its name an evictor, and what it leaves.
EVICTORS: dict[str, tuple[Evictor[Any], Any]] = {
    "two": (CountEvictor(2), lambda values, stamps: values[-2:]),
    "new": (TimeEvictor(micros(4)), not_older),
    "even": (Even(), lambda values, stamps: [value for value in values if value % 2 == 0]),
}

kinds = st.sampled_from(["tumbling", "sliding", "cumulative", "session", "dynamic session"])


def sensible(case: Case) -> Case:
    """An offset within a window; a trigger that is continuous has no parts; an evictor needs the records."""
    case = replace(case, offset=min(case.offset, case.size * case.steps))
    if case.every is not None:
        case = replace(case, early=None, late=None)
    return replace(case, aggregates=False) if case.evictor is not None else case


cases = st.builds(
    Case,
    kind=kinds,
    size=st.integers(1, 6),
    steps=st.integers(1, 3),
    offset=st.integers(0, 2),
    lateness=st.sampled_from([0, 0, 3, 10]),
    early=st.none() | st.integers(1, 3),
    late=st.none() | st.integers(1, 3),
    purges=st.booleans(),
    aggregates=st.booleans(),
    evictor=st.none() | st.sampled_from(sorted(EVICTORS)),
    every=st.none() | st.integers(1, 7),
).map(sensible)
steps = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(-5, 40))
    | st.integers(-5, 45)
    | st.sampled_from(["restore", "rescale"]),
    max_size=40,
)


class Run:
    """Harnesses of one operator, and the model of all of them."""

    def __init__(self, case: Case) -> None:
        self.case, self.model, self.value = case, case.model, 0
        self.harnesses = [OperatorHarness.of(case.build, state_backend=case.backend)]
        self.late: list[Any] = []

    def step(self, step: Any) -> None:
        if isinstance(step, str):
            self.restart({"restore": len(self.harnesses), "rescale": 3 - len(self.harnesses)}[step])
        elif isinstance(step, int):
            expected = self.model.watermark(step)
            self.check([row for harness in self.harnesses for row in self.passed(harness, step)], expected)
        else:
            self.value += 1
            record = Record(step[0], self.value, step[1])
            (harness,) = (each for each in self.harnesses if each.owns(record.key))
            self.check(harness.push([record], [record.stamp]), self.model.record(record))

    def passed(self, harness: OperatorHarness, moment: int) -> list[Row]:
        rows = harness.push_watermark(moment)
        while harness._operator.holds_watermark:
            rows += harness.flush()
        return rows

    def restart(self, parallelism: int) -> None:
        number = 1 + max(harness._last_id for harness in self.harnesses)
        saved = [harness.snapshot(number) for harness in self.harnesses]
        self.late += self.side()
        self.close()
        self.harnesses = [
            OperatorHarness.of(
                self.case.build,
                subtask=i,
                parallelism=parallelism,
                restored=saved,
                state_backend=self.case.backend,
            )
            for i in range(parallelism)
        ]

    def side(self) -> list[Any]:
        return [record.value for harness in self.harnesses for record in harness.side_output("late_records")]

    def close(self) -> None:
        for harness in self.harnesses:
            harness.close()

    def check(self, rows: Sequence[Any], expected: Sequence[Row]) -> None:
        assert sorted(map(tuple, rows)) == sorted(expected)

    def check_sessions(self) -> None:
        """The state holds each session until it has ended, and no other."""
        if self.model.merges:
            held = {
                (key, tuple(span))
                for harness in self.harnesses
                for key, spans in harness.state("triggered_windows").items()
                for span in spans
            }
            assert held == {(key, each.span) for key, open_ in self.model.windows.items() for each in open_}

    def end(self) -> None:
        assert sorted(self.late + self.side()) == sorted(self.model.late_values)
        expected = self.model.watermark(END_OF_TIME)
        self.check(
            [row for harness in self.harnesses for row in harness.push_watermark(END_OF_TIME)], expected
        )
        for harness in self.harnesses:
            assert harness.state("triggered_windows") == harness.state("windows") == {}


def live(case: Case, steps: Sequence[Any]) -> None:
    run = Run(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_watermark, "MOST_FIRED", 2)  # so that few windows are a storm
        for step in steps:
            run.step(step)
            run.check_sessions()
        run.end()
        run.close()


#: A late record joins a session that was purged.
PURGED = Case("session", 10, 1, 0, 10, None, None, purges=True, aggregates=False)


@settings(max_examples=50 * DEEP, deadline=None)
@example(PURGED, [("ann", 10), 20, ("ann", 5)])
@given(cases, steps)
def test_windows_emit_what_the_model_says_step_by_step(case: Case, steps: list[Any]) -> None:
    live(case, steps)


@settings(max_examples=20 * DEEP, deadline=None)
@given(
    stamps=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 60)), max_size=30),
    gap=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_sessions_of_records_on_time_are_the_same_in_any_order(
    stamps: list[tuple[str, int]], gap: int, seed: int
) -> None:
    records = [Record(key, number, stamp) for number, (key, stamp) in enumerate(stamps)]
    Random(seed).shuffle(records)
    case = Case("session", gap, 1, 0, 0, None, None, purges=False, aggregates=seed % 2 == 0)
    with OperatorHarness.of(case.build) as harness:
        rows = []
        while records:
            harness.push([records[0]], [records[0].stamp])
            records = records[1:]
            # A watermark that no record to come is late for.
            if seed % 3 == 0 and records:
                rows += harness.push_watermark(min(record.stamp for record in records) - 1)
        rows += harness.push_watermark(END_OF_TIME)
    found = {key: sorted(span for owner, span, _ in rows if owner == key) for key in KEYS}
    assert found == {key: sessions_of([s for owner, s in stamps if owner == key], gap) for key in KEYS}
    assert sorted(value for *_, values in rows for value in values) == list(range(len(stamps)))


@settings(max_examples=20 * DEEP, deadline=None)
@given(
    keys=st.lists(st.sampled_from(KEYS), max_size=40),
    size=st.integers(1, 6),
    slide=st.integers(1, 6),
    cut=st.integers(0, 40),
    how=st.sampled_from(["apply", "reduce", "aggregate"]),
)
def test_count_windows_hold_the_last_records_of_a_key(
    keys: list[str], size: int, slide: int, cut: int, how: str
) -> None:
    slide = min(slide, size)
    expected = []
    for end in range(1, len(keys) + 1):
        own = [number for number in range(end) if keys[number] == keys[end - 1]]
        if len(own) % slide == 0:
            expected.append((keys[end - 1], tuple(own[-size:])))

    def build(records: Any) -> Any:
        windows = records.key_by(lambda record: record[0]).count_window(size, slide)
        if how == "apply":
            return windows.apply("w", lambda key, window, rows: [(key, sum((row[1] for row in rows), ()))])
        if how == "reduce":
            return windows.reduce("w", lambda a, b: (a[0], a[1] + b[1]))
        return windows.aggregate("w", Joined())

    rows = [(key, (number,)) for number, key in enumerate(keys)]
    with OperatorHarness.of(build) as first:
        found = first.push(rows[:cut])
        saved = first.snapshot()
    with OperatorHarness.of(build, restored=[saved]) as second:
        found += second.push(rows[cut:])
        found += second.push_watermark(END_OF_TIME)
    assert list(map(tuple, found)) == expected


class Joined(AggregateFunction[Any, list[Any], Any]):
    """Changes its accumulator in place, and gives it away."""

    def create_accumulator(self) -> list[Any]:
        return ["", ()]

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator[:] = [value[0], accumulator[1] + value[1]]
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


@settings(max_examples=4 * DEEP, deadline=None)
@given(cases, steps)
def test_windows_on_disk_emit_the_same(case: Case, steps: list[Any]) -> None:
    live(replace(case, on_disk=True), steps)


@pytest.mark.long
@settings(max_examples=20_000, deadline=None)
@given(cases, steps)
def test_windows_emit_what_the_model_says_in_many_more_cases(case: Case, steps: list[Any]) -> None:
    live(case, steps)
