from __future__ import annotations

from itertools import count

import pytest

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.functions.record_functions import FlatMapOperator
from penstock.runtime.operators.user_code.result_collector import OUTPUT_SLICE
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.manual_time import ManualClock


def squares(n):
    for i in range(n):
        yield i * i


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([1, 2], [1, 2]),
        ((1, 2), [1, 2]),
        (None, []),
        ([], []),
        (range(3), [0, 1, 2]),
        ({7}, [7]),
        (squares(3), [0, 1, 4]),
        (iter("ab"), ["a", "b"]),
    ],
)
def test_every_record_of_any_iterable_is_emitted(result, expected):
    with OperatorHarness(FlatMapOperator(lambda row: result)) as harness:
        assert harness.push(["go"]) == expected


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("abc", r"it returned a str, did you mean \['abc'\]\?"),
        (b"abc", r"it returned a bytes, did you mean \[b'abc'\]\?"),
        ({"a": 1}, r"it returned a dict, did you mean \[\{'a': 1\}\]\?"),
        (5, r"it returned 5 of type int; return a list of records, or yield them"),
    ],
)
@pytest.mark.parametrize("timestamps", [None, [1, 2]])
def test_a_result_that_was_hardly_meant_so_is_an_error_on_its_record(result, message, timestamps):
    with (
        OperatorHarness(FlatMapOperator(lambda row: result if row == "bad" else [row])) as harness,
        pytest.raises(OperatorError, match=message + r".*on record 'bad'"),
    ):
        harness.push(["good", "bad"], timestamps)


@pytest.mark.parametrize("timestamps", [None, [5]])
def test_an_endless_generator_is_emitted_in_batches_as_it_comes(timestamps):
    with OperatorHarness(FlatMapOperator(lambda row: count(row))) as harness:
        rows = harness.push([100], timestamps, stop_after=10_000)
        assert rows == list(range(100, 100 + len(rows)))
        assert len(rows) < 10_000 + OUTPUT_SLICE
        assert max(map(len, harness.batches)) <= OUTPUT_SLICE


def test_a_result_that_is_larger_than_a_batch_is_cut():
    with OperatorHarness(FlatMapOperator(lambda n: list(range(n)))) as harness:
        rows = harness.push([3, 10_000, 3])
        assert rows == [0, 1, 2, *range(10_000), 0, 1, 2]
        assert [len(batch) for batch in harness.batches] == [4096, 4096, 1814]


def test_every_output_has_the_timestamp_of_its_input():
    results = {
        "list": [1, 2],
        "none": None,
        "generator": None,
        "empty": [],
        "long": range(5000),
        "last": (9,),
    }

    def function(row):
        return squares(3) if row == "generator" else results[row]

    names = list(results)
    with OperatorHarness(FlatMapOperator(function)) as harness:
        harness.push(names, range(len(names)))
        stamps = [stamp for batch in harness.batches for stamp in batch.timestamps]  # type: ignore[union-attr]
        assert stamps == [0] * 2 + [2] * 3 + [4] * 5000 + [5]
        assert all(len(batch.timestamps) == len(batch) for batch in harness.batches)  # type: ignore[union-attr]


def test_a_slow_generator_hands_its_rows_on_before_a_batch_is_full():
    clock = ManualClock()

    def slow(_row):
        for i in count():
            clock.advance(0.001)
            yield i

    with OperatorHarness(FlatMapOperator(slow), clock=clock) as harness:
        harness.push(["go"], stop_after=200)
        sizes = [len(batch) for batch in harness.batches]
    assert sizes[0] == 64
    assert 10 <= max(sizes[3:]) <= 16


def test_a_generator_that_fails_in_the_middle_shows_its_record():
    def fails(n):
        yield n
        yield 1 // n

    with (
        OperatorHarness(FlatMapOperator(fails)) as harness,
        pytest.raises(OperatorError, match=r"ZeroDivisionError.*in fails, on record 0"),
    ):
        harness.push([1, 0, 2])


def test_the_next_record_is_looked_at_when_the_result_before_is_used_up():
    order = []

    def function(row):
        order.append(f"call {row}")
        for i in range(2):
            order.append(f"{row}{i}")
            yield i

    with OperatorHarness(FlatMapOperator(function)) as harness:
        harness.push(["a", "b"])
    assert order == ["call a", "a0", "a1", "call b", "b0", "b1"]
