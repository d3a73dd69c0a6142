"""Watermarks that a user's own code makes, and streams that become idle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import WatermarkStrategy
from penstock.operators import WatermarkGenerator, WatermarkOutput
from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.record.elements import ArrowBatch, RowBatch, StreamStatus
from penstock.runtime.testing.harness import OperatorHarness

Row = dict[str, Any]
MONOTONOUS: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()


def harness_of(strategy: WatermarkStrategy[Any]) -> OperatorHarness:
    return OperatorHarness(TimestampsAndWatermarksOperator(strategy.with_timestamp_column("at")))


def at(*moments: int, **more: Any) -> list[Row]:
    return [{"at": moment, **more} for moment in moments]


def columns(rows: list[Row]) -> ArrowBatch:
    return ArrowBatch(pa.RecordBatch.from_pylist(rows))


def marked(row: Row, timestamp: int) -> int | None:
    return timestamp - 1 if row.get("mark") else None


class Newest(WatermarkGenerator[Row]):
    """Emits the newest timestamp, but only when time has passed."""

    def __init__(self) -> None:
        self.newest: int | None = None

    def on_event(self, value: Row, timestamp: int, output: WatermarkOutput) -> None:
        self.newest = max(timestamp, timestamp if self.newest is None else self.newest)

    def on_periodic(self, output: WatermarkOutput) -> None:
        if self.newest is not None:
            output.emit_watermark(self.newest)


# -- punctuated ---------------------------------------------------------------------------------------------


def test_a_record_may_bring_a_watermark_that_leaves_behind_its_batch() -> None:
    with harness_of(WatermarkStrategy.for_punctuated(marked)) as harness:
        harness.push(at(5, 9))
        assert harness.watermarks == ()
        harness.push([*at(7, mark=True), *at(20)])
        assert harness.watermarks == (6,)
        harness.push(at(3, mark=True))
        assert harness.watermarks == (6,), "time never goes back"


def test_a_punctuated_watermark_may_be_a_datetime() -> None:
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    with harness_of(WatermarkStrategy.for_punctuated(lambda row, _: second)) as harness:
        harness.push(at(5))
        assert harness.watermarks == (1_000_000,)


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(-50, 50), st.booleans()), max_size=5)),
    columnar=st.booleans(),
)
def test_rows_and_columns_have_the_watermarks_of_all_marks_so_far(
    batches: list[list[tuple[int, bool]]], columnar: bool
) -> None:
    highest, expected = None, []
    with harness_of(WatermarkStrategy.for_punctuated(marked)) as harness:
        for batch in batches:
            rows = [{"at": moment, "mark": mark} for moment, mark in batch]
            if columnar and rows:
                harness.push_batch(columns(rows))
                assert isinstance(harness.batches[-1], ArrowBatch), "an Arrow batch stays one"
            else:
                harness.push(rows)
            marks = [row["at"] - 1 for row in rows if row["mark"]]
            if marks and (highest is None or max(marks) > highest):
                highest = max(marks)
                expected.append(highest)
        assert harness.watermarks == tuple(expected)


# -- a class of the user's own ------------------------------------------------------------------------------


@pytest.mark.parametrize("push", [OperatorHarness.push, lambda h, rows: h.push_batch(columns(rows))])
def test_a_generator_is_called_again_when_its_interval_is_over(push: Callable[..., Any]) -> None:
    with harness_of(WatermarkStrategy.for_generator(Newest, interval=2)) as harness:
        push(harness, at(5, 9, 7))
        harness.advance(1.5)
        assert harness.watermarks == ()
        harness.advance(0.5)
        assert harness.watermarks == (9,)
        push(harness, at(11))
        harness.advance(1)
        push(harness, at(12))
        harness.advance(1)
        assert harness.watermarks == (9, 12)


def test_a_generator_without_on_periodic_asks_for_no_time() -> None:
    with harness_of(WatermarkStrategy.for_punctuated(marked)) as harness:
        assert harness._chain.tick_at is None


def test_each_subtask_has_a_generator_of_its_own() -> None:
    strategy = WatermarkStrategy.for_generator(Newest, interval=1)
    with harness_of(strategy) as one, harness_of(strategy) as other:
        one.push(at(10))
        other.push(at(3))
        one.advance(1)
        other.advance(1)
        assert (one.watermarks, other.watermarks) == ((10,), (3,))


def test_a_generator_may_mark_its_stream_idle_until_the_next_record() -> None:
    class EndsOfShifts(WatermarkGenerator[Row]):
        def on_event(self, value: Row, timestamp: int, output: WatermarkOutput) -> None:
            output.emit_watermark(timestamp)
            if value.get("pause"):
                output.mark_idle()

    with harness_of(WatermarkStrategy.for_generator(EndsOfShifts)) as harness:
        harness.push([*at(5), *at(9, pause=True)])
        assert (harness.watermarks, harness.is_idle) == ((9,), True)
        harness.push(at(12))
        assert (harness.watermarks, harness.is_idle) == ((9, 12), False)


def test_a_new_generator_begins_after_a_restart() -> None:
    strategy = WatermarkStrategy.for_generator(Newest, interval=1)
    with harness_of(strategy) as harness:
        harness.push(at(10))
        saved = harness.snapshot()
    operator = TimestampsAndWatermarksOperator(strategy.with_timestamp_column("at"))
    with OperatorHarness(operator, restored=[saved]) as harness:
        harness.advance(5)
        assert (harness.watermarks, harness.is_idle) == ((), False)


# -- what goes wrong ----------------------------------------------------------------------------------------


def fails(row: Row, timestamp: int) -> int:
    return 1 // row["at"]


def test_a_function_that_fails_is_named_with_its_line_and_the_record() -> None:
    with (
        harness_of(WatermarkStrategy.for_punctuated(fails)) as harness,
        pytest.raises(
            OperatorError,
            match=r"watermark function fails \(tests/.*generators\.py:\d+\) failed: ZeroDivisionError"
            r".*in fails, on record {'at': 0}",
        ),
    ):
        harness.push(at(1, 0, 2))


def test_a_function_that_gives_no_moment_is_told_what_it_gave() -> None:
    with (
        harness_of(WatermarkStrategy.for_punctuated(lambda row, _: "now")) as harness,  # type: ignore[arg-type]
        pytest.raises(OperatorError, match=r"watermark function lambda.*not 'now' of type str, on record"),
    ):
        harness.push(at(1))


class Broken(Newest):
    def on_periodic(self, output: WatermarkOutput) -> None:
        raise OSError("no luck")


class Yields(Newest):
    def on_event(self, value: Row, timestamp: int, output: WatermarkOutput) -> Any:
        yield output.emit_watermark(timestamp)


class Silent:
    """Is no generator."""


def test_a_generator_that_fails_over_time_is_named_with_its_line() -> None:
    with harness_of(WatermarkStrategy.for_generator(Broken, interval=1)) as harness:
        harness.push(at(1))
        with pytest.raises(
            OperatorError, match=r"watermark generator Broken.on_periodic \(.*:\d+\).*no luck"
        ):
            harness.advance(1)


def test_a_generator_that_yields_is_refused() -> None:
    with (
        harness_of(WatermarkStrategy.for_generator(Yields)) as harness,
        pytest.raises(OperatorError, match=r"Yields.on_event.*on_event yields, so it never runs"),
    ):
        harness.push(at(1))


def test_what_is_no_generator_is_refused_when_the_subtask_opens() -> None:
    strategy: Any = WatermarkStrategy.for_generator(Silent)  # type: ignore[arg-type]
    with pytest.raises(OperatorError, match=r"watermark generator Silent.*derive the class of a generator"):
        harness_of(strategy)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WatermarkStrategy.for_generator(Newest()), "needs the class Newest, not an object"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.for_generator("Newest"), "for_generator needs a function, not 'Newest'"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.for_generator(Newest, 0), "interval=0: give a finite duration"),
        (lambda: WatermarkStrategy.for_punctuated(5), "for_punctuated needs a function, not 5"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.for_monotonous_timestamps().with_idleness(0), "timeout=0: give a finite"),
        (lambda: MONOTONOUS.with_alignment("", 5), "with_alignment: a name must not be empty"),
        (lambda: MONOTONOUS.with_alignment("all", 0), "max_drift=0: give a finite duration longer"),
        (
            lambda: MONOTONOUS.with_alignment("all", 5, interval=0),
            "interval=0: give a finite duration",
        ),
        (
            lambda: WatermarkStrategy.for_monotonous_timestamps().with_idleness("1s"),
            "timeout='1s': give a timedelta",
        ),  # type: ignore[arg-type]
    ],
)
def test_what_can_not_be_meant_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


# -- idleness -----------------------------------------------------------------------------------------------


def idle_after(seconds: float) -> OperatorHarness:
    return harness_of(WatermarkStrategy.for_monotonous_timestamps().with_idleness(seconds))


def test_a_quiet_stream_becomes_idle_and_the_next_record_makes_it_active() -> None:
    with idle_after(60) as harness:
        harness.push(at(5))
        harness.advance(59)
        assert not harness.is_idle
        harness.advance(1)
        assert harness.is_idle
        harness.push(at(6))
        assert not harness.is_idle
        assert harness.watermarks == (4, 5)


def test_a_stream_that_never_had_a_record_becomes_idle() -> None:
    with idle_after(60) as harness:
        harness.advance(60)
        assert (harness.is_idle, harness.watermarks) == (True, ())


def test_active_stands_in_front_of_the_records_and_idle_behind_the_watermark() -> None:
    told: list[Any] = []
    with idle_after(1) as harness:
        harness._chain._emit = lambda index, tag, batch: told.append(batch)
        harness._chain._emit_time = told.append
        harness.push([{"at": 5}])
        harness.advance(1)
        harness.push([{"at": 6}])
    batches = [t.rows if isinstance(t, RowBatch) else t for t in told]
    assert batches[2:4] == [StreamStatus.IDLE, StreamStatus.ACTIVE]
    assert batches[4] == [{"at": 6}]


def test_a_generator_is_not_called_while_its_stream_is_idle() -> None:
    class Clockwork(WatermarkGenerator[Row]):
        def __init__(self) -> None:
            self.calls = 0

        def on_event(self, value: Row, timestamp: int, output: WatermarkOutput) -> None:
            self.calls = timestamp

        def on_periodic(self, output: WatermarkOutput) -> None:
            self.calls += 1
            output.emit_watermark(self.calls)

    with harness_of(WatermarkStrategy.for_generator(Clockwork, interval=1).with_idleness(3)) as harness:
        harness.advance(100)
        assert (harness.watermarks, harness.is_idle) == ((1, 2), True)
        harness.push(at(50))
        harness.advance(1)
        assert (harness.watermarks[-1], harness.is_idle) == (52, False)


def test_a_status_of_the_input_ends_where_watermarks_are_made() -> None:
    with idle_after(60) as harness:
        harness.push_status(idle=True)
        assert not harness.is_idle
    with OperatorHarness.of(lambda stream: stream.map(abs)) as harness:
        harness.push_status(idle=True)
        assert harness.is_idle
        harness.push_status(idle=False)
        assert not harness.is_idle


@given(
    timeout=st.integers(1, 20),
    happens=st.lists(st.integers(1, 15) | st.none(), max_size=30),
    columnar=st.booleans(),
)
def test_a_stream_is_idle_as_long_after_its_last_record_as_the_strategy_says(
    timeout: int, happens: list[int | None], columnar: bool
) -> None:
    """Against a model with a moving clock: `None` is a record, a number are seconds that pass."""
    with idle_after(timeout) as harness:
        quiet, number = 0, 0
        for what in happens:
            if what is None:
                quiet, number = 0, number + 1
                harness.push_batch(columns(at(number)) if columnar else RowBatch(at(number)))
            else:
                quiet += what
                harness.advance(what)
            assert harness.is_idle is (quiet >= timeout)
            assert harness.watermarks == tuple(range(number))
