"""Runs of operators in one generated loop: whose a failure is, what a watchdog sees, what does not fit."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.actors.subtask.attempt import running_call
from penstock.runtime.errors import OperatorError, OperatorInterrupt, OperatorLocation
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.functions.record_functions import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch, Watermark
from penstock.runtime.testing.manual_time import ManualClock

seen: list[str | None] = []


def look(record: Any) -> Any:
    seen.append(running_call(sys._getframe()))
    return record


def generate(record: Any) -> Iterator[Any]:
    yield look(record)


def plus_one(number: int) -> int:
    return number + 1


def halves(number: int) -> float:
    return 12 / number


def run(chain: Any, rows: Any, times: list[int] | None = None) -> None:
    for _ in chain.process(RowBatch(rows, times)):
        pass


def test_a_failure_names_the_operator_the_line_and_the_record_that_its_function_received(open_chain):
    running = open_chain(MapOperator(plus_one), MapOperator(halves), FilterOperator(bool))
    with pytest.raises(OperatorError) as raised:
        run(running.chain, [1, -1, 2])
    assert "'op1'" in str(raised.value)
    assert "map function halves (" in str(raised.value)
    line = halves.__code__.co_firstlineno + 1
    assert f"test_fused_loop.py:{line} in halves, on record 0" in str(raised.value)
    assert "on record 0" in str(raised.value)
    assert "fused loop" not in str(raised.value) + raised.value.cause_text
    assert running.emitted == []


def test_of_two_functions_in_loops_of_equal_code_the_one_that_failed_is_named(open_chain):
    calls: list[int] = []

    def first(number: int) -> int:
        calls.append(number)
        return number + 100

    def second(number: int) -> float:
        calls.append(number)
        return 1 / (number - 102)

    running = open_chain(MapOperator(first), MapOperator(second))
    with pytest.raises(OperatorError, match=r"'op1'.*map function second.*on record 102"):
        run(running.chain, [1, 2, 3])


class Unclear:
    """A result without a truth value, like a comparison of arrays."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize("isolates", [False, True])
def test_a_filter_whose_result_has_no_truth_value_is_named(open_chain, isolates: bool):
    def is_large(number: int) -> Any:
        return Unclear() if number == 7 else True

    operators = [MapOperator(plus_one), FilterOperator(is_large), MapOperator(plus_one)]
    for operator in operators:
        operator.isolates = isolates
    running = open_chain(*operators)
    with pytest.raises(OperatorError, match=r"'op1'.*filter function is_large.*ambiguous.*on record 7"):
        run(running.chain, [1, 6, 2])


def test_an_arrow_batch_without_rows_of_python_fails_the_first_operator(open_chain):
    running = open_chain(MapOperator(plus_one), MapOperator(halves))
    far = pa.array([1 << 60], pa.timestamp("s"))
    with pytest.raises(OperatorError, match="'op0'"):
        for _ in running.chain.process(ArrowBatch(pa.record_batch({"at": far}))):
            pass


def test_a_function_runs_once_for_each_record_even_if_a_later_one_fails(open_chain):
    calls: list[int] = []

    def note(number: int) -> int:
        calls.append(number)
        return number

    running = open_chain(MapOperator(note), MapOperator(halves))
    with pytest.raises(OperatorError, match=r"'op1'.*on record 0"):
        run(running.chain, [3, 0, 4])
    assert calls == [3, 0]


def test_records_before_a_failing_batch_have_left(open_chain):
    running = open_chain(MapOperator(plus_one), MapOperator(halves))
    run(running.chain, [1, 2])
    with pytest.raises(OperatorError):
        run(running.chain, [-1])
    assert running.rows() == [6, 4]


@pytest.mark.parametrize(
    ("operators", "wanted"),
    [
        ([MapOperator(look), MapOperator(plus_one)], "map function look ("),
        ([MapOperator(plus_one), FilterOperator(look)], "filter function look ("),
        ([FilterOperator(bool), MapOperator(look), FilterOperator(bool)], "map function look ("),
        ([MapOperator(plus_one), FlatMapOperator(generate)], "flat_map function generate ("),
        ([MapOperator(look), FlatMapOperator(lambda n: [n])], "map function look ("),
    ],
)
def test_a_watchdog_sees_which_function_of_the_loop_runs(open_chain, operators, wanted):
    seen.clear()
    run(open_chain(*operators).chain, [1])
    assert [told is not None and told.startswith(wanted) for told in seen] == [True]


def test_a_very_long_run_is_cut_into_loops(open_chain):
    running = open_chain(*(MapOperator(plus_one) for _ in range(300)))
    run(running.chain, [0, 1])
    assert running.rows() == [300, 301]
    counts = [(s.records_in, s.records_out) for s in running.chain.statistics().values()]
    assert counts == [(2, 2)] * 300


def test_a_failure_far_along_a_long_run_names_its_operator(open_chain):
    running = open_chain(*(MapOperator(plus_one) for _ in range(60)), MapOperator(halves), MapOperator(str))
    with pytest.raises(OperatorError, match=r"'op60'.*on record 0"):
        run(running.chain, [-60])


