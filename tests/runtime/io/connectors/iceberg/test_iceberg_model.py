"""Jobs that die at drawn moments beside other writers add each record once; a model says what must be there.

The model is the input of the job and the rows of the other writers. A commit may fail before or after it took
effect. A process that was declared dead may still commit. Other programs append, rewrite all files and expire
snapshots. After that a job may fail with a `LostOutputError`, but it never guesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deep import DEEP
from iceberg_jobs import SCHEMA, TableWorld, numbers

from penstock.runtime.errors import LostOutputError, OperatorError
from penstock.runtime.testing.connectors.sink_job import SinkCheckpoint, SinkJob

COUNT, STEPS = 24, 14


class Walk:
    """A job, the processes that were declared dead, and the other writers of its table."""

    most_subtasks = 3

    def __init__(self, folder: Path, draws: Random, **settings: Any) -> None:
        self.draws = draws
        self.world = TableWorld(folder, self.schema(), **settings)
        self.records = self.input()
        self.job = self.world.job(self.records, parallelism=min(2, self.most_subtasks)).start()
        self.zombies: list[tuple[SinkJob, SinkCheckpoint]] = []
        self.others: Counter[int] = Counter()

    def schema(self) -> pa.Schema:
        return SCHEMA

    def input(self) -> list[Any]:
        return numbers(COUNT)

    def step(self) -> None:
        steps = [self.write] * 3 + [self.checkpoint] * 4 + [self.die, self.append, self.rewrite, self.expire]
        self.draws.choice(steps)()

    def write(self) -> None:
        self.job.write(self.draws.randint(1, 3))

    def checkpoint(self) -> None:
        point = self.job.snapshot()
        match self.draws.choice(["abort", "commit", "lost notice", "error", "lost answer", "zombie"]):
            case "abort":
                self.job.abort(point)
            case "commit":
                self.job.complete(point)
            case "lost notice":
                self.job.decide(point)
            case "zombie":
                self.job.decide(point)
                self.zombies.append((self.job.fork(), point))
                self.restart()
            case fault:
                self.job.decide(point)
                committer = self.job.writers()[-1]
                append = committer._append

                def fail(*arguments: Any) -> None:
                    if fault == "lost answer":
                        append(*arguments)
                    raise ZeroDivisionError

                committer._append = fail
                try:
                    self.job.notify(point)
                except OperatorError:
                    self.die()
                else:
                    committer._append = append  # nothing was written since the last commit

    def die(self) -> None:
        self.job.kill()
        self.restart()

    def restart(self) -> None:
        if self.draws.random() < 0.5:
            self.awake()
        self.job.start(parallelism=self.draws.randint(1, self.most_subtasks))
        self.awake()

    def awake(self) -> None:
        """Let a process that was declared dead commit its checkpoint, or fail."""
        if self.zombies:
            zombie, point = self.zombies.pop(self.draws.randrange(len(self.zombies)))
            try:
                zombie.notify(point)
            except OperatorError as error:
                if not isinstance(error.__cause__, LostOutputError):
                    raise

    def append(self) -> None:
        number = 1_000 + sum(self.others.values())
        self.world.append([{"number": number}])
        self.others[number] += 1

    def rewrite(self) -> None:
        table = self.world.table
        rows = table.scan().to_arrow()
        if rows.num_rows:
            table.overwrite(rows)

    def expire(self) -> None:
        table = self.world.table
        kept = {ref.snapshot_id for ref in table.refs().values()}
        old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in kept]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def rows(self) -> Counter[int]:
        return Counter(row["number"] for row in self.world.rows())


@pytest.mark.parametrize("settings", [{}, {"compact_below": 1_000_000, "compact_at": 2}])
@pytest.mark.parametrize("seed", range(4 * DEEP))
def test_each_record_is_there_once_whatever_dies_and_whoever_writes(
    folder: Path, seed: int, settings: dict[str, Any]
) -> None:
    walk = Walk(folder, Random(seed), **settings)
    expected = Counter(range(COUNT))
    try:
        for _ in range(STEPS):
            walk.step()
            assert walk.rows() - walk.others <= expected, "no record is there twice"
        walk.job.finish()
        while walk.zombies:
            walk.awake()
    except OperatorError as error:
        if not isinstance(error.__cause__, LostOutputError):
            raise
        assert walk.rows() - walk.others <= expected
    else:
        assert walk.rows() == expected + walk.others


class MergingWalk(Walk):
    """Changes of a few keys; rows of one key come from one subtask."""

    most_subtasks = 1

    def schema(self) -> pa.Schema:
        return pa.schema({"number": pa.int64(), "value": pa.int64()})

    def input(self) -> list[Any]:
        kinds = ("insert", "update_postimage", "update_preimage", "delete")
        return [
            {"number": self.draws.randrange(6), "value": value, "change": self.draws.choice(kinds)}
            for value in range(COUNT)
        ]

    def append(self) -> None:
        number = 1_000 + sum(self.others.values())
        self.world.append([{"number": number, "value": 0}], self.schema())
        self.others[number] += 1

    def values(self) -> dict[int, int]:
        """The table without the rows of others, which must all be there."""
        rows = self.world.rows()
        found = {row["number"]: row["value"] for row in rows}
        assert len(found) == len(rows), "no key is there twice"
        assert Counter(number for number in found if number >= 1_000) == self.others
        return {number: value for number, value in found.items() if number < 1_000}


def applied(changes: Sequence[Any]) -> dict[int, int]:
    """The table after some changes."""
    rows: dict[int, int] = {}
    for change in changes:
        if change["change"] in ("insert", "update_postimage"):
            rows[change["number"]] = change["value"]
        else:
            rows.pop(change["number"], None)
    return rows


@pytest.mark.parametrize("settings", [{}, {"compact_below": 1_000_000, "compact_at": 2}])
@pytest.mark.parametrize("seed", range(4 * DEEP))
def test_a_merged_table_is_that_of_a_prefix_of_the_changes_whatever_dies_and_whoever_writes(
    folder: Path, seed: int, settings: dict[str, Any]
) -> None:
    walk = MergingWalk(folder, Random(seed), key=["number"], change_kind="change", **settings)
    prefixes = [applied(walk.records[:count]) for count in range(COUNT + 1)]
    try:
        for _ in range(STEPS):
            walk.step()
            assert walk.values() in prefixes
        walk.job.finish()
        while walk.zombies:
            walk.awake()
    except OperatorError as error:
        if not isinstance(error.__cause__, LostOutputError):
            raise
        assert walk.values() in prefixes
    else:
        assert walk.values() == prefixes[-1]
