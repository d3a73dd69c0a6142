"""Batches that are decoded ahead: the same ones, in order, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.runtime.io.connectors.arrow_batches import ReadAhead


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": [number]})


def test_all_batches_come_in_order_and_then_the_end_stays() -> None:
    ahead = ReadAhead(iter([batch(number) for number in range(5)]))

    assert [found["n"][0].as_py() for found in ahead] == [0, 1, 2, 3, 4]
    assert next(ahead, None) is None
    ahead.close()


def test_an_error_comes_behind_the_batches_before_it() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        raise OSError("damaged")

    ahead = ReadAhead(broken())

    assert next(ahead)["n"].to_pylist() == [0]
    with pytest.raises(OSError, match="damaged"):
        next(ahead)
    ahead.close()


def test_one_batch_is_decoded_ahead_and_no_more() -> None:
    asked: list[int] = []
    second_is_there = threading.Event()

    def counted() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            asked.append(number)
            if number == 1:
                second_is_there.set()
            yield batch(number)

    ahead = ReadAhead(counted())
    next(ahead)
    assert second_is_there.wait(60)
    ahead.close()

    assert asked == [0, 1]


def test_close_waits_for_the_batch_that_is_being_decoded() -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> Iterator[pa.RecordBatch]:
        begun.set()
        may_end.wait(60)
        done.append("decoded")
        yield batch(0)

    ahead = ReadAhead(slow())
    assert begun.wait(60)
    threading.Timer(0.01, may_end.set).start()
    ahead.close()

    assert done == ["decoded"]
