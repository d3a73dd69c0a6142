"""Wrong uses of `map_async`, each with an error that says what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import (
    ConfigurationError,
    FunctionContext,
    GraphError,
    OperatorError,
    OutputTag,
    PenstockError,
    Retry,
    StreamEnvironment,
    async_call,
)
from penstock.state import OperatorListState
from penstock.testing import OperatorHarness


def stream() -> Any:
    return StreamEnvironment("job").from_collection("rows", [1])


async def answer(row: Any) -> Any:
    return row


def declared_plain(row: int) -> int:
    return row


async def yields(row: int) -> AsyncIterator[int]:
    yield row


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"capacity": 0}, "capacity must be a whole number from 1 to 1,000,000, not 0"),
        ({"capacity": True}, "capacity must be a whole number"),
        ({"capacity": 1.5}, "capacity must be a whole number"),
        ({"batch": 0}, "batch must be a whole number from 1"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "1s"}, "timeout"),
        ({"retry": "twice"}, r"retry must be a number of attempts or a Retry\(...\), not 'twice'"),
        ({"retry": 0}, "Retry.attempts=0: give a whole number of at least 1"),
        ({"ordered": "yes"}, "ordered must be True or False"),
        ({"linger": 1}, "linger is for batches of rows"),
        ({"batch": 2, "linger": -1}, "linger"),
        ({"on_timeout": answer}, "on_timeout needs a timeout"),
        ({"timeout": 1, "on_timeout": 3}, "on_timeout"),
        ({"batch_format": "pandas"}, "batch_format must be 'rows' or 'arrow'"),
        ({"capactiy": 3}, "has no argument 'capactiy'; did you mean 'capacity'"),
    ],
)
def test_wrong_setting_names_the_users_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=rf"test_refusals.py:\d+.*{said}"):
        stream().map_async(answer, id="calls", **settings)


def test_id_is_needed() -> None:
    with pytest.raises(GraphError, match=r"map_async.*id"):
        stream().map_async(answer)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            declared_plain,
            r"declared_plain \(.*test_refusals.py:\d+\) is not a coroutine function: declare it",
        ),
        (yields, r"yields \(.*\) yields: let it return one result"),
        (7, "function"),
    ],
)
def test_function_that_is_no_coroutine_function_is_refused(function: Any, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        stream().map_async(function, id="calls")


def test_function_that_returns_nothing_to_await_is_named_with_its_result() -> None:
    build = lambda rows: rows.map_async(lambda row: row + 1, id="calls")  # noqa: E731
    with (
        OperatorHarness.of(build) as harness,
        pytest.raises(OperatorError, match="it returned 2 of type int, which can't be awaited: declare the"),
    ):
        harness.push([1])


def test_answer_that_must_still_be_awaited_is_named() -> None:
    async def forgets(row: int) -> Any:
        return answer(row)

    with (
        OperatorHarness.of(lambda rows: rows.map_async(forgets, id="calls")) as harness,
        pytest.raises(OperatorError, match=r"it returned a coroutine: await it, as in `return await \.\.\.`"),
    ):
        harness.push([1])


class Declares:
    seen = OperatorListState(int)

    async def __call__(self, row: int) -> int:
        return row


class Requests:
    async def open(self, context: FunctionContext) -> None:
        self.seen = context.operator_list_state("seen")

    async def __call__(self, row: int) -> int:
        return row


@pytest.mark.parametrize("function", [Declares, Requests])
def test_state_is_refused_because_a_call_may_run_again(function: Any) -> None:
    with pytest.raises(OperatorError, match="has no state: its calls run concurrently"):  # noqa: SIM117
        with OperatorHarness.of(lambda rows: rows.map_async(function, id="calls")) as harness:
            harness.push([1])


class Emits:
    late = OutputTag[int]()

    def open(self, context: FunctionContext) -> None:
        self.context = context

    async def __call__(self, row: int) -> int:
        self.context.output(self.late, row)
        return row


class EmitsAtOnce(Emits):
    def __call__(self, row: int) -> int:  # type: ignore[override]
        self.context.output(self.late, row)
        return row


@pytest.mark.parametrize(("method", "function"), [("map_async", Emits), ("map", EmitsAtOnce)])
def test_record_of_a_side_output_is_refused_and_not_lost(method: str, function: Any) -> None:
    with (
        OperatorHarness.of(lambda rows: getattr(rows, method)(function, id="calls")) as harness,
        pytest.raises(OperatorError, match=f"{method} has no side outputs: emit 'late' from a function of"),
    ):
        harness.push([1])


def test_async_call_outside_of_a_call_says_where_it_belongs() -> None:
    with pytest.raises(PenstockError, match=r"async_call\(\) is for functions of map_async"):
        async_call()


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"on": (int,)}, "exception classes"), ({"on": ()}, "exception classes"), ({"delay": -1}, "delay")],
)
def test_wrong_retry_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Retry(**settings)
