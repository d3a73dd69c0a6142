"""The row limit that follows a budget of bytes."""

from __future__ import annotations

import pytest
from sending_channel import Channel

from penstock.runtime.network.send_queue import BufferBudget
from penstock.runtime.record.elements import Buffer, RowBatch


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


def largest_buffer(rows: list[bytes]) -> int:
    """Bytes of rows in the largest buffer that a new channel makes of them."""
    channel = Channel(credits=100, rows=4096, size=256 * 1024)
    channel.sending.add_rows(rows, None)
    channel.sending.flush()
    assert channel.rows == rows
    return max(sum(map(len, batch.rows)) for batch in channel.sent if isinstance(batch, RowBatch))


def test_the_first_buffer_of_a_channel_is_limited_by_bytes_too() -> None:
    assert largest_buffer([b"x" * 100_000 for _ in range(50)]) <= 256 * 1024


def test_rows_of_different_weight_are_weighed_as_a_mixture() -> None:
    assert largest_buffer([b"x" * (100_000 if number % 3 else 1) for number in range(60)]) <= 2 * 256 * 1024


def test_the_first_buffer_of_light_rows_is_as_long_as_any() -> None:
    channel = Channel(credits=100, rows=4096, size=256 * 1024)
    channel.sending.add_rows(list(range(8192)), None)
    assert [len(batch.rows) for batch in channel.sent if isinstance(batch, RowBatch)] == [4096, 4096]
