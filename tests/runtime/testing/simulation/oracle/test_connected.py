"""The oracle's findings about the part of a job with an operator of two inputs."""

from __future__ import annotations

from typing import Any

from simulated_jobs.connected import SINK, ConnectedKind, ConnectedShape, connected_problems
from simulated_jobs.records import ExternalSystem

LEFT, RIGHT = [(-2, 0, 0), (-2, 0, 1)], [(-3, 0, 0)]
COUNTED = [("counted", LEFT[0], 0, 1, 0), ("counted", RIGHT[0], 0, 1, 1), ("counted", LEFT[1], 0, 2, 1)]
RULED = [("data", LEFT[0], 0, 1), ("data", LEFT[1], 0, 2), *(("rule", RIGHT[0], n, 1) for n in (0, 1))]
JOINED = [("pair", LEFT[0], RIGHT[0])]


def problems(
    kind: ConnectedKind, rows: list[Any], *, complete: bool = True, once: bool = True, whole: bool = True
) -> list[str]:
    """Two records of one key on the left and one on the right, for two subtasks of the operator."""
    shape = ConnectedShape(kind, ((2,), (1,)), 1, 0.0, (1, 1, 2), keys=1, span=0)
    system = ExternalSystem()
    for number, row in enumerate(rows):
        transaction = (SINK, 0, "job", 1, number)
        system.stage(transaction, [(row, ())])
        system.commit(transaction)
    return connected_problems(shape, system, complete=complete, exactly_once=once, is_whole=whole)


def test_what_must_come_out_is_no_problem() -> None:
    assert problems(ConnectedKind.COUNTS, COUNTED) == []
    assert problems(ConnectedKind.RULES, RULED) == []
    assert problems(ConnectedKind.JOIN, JOINED) == []


def test_records_of_either_side_may_come_first() -> None:
    other = [("counted", RIGHT[0], 0, 0, 1), ("counted", LEFT[1], 0, 1, 1), ("counted", LEFT[0], 0, 2, 1)]
    assert problems(ConnectedKind.COUNTS, other) == []


def test_a_record_that_is_lost_is_a_problem_when_the_job_is_over() -> None:
    assert problems(ConnectedKind.COUNTS, COUNTED[:2]) == [f"{SINK} lost 1: [{LEFT[1]}]"]
    assert problems(ConnectedKind.COUNTS, COUNTED[:2], complete=False) == []
    assert problems(ConnectedKind.RULES, RULED[:3]) == [f"{SINK} lost 1: [{RIGHT[0]}]"]
    assert problems(ConnectedKind.JOIN, []) == [f"{SINK} lost 1: [{(LEFT[0], RIGHT[0])}]"]
    assert problems(ConnectedKind.JOIN, [], whole=False) == []


def test_a_record_that_comes_twice_is_a_problem_of_exactly_once() -> None:
    for kind, rows in (
        (ConnectedKind.COUNTS, COUNTED),
        (ConnectedKind.RULES, RULED),
        (ConnectedKind.JOIN, JOINED),
    ):
        (problem,) = problems(kind, [*rows, rows[-1]])
        assert problem.startswith(f"{SINK} has written twice")
        assert problems(kind, [*rows, rows[-1]], once=False) == []


def test_what_nobody_sent() -> None:
    (problem,) = problems(ConnectedKind.JOIN, [*JOINED, ("pair", LEFT[1], RIGHT[0])])
    assert problem.startswith(f"{SINK} has written what nobody sent")


def test_a_count_that_was_lost_or_counted_twice_is_a_problem() -> None:
    forgotten = [*COUNTED[:2], ("counted", LEFT[1], 0, 1, 1)]
    (problem,) = problems(ConnectedKind.COUNTS, forgotten)
    assert "instead of" in problem
    wrong_side = [*COUNTED[:2], ("counted", LEFT[1], 0, 1, 2)]
    assert len(problems(ConnectedKind.COUNTS, wrong_side)) == 1
    (problem,) = problems(ConnectedKind.RULES, [*RULED[:3], ("rule", RIGHT[0], 1, 2)])
    assert "rule of 1" in problem
