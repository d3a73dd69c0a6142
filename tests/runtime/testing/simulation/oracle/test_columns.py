"""The oracle's findings about the part of a job that moves Arrow batches."""

from __future__ import annotations

from dataclasses import replace

from simulated_jobs.columns import SINK, ColumnShape, column_problems
from simulated_jobs.records import ExternalSystem

#: One split with the values 0 to 3, all of one key.
SHAPE = ColumnShape(counts=(4,), chunk=2, pause=0.0, parallelism=(1, 1), keys=1)


def written(*rows: tuple[object, int, int, int]) -> ExternalSystem:
    """A system in which these rows were committed: key, start of the window, number, sum."""
    system = ExternalSystem()
    for number, row in enumerate(rows):
        transaction = (SINK, 0, "job", 1, number)
        system.stage(transaction, [(row, ())])  # type: ignore[list-item]
        system.commit(transaction)
    return system


def problems(
    *rows: tuple[object, int, int, int], shape: ColumnShape = SHAPE, complete: bool = True, once: bool = True
) -> list[str]:
    return column_problems(shape, written(*rows), complete=complete, exactly_once=once, whole_windows=once)


def test_the_last_row_of_a_key_has_all_its_records() -> None:
    assert problems((0, 0, 2, 1), (0, 0, 4, 6)) == []
    assert problems((0, 0, 2, 1)) == ["sums-sink, (0, 0): it ends with (2, 1) instead of (4, 6)"]
    assert problems((0, 0, 2, 1), complete=False) == []


def test_a_row_that_comes_twice_was_committed_twice() -> None:
    (problem,) = problems((0, 0, 2, 1), (0, 0, 2, 1), (0, 0, 4, 6))
    assert problem.startswith("sums-sink, (0, 0): rows that count twice")
    assert problems((0, 0, 2, 1), (0, 0, 2, 1), (0, 0, 4, 6), once=False) == []


def test_more_records_than_there_are_count_twice() -> None:
    assert len(problems((0, 0, 5, 9), complete=False)) == 1


def test_a_key_that_nobody_sent() -> None:
    assert problems((7, 0, 1, 0), (0, 0, 4, 6)) == ["sums-sink has written (7, 0), which nobody sent"]


def test_each_window_comes_out_once_and_whole() -> None:
    shape = replace(SHAPE, length=2)
    assert problems((0, 0, 2, 1), (0, 2000, 2, 5), shape=shape) == []
    assert len(problems((0, 0, 2, 1), (0, 2000, 1, 2), shape=shape)) == 1


def test_records_that_are_filtered_out_are_not_expected() -> None:
    assert problems((0, 0, 2, 5), shape=replace(SHAPE, least=2)) == []
