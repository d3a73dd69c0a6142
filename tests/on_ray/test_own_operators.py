"""Operators of users' own in jobs on Ray: flushed in front of barriers, every kind of state, kills."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jobs.driving import after_checkpoints, failure_of, finish, kill_subtask, submit, wait_until
from jobs.oracle import committed_rows, hidden_files
from jobs.own_operators import Model, own_count
from jobs.words import NEVER, environment, lines, paced_lines

from penstock import FileSink, FixedDelay, NoRestart
from penstock.cluster import RayJobHandle
from penstock.operators import Operator, OperatorContext, RowBatch
from penstock.state import write_state

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 3_000, 3_000.0


def words(count: int) -> Counter[str]:
    return Counter(word for line in lines(count) for word in line.split())


def committed(folder: Path) -> tuple[Counter[str], list[dict[str, Any]]]:
    """The numbers added to each word, and the subtasks' messages at their end.

    Each total must be the sum of what was added so far.
    """
    added: Counter[str] = Counter()
    totals: dict[str, list[tuple[int, int]]] = {}
    ends = []
    for row in committed_rows(folder):
        if "word" in row:
            added[row["word"]] += row["more"]
            totals.setdefault(row["word"], []).append((row["count"], row["more"]))
        else:
            ends.append(row)
    for word, updates in totals.items():
        so_far = 0
        for count, more in sorted(updates):
            so_far += more
            assert count == so_far, f"{word}: {sorted(updates)}"
    return added, sorted(ends, key=lambda end: end["subtask"])


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 1), *(pytest.param(seed, 10, marks=pytest.mark.long) for seed in (2, 3))]
)
def test_local_counts_that_leave_in_front_of_barriers_are_exactly_once_when_processes_are_killed(
    tmp_path: Path, seed: int, kills: int, record_property: Callable[[str, object], None]
) -> None:
    """The first to die are both operators at a time."""
    draws = random.Random(seed)
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    restart = FixedDelay(attempts=10 * kills, delay=0.1)
    job = submit(own_count(tmp_path, source, parallelism=2, restart=restart))
    completed, victims = 0, ["local", "totals"]
    for attempt in range(1, kills + 1):
        before = after_checkpoints(job, completed + 2)
        completed = before.statistics.completed_checkpoints
        for vertex in victims:
            kill_subtask(job, vertex, draws.randrange(2))
        wait_until(job, "a restart", lambda r, attempt=attempt: r.statistics.attempt > attempt)  # type: ignore[misc]
        victims = [draws.choice(["lines", "local", "totals"])]
    (tmp_path / "go").touch()

    result = finish(job)

    record_property("shown", f"{kills} kills, {result.statistics.restarts} restarts")
    added, ends = committed(tmp_path / "out")
    assert added == words(COUNT)
    assert hidden_files(tmp_path / "out") == []
    assert sum(end["pieces"] for end in ends) == words(COUNT).total(), "raw operator state"
    assert [end["groups"] for end in ends] == [64, 64], "raw keyed state was restored"
    assert kills <= result.statistics.restarts <= kills + 1, "two deaths at a time may be two failures"


@pytest.mark.long
def test_a_job_starts_from_written_union_and_broadcast_state(tmp_path: Path) -> None:
    """The two states and keyed state are written one after the other, and reach every subtask."""
    rules = pa.table({"value": ["first", "second"]})
    known = pa.table({"value": [1, 2, 3, 4, 5]})
    counts = pa.table({"key": ["the"], "value": [1_000]})
    one = write_state(rules, tmp_path / "1", "totals", "rules", kind="broadcast", parallelism=3)
    two = write_state(known, tmp_path / "2", "totals", "known", kind="union", base=one)
    start = write_state(counts, tmp_path / "3", "totals", "total", base=two)

    env = own_count(tmp_path, paced_lines(500, 1e9), parallelism=2)
    job = env.submit(restore_from=start)
    assert isinstance(job, RayJobHandle)
    finish(job)

    rows = committed_rows(tmp_path / "out")
    assert max(row["count"] for row in rows if row.get("word") == "the") == 1_000 + 500
    ends = [row for row in rows if "subtask" in row]
    assert sorted(end["subtask"] for end in ends) == [0, 1]
    assert [end["rules"] for end in ends] == [["first", "second"]] * 2
    assert [end["known"] for end in ends] == [[1, 2, 3, 4, 5]] * 2


def test_every_kind_of_state_of_an_unaligned_job_outlives_a_kill_and_a_rescale(tmp_path: Path) -> None:
    job = submit(own_count(tmp_path, paced_lines(COUNT, RATE, attempt=3), parallelism=2, unaligned=True))
    before = after_checkpoints(job, 2)
    kill_subtask(job, "totals", 1)
    after_checkpoints(job, before.statistics.completed_checkpoints + 2)
    job.rescale(totals=1)

    finish(job)

    added, ends = committed(tmp_path / "out")
    assert added == words(COUNT)
    assert [(end["subtask"], end["pieces"], end["groups"]) for end in ends] == [(0, added.total(), 128)]


class YieldsRows(Operator):
    """Emits a list, where a batch belongs, after some rows."""

    def open(self, context: OperatorContext) -> None:
        self.seen = 0

    def process(self, batch: RowBatch) -> Any:
        yield batch
        self.seen += len(batch)
        if self.seen > COUNT // 2:
            yield list(batch.rows)


@pytest.mark.long
def test_what_is_no_batch_fails_the_job_with_the_operators_line_and_loses_nothing_committed(
    tmp_path: Path,
) -> None:
    env = environment(tmp_path, restart=NoRestart())
    stream = env.from_source("lines", paced_lines(COUNT, RATE)).transform("own", YieldsRows())
    stream.map(lambda line: {"line": line}).sink("out", FileSink.json(tmp_path / "out"))

    message = failure_of(submit(env))

    assert "operator 'own'" in message
    assert re.search(r"YieldsRows.process \(.*test_own_operators.py:\d+\)", message)
    assert "which is not a batch: yield RowBatch or ArrowBatch" in message
    rows = [row["line"] for row in committed_rows(tmp_path / "out")]
    assert rows == lines(len(rows)), "what was committed is there once"


def test_a_model_is_made_and_closed_once_in_each_subtask_with_a_cpu_of_its_own(tmp_path: Path) -> None:
    env = environment(tmp_path)
    numbers = env.from_collection("numbers", range(200)).rebalance()
    settings: dict[str, Any] = {
        "fn_constructor_args": (tmp_path,),
        "fn_constructor_kwargs": {"weight": 3},
        "num_cpus": 1,
        "parallelism": 2,
    }
    scored = numbers.map_batches(Model, id="model", **settings)
    scored.sink("out", FileSink.json(tmp_path / "out"))

    finish(submit(env))

    rows = committed_rows(tmp_path / "out")
    assert sorted(row["scored"] for row in rows) == list(range(0, 600, 3))
    made = (tmp_path / "made").read_text().split()
    assert len(made) == len(set(made)) == 2, "one object a subtask"
    assert str(os.getpid()) not in made, "none in the client"
    assert {str(row["process"]) for row in rows} <= set(made)
    assert sorted((tmp_path / "closed").read_text().split()) == sorted(made)
