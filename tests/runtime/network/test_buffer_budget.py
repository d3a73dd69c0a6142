"""The row limit that follows a budget of bytes."""

from __future__ import annotations

import pytest

from penstock.runtime.network.buffer_budget import BufferBudget
from penstock.runtime.record.elements import Buffer


@pytest.mark.parametrize(
    ("size", "rows", "expected"),
    [
        (100, 100, 1000),  # a byte a row: as many as fit
        (1, 1000, 1000),  # less than a byte a row counts as a byte
        (2000, 20, 10),
        (100_000, 1, 1),  # one row is larger than the budget: still one row
        (0, 7, 1000),
    ],
)
def test_rows_are_as_many_as_fit_by_the_weight_of_the_last_buffer(
    size: int, rows: int, expected: int
) -> None:
    budget = BufferBudget(max_rows=4096, max_bytes=1000)
    budget.observe(Buffer(b"x" * size, rows))
    assert budget.rows == expected


def test_empty_buffer_teaches_nothing() -> None:
    budget = BufferBudget(max_rows=8, max_bytes=10)
    budget.observe(Buffer(b"x" * 100, 0))
    assert budget.rows == 8


def test_limit_grows_again_when_rows_get_lighter() -> None:
    budget = BufferBudget(max_rows=100, max_bytes=1000)
    budget.observe(Buffer(b"x" * 1000, 1))
    budget.observe(Buffer(b"x" * 10, 1))
    assert budget.rows == 100