def test_rows_may_be_any_sequence_and_empty_results_go_nowhere(open_chain):
    running = open_chain(MapOperator(plus_one), FilterOperator(lambda n: n > 5), MapOperator(str))
    run(running.chain, range(7), list(range(7)))
    run(running.chain, (0, 1))
    assert [(batch.rows, batch.timestamps) for _, _, batch in running.emitted] == [(["6", "7"], [5, 6])]
    counts = [(s.records_in, s.records_out) for s in running.chain.statistics().values()]
    assert counts == [(9, 9), (9, 2), (2, 2)]


def test_timestamps_that_do_not_fit_their_records_are_refused_by_a_filter(open_chain):
    running = open_chain(MapOperator(plus_one), FilterOperator(bool))
    with pytest.raises(OperatorError, match="zip"):
        run(running.chain, [1, 2], [1])


class Adder:
    """An object with state, of which each subtask makes its own."""

    def __init__(self, start: int) -> None:
        self.total = start

    def __call__(self, number: int) -> int:
        self.total += number
        return self.total


def test_an_object_with_state_runs_in_the_loop_in_the_order_of_the_records(open_chain):
    running = open_chain(
        FilterOperator(lambda n: n != 2), MapOperator(FunctionClass(Adder, (10,))), MapOperator(plus_one)
    )
    run(running.chain, [1, 2, 3])
    run(running.chain, [4])
    assert running.rows() == [12, 15, 19]


class Marks(Operator):
    """Keeps the event time that it has seen behind its records."""

    def process(self, batch: Batch) -> Iterator[RowBatch]:
        assert isinstance(batch, RowBatch)
        yield RowBatch([f"row {row}" for row in batch.rows])

    def process_watermark(self, watermark: Watermark) -> Iterator[RowBatch]:
        yield RowBatch([f"mark {watermark.timestamp}"])


def test_watermarks_pass_between_the_batches_of_a_run(open_chain):
    running = open_chain(MapOperator(plus_one), FilterOperator(bool), Marks())
    run(running.chain, [1])
    for _ in running.chain.process_time(Watermark(5)):
        pass
    run(running.chain, [2])
    assert running.rows() == ["row 2", "mark 5", "row 3"]


def test_an_endless_flat_map_leaves_the_loop_in_batches_and_is_closed(open_chain):
    ended: list[str] = []

    def forever(number: int) -> Iterator[int]:
        try:
            while True:
                yield number
        finally:
            ended.append("closed")

    running = open_chain(MapOperator(plus_one), FlatMapOperator(forever))
    work = running.chain.process(RowBatch([1]))
    next(work)
    next(work)
    assert running.rows()[:3] == [2, 2, 2]
    [_, (taken, _)] = [(s.records_in, s.records_out) for s in running.chain.statistics().values()]
    assert taken == 1
    work.close()
    assert ended == ["closed"]


def test_a_generator_that_fails_behind_its_first_records_names_its_own_record(open_chain):
    def some(number: int) -> Iterator[float]:
        yield number
        yield 1 / (number - 2)

    running = open_chain(MapOperator(plus_one), FilterOperator(lambda n: n != 7), FlatMapOperator(some))
    with pytest.raises(OperatorError, match=r"'op2'.*flat_map function .*some.*on record 2"):
        run(running.chain, [2, 6, 1, 0])


def test_a_keyboard_interrupt_ends_the_program_and_names_the_operator(open_chain):
    def interrupt(number: int) -> int:
        raise KeyboardInterrupt

    running = open_chain(MapOperator(plus_one), MapOperator(interrupt))
    with pytest.raises(OperatorInterrupt, match="'op1'"):
        run(running.chain, [1])


def test_a_value_that_can_not_be_copied_is_the_fault_of_the_map_that_made_it(open_chain):
    class Lock:
        def __deepcopy__(self, memo: Any) -> Any:
            msg = "no copies of locks"
            raise TypeError(msg)

    locks = [Lock()]
    running = open_chain(
        MapOperator(plus_one), MapOperator(lambda n: locks[0]), FilterOperator(lambda x: True)
    )
    with pytest.raises(OperatorError, match=r"'op1'.*can't be copied"):
        run(running.chain, [1])


def test_a_chain_with_a_loop_is_freed_without_the_cycle_collector():
    connector = ConnectorContext("job", "job", "op", 0, 1, 1, ManualClock())
    places = [OperatorLocation(f"op{number}", 0, 1) for number in range(3)]
    operators = [MapOperator(plus_one), FilterOperator(bool), FlatMapOperator(generate)]
    chain = OperatorChain(
        list(zip(places, operators, strict=True)), lambda *emission: None, lambda passing: None
    )
    chain.open({place.operator: OperatorContext(place, connector) for place in places})
    run(chain, [1, 2], [1, 2])
    run(chain, [1])
    seen.clear()
    chain.close()
    left = [weakref.ref(part) for part in (chain, operators[0])]
    gc.collect()
    gc.disable()
    try:
        del chain, operators
        assert [ref() for ref in left] == [None, None]
    finally:
        gc.enable()
