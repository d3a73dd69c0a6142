"""Event time in a process function's context, and errors that name the method that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import (
    FunctionContext,
    KeyedProcessFunction,
    OperatorError,
    ProcessFunction,
    RuntimeContext,
    ValueState,
)
from penstock.runtime.operators import held_watermark
from penstock.testing import OperatorHarness


class Tells(ProcessFunction[str, Any]):
    """Emits the watermark with each record."""

    def process(self, value: str, ctx: FunctionContext) -> Iterator[Any]:
        yield value, ctx.watermark


class KeyedTells(KeyedProcessFunction[str, str, Any]):
    """Emits the watermark with each record and timer."""

    def process(self, value: str, ctx: RuntimeContext) -> Iterator[Any]:
        if ctx.timestamp is not None:
            ctx.timer_service.register_event_time_timer(ctx.timestamp + 10)
        yield value, ctx.watermark

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Any]:
        yield at, ctx.current_key, ctx.watermark


def keyed(function: Any) -> Callable[[Any], Any]:
    return lambda stream: stream.key_by(str).process("it", function)


def test_the_context_knows_the_watermark() -> None:
    function = Tells()
    with OperatorHarness.of(lambda names: names.process("tells", function)) as harness:
        assert harness.push(["a"], [5]) == [("a", None)]
        harness.push_watermark(7)
        assert harness.push(["b"], [5]) == [("b", 7)]


@pytest.mark.usefixtures("either_backend")
def test_the_context_of_a_keyed_function_knows_the_watermark_also_in_timers_and_after_a_restore() -> None:
    with OperatorHarness.of(keyed(KeyedTells())) as harness:
        assert harness.push(["a", "b"], [5, 6]) == [("a", None), ("b", None)]
        assert harness.push_watermark(20) == [(15, "a", 20), (16, "b", 20)]
        assert harness.push(["c"], [25]) == [("c", 20)]
        saved = harness.snapshot()
    with OperatorHarness.of(keyed(KeyedTells()), restored=[saved]) as harness:
        assert harness.push(["d"], [30]) == [("d", 20)]
        assert harness.push_watermark(35) == [(35, "c", 35)]


def test_the_watermark_that_a_storm_holds_is_that_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_watermark, "MOST_FIRED", 1)
    with OperatorHarness.of(keyed(KeyedTells())) as harness:
        harness.push(["a", "b"], [5, 6])
        assert harness.push_watermark(20) == [(15, "a", 20)]
        assert harness.watermarks == ()
        assert harness.push(["c"], [25]) == [(16, "b", 20), ("c", 20)]


class OpensWithState(KeyedProcessFunction[str, str, str]):
    """Uses its state where there is no key."""

    seen = ValueState(int, default=0)

    def open(self, ctx: RuntimeContext) -> None:
        self.seen.update(1)

    def process(self, value: str, ctx: RuntimeContext) -> None:
        return None


class ClosesWithState(KeyedProcessFunction[str, str, str]):
    """Uses its state where there is no key any more."""

    seen = ValueState(int, default=0)

    def process(self, value: str, ctx: RuntimeContext) -> None:
        self.seen.update(1)

    def close(self) -> None:
        self.seen.value()


class FailsInClose(ProcessFunction[str, str]):
    """Has no keys, and fails at the end."""

    def process(self, value: str, ctx: FunctionContext) -> None:
        return None

    def close(self) -> None:
        msg = "no"
        raise LookupError(msg)


class OpensLater(ProcessFunction[str, str]):
    """Its `open` never runs."""

    def open(self, ctx: FunctionContext) -> Any:
        yield

    def process(self, value: str, ctx: FunctionContext) -> None:
        return None


FAILED = r"\(.*test_process_context\.py:\d+\) failed"
NO_KEY = rf"{FAILED}: .*state 'seen' was used outside the processing of a record"


def test_an_error_in_open_names_open() -> None:
    with pytest.raises(OperatorError, match=rf"process OpensWithState\.open {NO_KEY}"):
        OperatorHarness.of(keyed(OpensWithState()))


def test_an_error_in_close_names_close() -> None:
    harness = OperatorHarness.of(keyed(ClosesWithState()))
    harness.push(["a"])
    with pytest.raises(OperatorError, match=rf"process ClosesWithState\.close {NO_KEY}"):
        harness.close()


def test_an_error_in_close_of_a_function_without_keys_names_close() -> None:
    harness = OperatorHarness.of(lambda names: names.process("it", FailsInClose()))
    with pytest.raises(OperatorError, match=rf"process FailsInClose\.close {FAILED}: LookupError"):
        harness.close()


def test_an_open_that_would_never_run_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"OpensLater\.open .* open yields, so it never runs"):
        OperatorHarness.of(lambda names: names.process("it", OpensLater()))
