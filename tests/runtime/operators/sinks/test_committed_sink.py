"""A sink with a committer: two operators, of which one commits for all writers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.connectors import CommitPermit, HasCommitter, SinkContext
from penstock.operators import Batch, RowBatch
from penstock.runtime.errors import OperatorError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.operators.committed_sink import CommitterOperator, StagingOperator
from penstock.runtime.operators.sinks import COMMITTABLES
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.restore import StateMismatchError, assign_states
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
)
from penstock.runtime.snapshot.metadata import encode_atoms
from penstock.testing import OperatorHarness


class Table:
    """A table in memory; each commit is a version."""

    only_reads = True

    def __init__(self) -> None:
        self.versions: list[list[Any]] = []
        self.closed: list[str] = []

    def writer(self, context: SinkContext) -> Writer:
        return Writer(self)

    def committer(self, context: SinkContext) -> Committer:
        return Committer(self)


class Writer:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: list[Any] = []

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        self._rows += batch.rows

    def prepare_commit(self) -> Sequence[Any]:
        rows, self._rows = self._rows, []
        return [tuple(rows)] if rows else ()

    def close(self) -> None:
        self._table.closed.append("writer")


class Committer(Writer):
    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        staged = [part for parts in committables for part in parts]
        self._table.versions.append([row for part in staged for row in part])

    def close(self) -> None:
        self._table.closed.append("committer")


@pytest.fixture
def table() -> Table:
    return Table()


def test_such_a_sink_is_recognised(table: Table) -> None:
    assert isinstance(table, HasCommitter)


def test_a_writer_sends_what_it_has_staged_before_the_barrier_and_at_the_end(table: Table) -> None:
    with OperatorHarness(StagingOperator(table)) as writer:
        writer.push([1, 2])
        assert writer.outputs == []
        writer.snapshot()
        assert writer.outputs == [(1, 2)]
        writer.push([3])
        writer.end_of_data()
        writer.snapshot()
        assert writer.outputs == [(1, 2), (3,)]
    assert table.closed == ["writer"]


def test_the_committer_makes_one_commit_of_all_writers_when_the_checkpoint_is_complete(table: Table) -> None:
    with OperatorHarness(CommitterOperator(table)) as committer:
        committer.push([(1, 2)])
        committer.push([(3,)])
        checkpoint = committer.snapshot()
        assert table.versions == []
        committer.complete_checkpoint(checkpoint)
    assert table.versions == [[1, 2, 3]]
    assert table.closed == ["committer"]


def test_a_restored_committer_commits_what_its_checkpoint_covers(table: Table) -> None:
    with OperatorHarness(CommitterOperator(table)) as committer:
        committer.push([(1, 2)])
        checkpoint = committer.snapshot()
    with OperatorHarness(CommitterOperator(table), restored=[checkpoint]):
        assert table.versions == [[1, 2]]


def test_the_committer_is_an_operator_that_never_has_two_subtasks(table: Table) -> None:
    env = StreamEnvironment("tables", parallelism=4)
    env.from_collection("rows", [1]).sink("out", table)
    vertices = {operator.id: vertex for vertex in env.build().vertices for operator in vertex.operators}
    assert vertices["out"].parallelism == 4
    assert (vertices["out-committer"].parallelism, vertices["out-committer"].max_parallelism) == (1, 1)


def test_the_operator_that_takes_the_records_counts_as_the_sink(table: Table) -> None:
    env = StreamEnvironment("tables")
    env.from_collection("rows", [1]).sink("out", table)
    specs = {spec.id: spec for vertex in env.build().vertices for spec in vertex.operators}
    assert [id for id, spec in specs.items() if spec.is_sink] == ["out"]
    assert [id for id, spec in specs.items() if spec.has_transactions] == ["out-committer"]


def test_transactions_of_a_sink_that_committed_by_itself_are_not_dropped_silently(table: Table) -> None:
    """The id now belongs to an operator that would keep them and never commit them."""
    env = StreamEnvironment("tables")
    env.from_collection("rows", [1]).sink("out", table)
    handle = InlineHandle(encode_atoms([b"pending"]))
    pending = OperatorStateHandle(COMMITTABLES, RedistributionMode.SPLIT_DISTRIBUTE, handle, 1)
    state = OperatorState("out", 1, 128, {0: OperatorSubtaskState(operator=(pending,))})
    checkpoint = CompletedCheckpoint(7, 1, SnapshotKind.SAVEPOINT, {"out": state}, 0.0, 1.0)
    with pytest.raises(StateMismatchError, match="holds transactions of a sink"):
        assign_states(build_execution_graph(env.build()), checkpoint, lambda handle: b"")


class Lazy(Table):
    """Its writer forgets that a generator does nothing by itself."""

    def writer(self, context: SinkContext) -> Any:
        return LazyWriter(self)


class LazyWriter(Writer):
    def write(self, batch: Batch) -> Iterator[None]:  # type: ignore[override] # the mistake
        yield None


def test_a_write_that_is_a_generator_is_refused() -> None:
    with OperatorHarness(StagingOperator(Lazy())) as writer, pytest.raises(OperatorError, match="write"):
        writer.push([1])
