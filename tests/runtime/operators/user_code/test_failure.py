from __future__ import annotations

import asyncio
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.errors import ConfigurationError, OperatorError, OperatorLocation, PenstockError
from penstock.runtime.execution.failure_causes import as_failure, cause_of, describe_failure
from penstock.runtime.operators.functions.keyed_folds import KeyedReduceOperator
from penstock.runtime.operators.functions.record_functions import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.user_code.failure import (
    close_after,
    failure_details,
    operator_error,
    short_repr,
)
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.user_location import function_location


def parse(text):
    return inner(text)


def inner(text):
    return json.loads(text)["n"]


def failure_of(open_chain, *operators, rows, timestamps=None):
    running = open_chain(*operators)
    with pytest.raises(OperatorError) as raised:
        list(running.chain.process(RowBatch(rows, timestamps)))
    return raised.value


def test_the_message_names_operator_subtask_lines_error_and_record(open_chain):
    error = failure_of(open_chain, MapOperator(parse), rows=['{"n": 1}', "{bad", '{"n": 2}'])
    location = function_location(parse)
    line = inner.__code__.co_firstlineno + 1
    file = location.removeprefix("parse (").partition(":")[0]
    assert str(error) == (
        f"operator 'op0' (subtask 1 of 2), defined at job.py:10 in main: map function {location} failed: "
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1), "
        f"at {file}:{line} in inner, on record '{{bad'"
    )


def test_the_traceback_begins_in_the_users_code_and_survives_a_pickle(open_chain):
    error = pickle.loads(pickle.dumps(failure_of(open_chain, MapOperator(parse), rows=["{bad"])))
    assert "in parse" in error.cause_text
    assert "decoder.py" in error.cause_text
    assert "chain.py" not in error.cause_text
    assert "operators/functions/record_functions.py" not in error.cause_text


def of_arrow(value):
    return pa.array([value], pa.int64())  # raises in Cython's code, whose path is that of its source


def of_numpy(value):
    return np.random.default_rng(0).integers(5, 1)


@pytest.mark.parametrize("function", [of_arrow, of_numpy])
def test_the_line_is_the_users_and_never_one_of_a_compiled_library(open_chain, function):
    text = str(failure_of(open_chain, MapOperator(function), rows=["x"]))
    file = function_location(function).partition("(")[2].partition(":")[0]
    assert f"at {file}:{function.__code__.co_firstlineno + 1} in {function.__name__}, on record" in text


