"""Functions with a context on streams without keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import (
    FunctionContext,
    GraphError,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamEnvironment,
)
from penstock.runtime.errors import OperatorError
from penstock.testing import OperatorHarness


class Sort(ProcessFunction[int, str]):
    """Odd numbers at the side, even ones with what the context knows; below zero it sets a timer."""

    odd = OutputTag[int]()

    def open(self, ctx: FunctionContext) -> None:
        self.is_open = True

    def process(self, value: int, ctx: FunctionContext) -> Iterator[str]:
        assert self.is_open
        if value < 0:
            ctx.timer_service.register_event_time_timer(1)
        elif value % 2:
            ctx.counter("odd").increment()
            ctx.output(self.odd, value)
        else:
            yield f"{value} at {ctx.timestamp}, watermark {ctx.timer_service.current_watermark}"


def sort(**settings: Any) -> OperatorHarness:
    return OperatorHarness.of(lambda numbers: numbers.process("sort", Sort()), **settings)


def test_function_knows_timestamp_and_watermark_and_has_side_outputs_and_counters() -> None:
    with sort() as harness:
        assert harness.push([1, 2], [10, 20]) == ["2 at 20, watermark None"]
        harness.push_watermark(25)
        assert harness.push([3, 4]) == ["4 at None, watermark 25"]
        assert harness.side_output("odd") == [1, 3]
        statistics = harness.statistics()
        assert (statistics.records_in, statistics.records_out, statistics.counters) == (4, 2, {"odd": 2})
        assert [batch.timestamps for batch in harness.batches] == [[20], None]


def test_timer_needs_a_key() -> None:
    with sort() as harness, pytest.raises(OperatorError, match=r"call key_by\(function\) before process"):
        harness.push([-1])


class Keyed(KeyedProcessFunction[int, int, int]):
    def process(self, value: int, ctx: RuntimeContext) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (Keyed(), "is not a ProcessFunction; call key_by"),
        (abs, "is not a ProcessFunction; for a plain function use map or flat_map"),
        (3, "is not a ProcessFunction"),
    ],
)
def test_what_is_no_process_function_is_refused_at_the_users_line(function: Any, hint: str) -> None:
    numbers = StreamEnvironment("job").from_collection("numbers", [1])
    with pytest.raises(GraphError, match=rf"test_process.py.*process: .*{hint}"):
        numbers.process("p", function)


def test_side_outputs_of_a_function_are_those_that_its_class_declares() -> None:
    sorted_numbers = StreamEnvironment("job").from_collection("numbers", [1]).process("sort", Sort())
    sorted_numbers.side_output(Sort.odd)
    sorted_numbers.side_output("odd")
    with pytest.raises(GraphError, match="has no side output 'even'; its side outputs are 'odd'"):
        sorted_numbers.side_output("even")
