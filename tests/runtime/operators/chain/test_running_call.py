"""A stack tells which function of a user a thread is in."""

from __future__ import annotations

import re
import sys
from typing import Any

from penstock.actors.subtask.attempt import running_call
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.operators.functions.record_functions import FlatMapOperator, MapOperator
from penstock.runtime.operators.source import Polled
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.watermarks import WatermarkStrategy

seen: list[str | None] = []


def look(record: Any) -> Any:
    seen.append(running_call(sys._getframe()))
    return record


def generate(record: Any) -> Any:
    yield look(record)


class Looking:
    """A source whose reader looks at its own stack."""

    def splits(self, parallelism: int) -> list[Any]:
        return [0]

    def reader(self, context: Any, splits: Any) -> Any:
        return self

    def poll(self, max_rows: int) -> Polled[Any]:
        look(None)
        return Polled(finished=True)


def test_a_call_of_a_function_is_told_with_its_line() -> None:
    seen.clear()
    with OperatorHarness(MapOperator(look)) as harness:
        harness.push([1])
    [told] = seen
    assert told is not None
    assert re.fullmatch(r"map function look \(.*test_running_call\.py:\d+\)", told)


def test_what_a_generator_calls_is_told_as_the_generator() -> None:
    seen.clear()
    with OperatorHarness(FlatMapOperator(generate)) as harness:
        harness.push([1])
    [told] = seen
    assert told is not None
    assert told.startswith("flat_map function generate (")


def test_a_call_of_a_reader_is_told_with_its_source(make_context: Any) -> None:
    seen.clear()
    operator = SourceOperator(Looking())
    operator.open(make_context(0), [0])
    operator.poll(10)
    assert seen == ["source Looking: poll"]


def test_a_call_of_a_sources_strategy_is_told_with_its_line(make_context: Any) -> None:
    seen.clear()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(look)
    operator = SourceOperator(CollectionSource([1]), strategy)
    operator.open(make_context(0), [(0, 1)])
    operator.poll(10)
    [told] = seen
    assert told is not None
    assert re.fullmatch(r"timestamp assigner look \(.*test_running_call\.py:\d+\)", told)


def test_a_thread_that_is_in_no_operator_is_in_no_call() -> None:
    seen.clear()
    look(1)
    assert seen == [None]
    assert running_call(None) is None
