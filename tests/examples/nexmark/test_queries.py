"""Every query of Nexmark gives what DuckDB computes over the same events, whatever happens to the job.

A run draws its seed anew each time. A failure names it, with the command that shows the same run again.
"""

from __future__ import annotations

import secrets

import nexmark_columns as columns
import nexmark_patterns as patterns
import nexmark_rows as rows
import pytest
from batch_results import SQL, results
from pipelines.harness.scenario import Course, Scenario, backends_of, every
from pipelines.harness.simulated import run
from query_pipelines import COUNT, NAMES, final_rows, load

pytestmark = pytest.mark.timeout(900)

#: Only these queries have no version over columns; README.md of the example says why.
WITHOUT_COLUMNS = {"q6", "q12"}


@pytest.mark.parametrize(
    "name",
    [
        # The version over columns stands for both in each run.
        pytest.param(name, marks=pytest.mark.long if name.replace("-rows", "-arrow") in NAMES else ())
        if name.endswith("-rows")
        else name
        for name in NAMES
    ],
)
def test_query_gives_what_a_batch_gives(name: str) -> None:
    run(load(name), Scenario(Course.PLAIN, "aligned", "heap", secrets.randbits(32)))


@pytest.mark.simulation
@pytest.mark.parametrize("number", range(12))
def test_queries_drawn_by_chance_give_what_a_batch_gives_after_kills_and_at_another_parallelism(
    number: int,
) -> None:
    pipeline = load(secrets.choice(NAMES))
    course = (Course.FAILURES, Course.RESCALED)[number % 2]
    mode = secrets.choice(["aligned", "unaligned"])
    run(pipeline, Scenario(course, mode, secrets.choice(backends_of(pipeline)), secrets.randbits(32)))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_query_gives_what_a_batch_gives_in_every_mode_and_course(name: str) -> None:
    pipeline = load(name)
    for scenario in every(pipeline, secrets.randbits(32)):
        run(pipeline, scenario)


def test_every_query_is_checked_and_has_results_for_small_inputs() -> None:
    assert set(SQL) == set(rows.QUERIES) | set(patterns.QUERIES)
    assert set(rows.QUERIES) == set(columns.QUERIES) | WITHOUT_COLUMNS
    few = {query: len(results(query, load("q0-rows").make_input(7), COUNT)) for query in SQL}
    assert {query for query, count in few.items() if count < 2} <= {"q15"}


def test_receiver_of_changes_has_what_was_inserted_and_not_deleted() -> None:
    changes = [{"auction": 1, "change": kind} for kind in ("insert", "delete", "insert")]
    assert final_rows("q19", [*changes, {"auction": 2, "change": "insert"}]) == [
        {"auction": 1, "change": "insert"},
        {"auction": 2, "change": "insert"},
    ]
