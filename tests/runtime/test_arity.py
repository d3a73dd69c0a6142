"""The arguments of a user's function are checked when the graph is built."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest

from penstock import AggregateFunction, KeyedProcessFunction, StreamEnvironment, WatermarkStrategy
from penstock.runtime.arity import arity_problem, arity_problem_of_class
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.windows import TumblingEventTimeWindows


def two(first: int, second: int) -> int:
    return first + second


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the function a second argument that its caller does not have."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args, 5)

    return call


class Adds:
    def __call__(self, value: int) -> int:
        return value + 1

    def method(self, value: int) -> int:
        return value

    @staticmethod
    def static(value: int) -> int:
        return value

    @classmethod
    def of_class(cls, value: int) -> int:
        return value


class Untyped:
    """Says nothing about its arguments, as objects of C extensions do."""

    __signature__ = "none"

    def __call__(self, value: int) -> int:
        return value


@pytest.mark.parametrize(
    "function",
    [
        len,
        str,
        int,
        dict,
        print,
        max,
        abs,
        "text".join,
        {"a": 1}.get,
        operator.itemgetter("a"),
        operator.attrgetter("a"),
        operator.methodcaller("strip"),
        functools.partial(two, 1),
        functools.partial(two, second=1),
        functools.lru_cache(len),
        decorated(two),
        Adds(),
        Adds().method,
        Adds.static,
        Adds.of_class,
        Untyped(),
        lambda value, other=5: value,
        lambda *values: values,
        lambda value, *, other=1, **more: value,
        lambda value, /: value,
    ],
)
def test_a_function_that_may_work_is_never_refused(function: Callable[..., Any]) -> None:
    assert arity_problem(function, ["record"]) is None


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (two, r"two \(.*test_arity\.py:\d+\) takes \(first, second\): missing a required argument: 'second'"),
        (lambda: 1, r"takes \(\): too many positional arguments"),
        (lambda value, *, other: value, r"takes \(value, other\): missing a required .*argument: 'other'"),
        (functools.partial(two, 1, 2), "too many positional arguments"),
        (Adds().method, None),
    ],
)
def test_a_function_that_can_not_work_is_explained(function: Callable[..., Any], why: str | None) -> None:
    problem = arity_problem(function, ["record"])
    assert (problem is None) is (why is None)
    if why is not None:
        assert problem is not None
        with pytest.raises(ValueError, match=rf"^is called with \(record\), but .*{why}"):
            raise ValueError(problem)


def test_a_class_counts_with_the_arguments_of_its_objects() -> None:
    assert arity_problem_of_class(Adds, ["record"]) is None
    assert "takes (self, value)" in (arity_problem_of_class(Adds, ["left", "right"]) or "")


class WithoutContext(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any) -> Any:  # type: ignore[override]
        return [value]


class AddsOnly(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int) -> int:  # type: ignore[override]
        return value

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Pair:
    def __call__(self, left: int, right: int) -> int:
        return left


@pytest.fixture
def numbers() -> Any:
    return StreamEnvironment("arity").from_collection("numbers", [1])


@pytest.mark.parametrize(
    ("build", "call"),
    [
        (lambda s: s.map(two), r"map: the function is called with \(record\)"),
        (lambda s: s.map(Pair), r"map: an object of the class is called with \(record\)"),
        (lambda s: s.flat_map(two), "flat_map"),
        (lambda s: s.filter(two), "filter"),
        (lambda s: s.map_batches(two, "arrow"), r"map_batches: .*\(batch\)"),
        (lambda s: s.split({"a": two}), "split: 'a'"),
        (lambda s: s.key_by(two), "key_by"),
        (lambda s: s.partition_custom(two), None),
        (lambda s: s.partition_custom(lambda n: 0), r"partition_custom: .*\(record, subtasks\)"),
        (lambda s: s.key_by(abs).reduce("r", lambda a: a), r"reduce: .*\(result, record\)"),
        (lambda s: s.key_by(abs).process("p", WithoutContext()), r"process: process .*\(value, ctx\)"),
        (lambda s: s.key_by(abs).aggregate("a", AddsOnly()), r"aggregate: add .*\(value, accumulator\)"),
        (lambda s: windows(s).apply("w", two), r"apply: .*\(key, window, records\)"),
        (
            lambda s: windows(s).reduce("w", two, lambda window, n: [n]),
            r"window_function.*\(key, window, result\)",
        ),
        (lambda s: s.window_all(TumblingEventTimeWindows(1)).apply("w", two), None),
        (lambda s: s.connect(s).co_map(abs, two), r"co_map: .*\(record\)"),
        (lambda s: s.join(s, left_on=abs, right_on=abs, within=1, select=abs), r"select: .*\(left, right\)"),
    ],
)
def test_each_call_of_the_graph_checks_its_function(numbers: Any, build: Any, call: str | None) -> None:
    if call is None:
        build(numbers)
        return
    with pytest.raises(GraphError, match=rf"test_arity\.py:\d+ .*{call}"):
        build(numbers)


def windows(stream: Any) -> Any:
    return stream.key_by(abs).window(TumblingEventTimeWindows(1))


def test_a_strategy_checks_its_functions() -> None:
    plain = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(ConfigurationError, match=r"with_timestamp_assigner: .*called with \(record\)"):
        plain.with_timestamp_assigner(two)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"for_punctuated: .*called with \(record, timestamp\)"):
        WatermarkStrategy.for_punctuated(lambda record: None)  # type: ignore[misc, arg-type]
    with pytest.raises(ConfigurationError, match=r"for_generator: .*called with \(\)"):
        WatermarkStrategy.for_generator(two)  # type: ignore[arg-type]
