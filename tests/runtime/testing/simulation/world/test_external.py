"""A model of the outside, of a page, under the simulation: faults of its calls, and faults of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Checkpointing, ConfigurationError, StreamEnvironment
from penstock.connectors import CommitPermit, SinkContext
from penstock.operators import Batch
from penstock.testing import ExternalWorld, SimulationFailedError, simulate

COUNT = 12


class Database(ExternalWorld):
    """A database with transactions by name, as a server would hold them."""

    faults = ("database_restarts",)

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.staged: dict[str, list[Any]] = {}

    def stage(self, name: str, rows: Sequence[Any]) -> None:
        self._call(lambda: self.staged.update({name: list(rows)}))

    def commit(self, name: str) -> None:
        self._call(lambda: self.rows.extend(self.staged.pop(name, ())))

    def append(self, rows: Sequence[Any]) -> None:
        self._call(lambda: self.rows.extend(rows))

    def _call(self, effect: Any) -> None:
        self.run.call(effect, timeout=2.0)

    def strike(self, fault: str) -> None:
        self.run.struck(fault)
        self.run.go_away(0.2)


@dataclass
class DatabaseSink:
    database: Database
    is_exact: bool = True

    def writer(self, context: SinkContext) -> DatabaseWriter:
        return DatabaseWriter(self, f"{context.attempt}-{context.subtask}")


class DatabaseWriter:
    def __init__(self, sink: DatabaseSink, name: str) -> None:
        self.sink, self.name, self.number = sink, name, 0
        self.buffered: list[Any] = []

    def write(self, batch: Batch) -> None:
        self.buffered += batch.rows

    def prepare_commit(self) -> Sequence[Any]:
        self.number += 1
        name = f"{self.name}-{self.number}"
        rows, self.buffered = self.buffered, []
        if self.sink.is_exact:
            self.sink.database.stage(name, rows)
        return [name] if self.sink.is_exact else [rows]

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        for committable in committables:
            if self.sink.is_exact:
                self.sink.database.commit(committable)
            else:
                self.sink.database.append(committable)

    def close(self) -> None: ...


def build(database: Database, *, is_exact: bool = True) -> StreamEnvironment:
    env = StreamEnvironment("mine", parallelism=2, checkpointing=Checkpointing(every=60))
    numbers = env.from_collection("numbers", range(COUNT))
    numbers.map(lambda n: n * n).sink("out", DatabaseSink(database, is_exact))
    return env


def rows(database: Database) -> list[Any]:
    return database.rows


def test_calls_are_refused_slow_and_hang_and_their_answers_are_lost() -> None:
    report = simulate(build, world=Database(), output=rows, seeds=range(24))
    happened = set(report.failures)
    assert {"call slow", "call refused", "call done, answer lost"} <= happened
    assert {"call hangs, done", "call hangs, never done"} & happened


def test_a_fault_of_the_world_is_asked_for_by_its_name() -> None:
    report = simulate(build, world=Database(), output=rows, faults=["database_restarts"], seeds=range(6))
    assert report.failures["database_restarts"] > 0


def test_a_commit_that_is_repeated_after_a_lost_answer_is_found() -> None:
    with pytest.raises(SimulationFailedError, match="unexpected") as failed:
        simulate(
            lambda database: build(database, is_exact=False), world=Database(), output=rows, seeds=range(60)
        )
    assert failed.value.report.failed is not None
    assert failed.value.report.failed.is_repeatable


def test_the_given_world_stays_as_it_was() -> None:
    database = Database()
    simulate(build, world=database, output=rows, seeds=range(2))
    assert database.rows == []


def test_an_unknown_fault_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="database_restarts"):
        simulate(build, world=Database(), output=rows, faults=["database_restart"], seeds=range(1))
