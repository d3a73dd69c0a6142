"""The fixed cost of a slice and the cost of a row are kept apart, and small slices are not paid for twice."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from penstock.runtime.task.work_in_progress import SliceCosts, SliceSizer

TARGET = 0.01


def settled(seconds_of: Callable[[int], float], *, offered: int = 1 << 18, slices: int = 400) -> list[int]:
    """The sizes of the last slices, if a slice takes so long and so many rows are offered at a time."""
    sizer = SliceSizer(target=TARGET)
    sizes = []
    for _ in range(slices):
        rows = min(sizer.rows, offered)
        sizes.append(rows)
        sizer.observe(rows, seconds_of(rows))
    return sizes[slices // 2 :]


def test_costs_are_found_of_slices_of_different_sizes() -> None:
    costs = SliceCosts()
    for rows in (10, 50, 200, 1000) * 4:
        costs.observe(rows, 0.02 + rows * 1e-4)
    assert (costs.fixed, costs.per_row) == pytest.approx((0.02, 1e-4))


def test_slices_of_one_size_tell_of_no_fixed_cost() -> None:
    costs = SliceCosts()
    for number in range(20):
        costs.observe(100, 0.01 + number % 2 * 0.001)
    assert costs.fixed == 0
    assert costs.per_row == pytest.approx(1.05e-4, rel=0.02)


def test_a_time_that_falls_with_the_size_is_put_down_to_the_fixed_cost_and_not_to_a_negative_one() -> None:
    costs = SliceCosts()
    for rows in (10, 1000) * 8:
        costs.observe(rows, 0.02 if rows == 10 else 0.01)
    assert costs.fixed > 0
    assert costs.per_row > 0


def test_an_old_slice_counts_less_than_a_new_one() -> None:
    costs = SliceCosts()
    for each in (1e-3, 1e-5):
        for rows in (10, 50, 200, 1000) * 40:
            costs.observe(rows, rows * each)
    assert costs.per_row == pytest.approx(1e-5, rel=0.01)


@pytest.mark.parametrize("fixed", [0.004, 0.009, 0.02])
def test_the_fixed_cost_is_about_a_fifth_of_a_slice_and_not_all_of_it(fixed: float) -> None:
    """By the share of the last slice alone the sizes would go down to one row where the cost is 9 ms."""
    each = 1e-6
    sizes = settled(lambda rows: fixed + rows * each)
    assert min(sizes) * each > 2 * fixed
    assert max(sizes) * each < 8 * fixed


@pytest.mark.parametrize("seed", range(5))
def test_a_processor_that_is_taken_away_now_and_then_makes_no_slices_of_a_few_rows(seed: int) -> None:
    draws = Random(seed)
    sizes = settled(lambda rows: 0.002 + rows * 8e-8 + draws.choice([0.0, 0.003, 0.006, 0.02]))
    assert sorted(sizes)[len(sizes) // 10] > 50_000


@pytest.mark.parametrize("seed", range(5))
def test_slow_rows_without_a_fixed_cost_stay_within_a_few_slices_time(seed: int) -> None:
    draws = Random(seed)
    sizes = settled(lambda rows: sum(draws.uniform(0.0005, 0.0015) for _ in range(rows)))
    assert sorted(sizes)[len(sizes) // 2] <= 12
    assert max(sizes) <= 40


def test_rows_that_take_longer_than_a_slice_are_taken_one_by_one() -> None:
    assert set(settled(lambda rows: rows * 0.05)) == {1}
