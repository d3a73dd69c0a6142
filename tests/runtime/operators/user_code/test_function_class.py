"""Classes given instead of functions: each subtask makes an object of its own, and closes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import Checkpointing, CollectSink, GraphError, StreamEnvironment
from penstock.runtime.errors import OperatorError
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.record.elements import ArrowBatch
from penstock.testing import OperatorHarness, simulate


class Scale:
    """A model: weights are loaded once, and it is closed."""

    closed: ClassVar[list[int]] = []

    def __init__(self, weight: int, *, bias: int = 0) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, batch: list[int]) -> list[int]:
        return [self.weight * number + self.bias for number in batch]

    def close(self) -> None:
        self.closed.append(self.weight)


class ScaleColumn:
    def __init__(self, weight: int) -> None:
        self.weight = weight

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": pc.multiply(batch["n"], self.weight)})


def test_class_is_made_with_its_arguments_once_and_closed_once() -> None:
    Scale.closed.clear()
    settings: dict[str, Any] = {"fn_constructor_args": [3], "fn_constructor_kwargs": {"bias": 1}}
    with OperatorHarness.of(lambda n: n.map_batches(Scale, **settings)) as harness:
        assert harness.push([1, 2]) == [4, 7]
        assert harness.push([3]) == [10]
        assert Scale.closed == []
    assert Scale.closed == [3]


def test_class_takes_arrow_batches_too() -> None:
    build = lambda n: n.map_batches(ScaleColumn, "arrow", fn_constructor_args=(5,))  # noqa: E731
    with OperatorHarness.of(build) as harness:
        assert harness.push([{"n": 2}]) == [{"n": 10}]
        harness.push_batch(ArrowBatch(pa.record_batch({"n": [3]})))
        assert isinstance(harness.batches[-1], ArrowBatch)


class Above:
    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, number: int) -> bool:
        return number > self.least


class Copies:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, number: int) -> Iterator[int]:
        for _ in range(self.count):
            yield number


def test_map_flat_map_and_filter_take_classes() -> None:
    with OperatorHarness.of(lambda n: n.map(Above, fn_constructor_args=(1,))) as harness:
        assert harness.push([1, 2]) == [False, True]
    with OperatorHarness.of(lambda n: n.filter(Above, fn_constructor_args=(1,))) as harness:
        assert harness.push([1, 2]) == [2]
    with OperatorHarness.of(lambda n: n.flat_map(Copies, fn_constructor_args=(2,))) as harness:
        assert harness.push([1, 2]) == [1, 1, 2, 2]


def test_class_that_converts_is_a_function_and_no_model() -> None:
    with OperatorHarness.of(lambda n: n.map(str)) as harness:
        assert harness.push([1]) == ["1"]


class Broken:
    def __init__(self) -> None:
        missing: dict[str, int] = {}
        missing["weights"]

    def __call__(self, batch: list[int]) -> list[int]:
        return batch


class BrokenAtTheEnd(Broken):
    def __init__(self) -> None:
        """Fine."""

    def close(self) -> None:
        msg = "the device is gone"
        raise OSError(msg)


class Yields:
    def __call__(self, number: int) -> Iterator[int]:
        yield number


class Awaits:
    async def __call__(self, number: int) -> int:
        return number


def test_error_in_a_constructor_names_operator_subtask_and_line() -> None:
    message = (
        r"operator 'model' \(subtask 2 of 3\).*: map_batches constructor Broken.__init__ "
        r"\(.*test_function_class.py:\d+\) failed: KeyError: 'weights', at .*test_function_class.py:\d+"
    )
    with pytest.raises(OperatorError, match=message):
        OperatorHarness.of(lambda n: n.map_batches(Broken, id="model"), subtask=1, parallelism=3)


def test_error_in_close_names_the_method() -> None:
    harness = OperatorHarness.of(lambda n: n.map_batches(BrokenAtTheEnd))
    with pytest.raises(OperatorError, match=r"map_batches BrokenAtTheEnd.close .* failed: OSError: the devi"):
        harness.close()


@pytest.mark.parametrize(("kind", "message"), [(Yields, "which yields"), (Awaits, "declared `async def`")])
def test_call_that_gives_no_value_is_refused(kind: type, message: str) -> None:
    with pytest.raises(OperatorError, match=rf"map calls .*{message}"):
        OperatorHarness.of(lambda n: n.map(kind))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"map_batches: Scale\(weight: .* can't be made: missing a required argument: 'weight'"),
        ({"fn_constructor_args": (1, 2, 3)}, "can't be made: too many positional arguments"),
        ({"fn_constructor_args": "abc"}, "fn_constructor_args must be a tuple or a list"),
        ({"fn_constructor_args": 3}, "fn_constructor_args must be a tuple or a list"),
        ({"fn_constructor_kwargs": [3]}, "fn_constructor_kwargs must be a dict"),
        (
            {"fn_constructor_arg": (3,)},
            "no argument 'fn_constructor_arg'; did you mean 'fn_constructor_args'",
        ),
    ],
)
def test_constructor_arguments_that_do_not_fit_are_refused_at_the_users_line(
    settings: dict[str, Any], message: str
) -> None:
    numbers = StreamEnvironment("job").from_collection("numbers", [1])
    with pytest.raises(GraphError, match=rf"test_function_class.py:\d+ in .*: .*{message}"):
        numbers.map_batches(Scale, **settings)


@pytest.mark.parametrize("function", [abs, Scale(1), str])
def test_constructor_arguments_need_a_class_of_function_objects(function: Any) -> None:
    numbers = StreamEnvironment("job").from_collection("numbers", [1])
    with pytest.raises(GraphError, match="are for a class with a method __call__"):
        numbers.map(function, fn_constructor_args=(1,))


class Counts:
    """Appends to its argument, which it must share with no other subtask."""

    def __init__(self, seen: list[int]) -> None:
        assert not seen, "the arguments are shared with another subtask or attempt"
        self.seen = seen

    def __call__(self, number: int) -> int:
        self.seen.append(number)
        return number


def test_subtasks_and_attempts_share_no_argument() -> None:
    def build() -> tuple[StreamEnvironment, InMemoryCollector]:
        results = InMemoryCollector()
        env = StreamEnvironment("counted", parallelism=2, checkpointing=Checkpointing(every=10))
        numbers = env.from_collection("numbers", range(20)).rebalance()
        numbers.map(Counts, fn_constructor_args=([],)).sink("out", CollectSink(results))
        return env, results

    simulate(build, output=lambda results: sorted(results.rows()), seeds=range(1))
