"""Sinks with a planted fault, each with the test of the kit that must fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_table import Name, Table, TableSink, TableWriter

from penstock.connectors import CommitPermit, SinkContext
from penstock.operators import Batch, RowBatch
from penstock.testing.connectors import SinkTests


@dataclass(frozen=True)
class FaultySink(TableSink):
    writer_class: type[TableWriter] = TableWriter

    def writer(self, context: SinkContext) -> TableWriter:
        return self.writer_class(self, context)


class FaultyTable(Table):
    def __init__(self, sink: type[FaultySink], writer: type[TableWriter]) -> None:
        super().__init__()
        self.classes = sink, writer

    def sink(self) -> TableSink:
        sink, writer = self.classes
        return sink(self, self.secret, writer)


class FaultySinkTests(SinkTests):
    """The tests of a sink whose writer, sink or table has a fault."""

    seeds = range(10, 70)
    writer: type[TableWriter] = TableWriter
    sink: type[FaultySink] = FaultySink
    table: type[FaultyTable] = FaultyTable
    fails: str

    def make_world(self, folder: Path) -> Table:
        return self.table(self.sink, self.writer)

    def bad_record(self) -> dict[str, None]:
        return {"number": None}


class TestAppendsOnEveryCommit(FaultySinkTests):
    class table(FaultyTable):
        def commit(self, name: Name) -> None:
            self.committed.add(name)
            self.visible += [row for part in self.open.get(name, ()) for row in part]

    fails = "test_a_repeated_commit_changes_nothing"


class TestAppendsOnEveryCommitInAJob(TestAppendsOnEveryCommit):
    fails = "test_a_simulated_job_with_failures_at_any_moment_loses_and_repeats_no_record[aligned]"


class TestCommitsBeforeItsCheckpoint(FaultySinkTests):
    class writer(TableWriter):
        def prepare_commit(self) -> Sequence[Any]:
            names = super().prepare_commit()
            for name in names:
                self.sink.table.commit(name)
            return names

    fails = "test_a_record_is_hidden_until_its_checkpoint_is_complete"


class TestCommitsAllThatIsOpen(FaultySinkTests):
    class writer(TableWriter):
        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            for name in self.sink.table.hidden():
                self.sink.table.commit(name)

    fails = "test_checkpoints_may_overlap"


class TestCommitsWhatALaterSavepointHas(TestCommitsAllThatIsOpen):
    fails = "test_a_restart_from_an_older_savepoint_commits_nothing_that_came_later"


class TestCommitsTheNewestOnly(FaultySinkTests):
    class writer(TableWriter):
        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            super().commit(committables[-1:], permit)

    fails = "test_a_checkpoint_makes_up_for_lost_notices_of_earlier_ones"


class TestKeepsRowsInTheWriter(FaultySinkTests):
    class writer(TableWriter):
        def __init__(self, sink: TableSink, context: SinkContext) -> None:
            super().__init__(sink, context)
            self.rows: list[Any] = []

        def write(self, batch: Batch) -> None:
            assert isinstance(batch, RowBatch)
            self.rows += batch.rows
            self.part += len(batch) > 0

        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            self.sink.table.visible += self.rows
            self.rows = []

    fails = "test_a_death_after_any_step_loses_and_repeats_no_record[complete]"


class TestNamesWithoutAttempt(FaultySinkTests):
    class writer(TableWriter):
        def name(self) -> Name:
            return self.context.job_id, self.context.operator_id, 0, self.context.subtask, self.number

    fails = "test_a_death_after_any_step_loses_and_repeats_no_record[commit]"


class TestNamesWithoutSubtask(FaultySinkTests):
    class writer(TableWriter):
        def name(self) -> Name:
            return self.context.job_id, self.context.operator_id, self.context.attempt, 0, self.number

    fails = "test_each_record_is_visible_once_at_the_end"


class TestNamesWithoutJob(FaultySinkTests):
    class writer(TableWriter):
        def name(self) -> Name:
            return "", *super().name()[1:]  # type: ignore[return-value]

        def is_leftover(self, name: Name) -> bool:
            return name[2] < self.context.attempt

    fails = "test_two_jobs_at_a_time_do_not_touch_each_others_data"


class TestCommitsOfItsOwnSubtaskOnly(FaultySinkTests):
    class writer(TableWriter):
        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            super().commit([name for name in committables if name[3] == self.context.subtask], permit)

    fails = "test_a_restore_at_another_parallelism_loses_and_repeats_no_record[complete]"


class TestRemembersTheNewestCheckpoint(FaultySinkTests):
    """As a table that keeps the highest committed checkpoint, without the lineage of the job."""

    class writer(TableWriter):
        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            assert permit.checkpoint_id is not None
            if permit.checkpoint_id >= self.sink.table.newest:
                self.sink.table.newest = permit.checkpoint_id
                super().commit(committables, permit)

    fails = "test_a_restart_from_an_older_savepoint_loses_no_record[a new job]"


class TestAbortsWhenItIsClosed(FaultySinkTests):
    class writer(TableWriter):
        def close(self) -> None:
            for name in self.sink.table.hidden():
                self.sink.table.abort(name)

    fails = "test_an_attempt_that_was_declared_dead_and_lives_on_changes_nothing[complete]"


class TestLeavesLeftovers(FaultySinkTests):
    class writer(TableWriter):
        def is_leftover(self, name: Name) -> bool:
            return False

    fails = "test_data_that_no_checkpoint_covers_is_removed_by_the_next_attempt"


class TestRemovesWhatItsOwnAttemptWrites(FaultySinkTests):
    class writer(TableWriter):
        def is_leftover(self, name: Name) -> bool:
            return True

    fails = "test_checkpoints_may_overlap"


class TestRemovesWhatACheckpointCovers(FaultySinkTests):
    class sink(FaultySink):
        def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Name]) -> None:
            super().remove_uncovered(job_id, operator_id, ())

    fails = "test_a_cancelled_job_keeps_what_its_last_checkpoint_covers"


class TestHidesAFailedCommit(FaultySinkTests):
    class writer(TableWriter):
        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            for name in committables:
                try:
                    self.sink.table.request(
                        lambda name=name: self.sink.table.commit(name), self.sink.password
                    )
                except OSError:
                    continue

    fails = "test_a_call_that_goes_wrong_loses_and_repeats_no_record[commit]"


class TestWritesAgainAfterALostAnswer(FaultySinkTests):
    class table(FaultyTable):
        def append(self, name: Name, part: int, rows: Sequence[Any]) -> None:
            self.open.setdefault(name, []).append(list(rows))

    class writer(TableWriter):
        def request(self, effect: Any) -> Any:
            try:
                return self.sink.table.request(effect, self.sink.password)
            except OSError:
                return self.sink.table.request(effect, self.sink.password)

    fails = "test_a_call_that_goes_wrong_loses_and_repeats_no_record[write]"


class TestDropsBadRecords(FaultySinkTests):
    class writer(TableWriter):
        def write(self, batch: Batch) -> None:
            assert isinstance(batch, RowBatch)
            super().write(RowBatch([row for row in batch.rows if row["number"] is not None]))

    fails = "test_a_record_that_cannot_be_written_is_refused"


class TestShowsItsPassword(FaultySinkTests):
    class sink(FaultySink):
        def __repr__(self) -> str:
            return f"TableSink(password={self.password!r})"

    fails = "test_no_text_shows_the_secret"


class TestStoresItsPassword(FaultySinkTests):
    class writer(TableWriter):
        def prepare_commit(self) -> Sequence[Any]:
            return [(*name, self.sink.password) for name in super().prepare_commit()]

        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            super().commit([name[:5] for name in committables], permit)

    fails = "test_no_text_shows_the_secret"


class TestHasErrorsWithItsPassword(FaultySinkTests):
    class writer(TableWriter):
        def request(self, effect: Any) -> Any:
            try:
                return super().request(effect)
            except Exception as error:
                raise RuntimeError(f"me/{self.sink.password} was refused: {error}") from error

    fails = "test_no_error_shows_the_secret"


class TestHasNoCommittables(FaultySinkTests):
    class writer(TableWriter):
        def prepare_commit(self) -> Sequence[Any]:
            for name in super().prepare_commit():
                self.sink.table.commit(name)
            return ()

    fails = "test_statistics_count_the_transactions"


class TestNeedsARecordInEachCheckpoint(FaultySinkTests):
    class writer(TableWriter):
        def prepare_commit(self) -> Sequence[Any]:
            name, self.number, self.part = self.name(), self.number + 1, 0
            return [name]

    fails = "test_a_checkpoint_without_records_changes_nothing"


class TestNeedsARecordInEachSubtask(TestNeedsARecordInEachCheckpoint):
    fails = "test_more_subtasks_than_records_are_no_problem"


class TestCommitsOneCheckpointLate(FaultySinkTests):
    class writer(TableWriter):
        late: Sequence[Any] = ()

        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            super().commit(self.late, permit)
            self.late = committables

    fails = "test_a_job_that_is_stopped_with_a_savepoint_continues_from_it[stopped]"


class TestCommitsAtCheckpointsOnly(FaultySinkTests):
    class writer(TableWriter):
        def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
            if permit.checkpoint_id is not None:
                super().commit(committables, permit)

    fails = "test_a_job_without_checkpoints_commits_at_its_end"


class TestDropsTheTransactionOfAnAbortedCheckpoint(FaultySinkTests):
    """It takes the next pre-commit for a sign that the last one was aborted."""

    class writer(TableWriter):
        last: Name | None = None

        def prepare_commit(self) -> Sequence[Any]:
            if self.last is not None and self.last not in self.sink.table.committed:
                self.sink.table.open[self.last] = []
            names = super().prepare_commit()
            self.last = names[0] if names else None
            return names

    fails = "test_an_aborted_checkpoint_is_covered_by_the_next_one"


class TestCountsItsAttempts(FaultySinkTests):
    """It aborts everything that is open when it starts a second time, also what must be committed later."""

    class writer(TableWriter):
        def __init__(self, sink: TableSink, context: SinkContext) -> None:
            super().__init__(sink, context)
            for name in sink.table.hidden() if context.attempt > 1 else ():
                sink.table.open[name] = []

    fails = "test_a_second_death_while_the_job_restarts_changes_nothing[complete]"