@pytest.mark.parametrize("timestamps", [None, [10, 20, 30]])
def test_every_operator_shows_the_record_that_failed_and_calls_the_function_once(open_chain, timestamps):
    calls = []

    def fail_on_zero(n, *_):
        calls.append(n)
        return [1 // n]

    def reduce_fails(a, b):
        calls.append(b)
        return 1 // b

    for operator, expected in [
        (MapOperator(fail_on_zero), [2, 0]),
        (FilterOperator(fail_on_zero), [2, 0]),
        (FlatMapOperator(fail_on_zero), [2, 0]),
        (KeyedReduceOperator(lambda n: "key", reduce_fails), [0]),
        (KeyedReduceOperator(fail_on_zero, max), [2, 0]),
    ]:
        calls.clear()
        error = failure_of(open_chain, operator, rows=(2, 0, 5), timestamps=timestamps)
        assert error.what.endswith("on record 0"), error.what
        assert calls == expected


def test_a_failing_key_selector_is_named_as_such(open_chain):
    def by_name(row):
        return row["name"]

    error = failure_of(open_chain, KeyedReduceOperator(by_name, max), rows=[{"id": 1}])
    assert "key_by function by_name" in error.what
    assert "KeyError: 'name'" in error.what


@pytest.mark.parametrize(("cause", "has_traceback"), [(None, False), (OSError("disk full"), True)])
def test_an_error_of_penstock_has_a_traceback_only_for_its_cause(cause, has_traceback):
    error = PenstockError("refused")
    error.__cause__ = cause
    failure = operator_error(OperatorLocation("op0"), "poll", error)
    assert failure.what == "poll failed: refused"
    assert ("disk full" in failure_details(failure)) is has_traceback
    assert (failure_details(failure) == "") is not has_traceback


def test_a_stop_iteration_of_the_users_loses_no_records(open_chain):
    for operator in [MapOperator(lambda row: next(iter(()))), FlatMapOperator(lambda row: [next(iter(()))])]:
        error = failure_of(open_chain, operator, rows=[1, 2])
        assert "StopIteration" in error.what


def test_sys_exit_in_a_function_is_an_error_and_not_the_end_of_the_thread(open_chain):
    error = failure_of(open_chain, MapOperator(lambda row: sys.exit(3)), rows=[1])
    assert "it called sys.exit(3), which does not end the job" in error.what


def test_a_keyboard_interrupt_ends_a_program_and_is_a_failure_of_its_operator_in_a_job(open_chain):
    def interrupted(_row):
        raise KeyboardInterrupt

    running = open_chain(MapOperator(interrupted))
    with pytest.raises(KeyboardInterrupt) as raised:
        list(running.chain.process(RowBatch([1])))

    for failure in (describe_failure(raised.value).cause(SubtaskId("op0", 0)), cause_of(raised.value)):
        assert failure.operator == "op0"
        assert failure.raised_at.line == interrupted.__code__.co_firstlineno + 1
        assert "KeyboardInterrupt, which does not end the job" in failure.message
        assert "on record 1" in failure.message
        assert "in interrupted" in failure.traceback


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, ValueError])
def test_no_error_ends_the_event_loop_that_it_is_handed_to(kind):
    async def wait():
        ended = asyncio.get_running_loop().create_future()
        ended.set_exception(as_failure(kind("x")))
        await ended

    # In a thread of its own: tests with a browser leave an event loop that runs in this one.
    with ThreadPoolExecutor(1) as pool, pytest.raises((PenstockError, ValueError), match="x"):
        pool.submit(asyncio.run, wait()).result()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError])
def test_all_is_closed_whatever_one_of_them_raises(kind):
    def fails():
        raise kind

    closed = []
    error = close_after(None, fails)
    assert isinstance(error, kind)
    assert close_after(error, lambda: closed.append(1)) is error
    assert close_after(error, fails) is error
    assert error.__notes__ == [f"Also while closing: {kind.__name__}"]
    assert closed == [1]


def test_a_record_whose_repr_raises_anything_or_acts_is_shown_all_the_same():
    class Rude:
        def __init__(self, answer):
            self.answer = answer

        def __repr__(self):
            if isinstance(self.answer, str):
                return self.answer
            raise self.answer

    for raised in (KeyboardInterrupt(), SystemExit(), GeneratorExit()):
        assert short_repr(Rude(raised)) == f"<Rude whose repr raised {type(raised).__name__}>"
    for text in ("\x1b[31m\ud800" * 1_000, "x" * 50_000_000, "\ud800"):
        shown = short_repr(Rude(text))
        assert len(shown) <= 200
        assert shown.isprintable()


def test_records_are_shown_in_at_most_200_characters():
    class Rude:
        def __repr__(self):
            msg = "no"
            raise ValueError(msg)

    for value in ["x" * 10_000, list(range(10_000)), dict.fromkeys(range(500), "y" * 500), Rude(), 10**5000]:
        assert 0 < len(short_repr(value)) <= 200


def test_an_error_that_is_already_located_stays_as_it_is():
    located = OperatorError(OperatorLocation("inner"), "what")
    assert operator_error(OperatorLocation("outer"), "doing", located) is located


async def a_coroutine(row):
    return row


def a_generator(row):
    yield row


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (MapOperator(a_coroutine), "map calls a_coroutine .*, which is declared `async def`"),
        (FlatMapOperator(a_coroutine), "flat_map calls a_coroutine .*, which is declared `async def`"),
        (MapOperator(a_generator), "map calls a_generator .*, which yields: use flat_map"),
        (FilterOperator("no"), "filter needs a function, not str"),  # type: ignore[arg-type]
        (KeyedReduceOperator(a_generator, max), "key_by calls a_generator"),
    ],
)
def test_functions_that_can_not_work_are_refused_when_the_operator_opens(make_context, operator, message):
    with pytest.raises(ConfigurationError, match=message):
        operator.open(make_context(0, operator))
