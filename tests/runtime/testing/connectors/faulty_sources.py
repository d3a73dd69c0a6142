"""Sources with a planted fault, each with the test of the kit that must fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_log import Log, LogEnumerator, LogReader, LogSource, Partition
from model_queue import EndlessQueue, EndlessReader, Queue, QueueReader, QueueSource

from penstock.connectors import (
    ConnectorContext,
    DeadLetter,
    Polled,
    SourceLag,
    SplitEnumeratorContext,
    SplitLag,
    SplitProgress,
)
from penstock.testing.connectors import SourceTests


@dataclass(frozen=True)
class FaultySource(LogSource):
    reader_class: type[LogReader] = LogReader
    enumerator_class: type[LogEnumerator] = LogEnumerator

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
        return self.reader_class(self, splits)

    def enumerator(self, context: SplitEnumeratorContext, state: Any) -> LogEnumerator:
        return self.enumerator_class(self, context, state)


class FaultyLog(Log):
    def __init__(
        self, source: type[FaultySource], reader: type[LogReader], enumerator: type[LogEnumerator]
    ) -> None:
        super().__init__()
        self.classes = source, reader, enumerator

    def made(self, **settings: Any) -> LogSource:
        source, reader, enumerator = self.classes
        return source(self, self.secret, reader_class=reader, enumerator_class=enumerator, **settings)

    def source(self) -> LogSource:
        return self.made()

    def tolerant_source(self, on_error: Any) -> LogSource:
        return self.made(on_error=on_error)

    def growing_source(self) -> LogSource:
        return self.made(bounded=False)


class FaultySourceTests(SourceTests):
    """The tests of a source whose reader, enumerator or source has a fault."""

    seeds = range(9, 49)
    most_polls = 1_000
    source: type[FaultySource] = FaultySource
    reader: type[LogReader] = LogReader
    enumerator: type[LogEnumerator] = LogEnumerator
    fails: str

    def make_world(self, folder: Path) -> Any:
        return FaultyLog(self.source, self.reader, self.enumerator)


class TestSkipsARowOnRestore(FaultySourceTests):
    class reader(LogReader):
        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            super().__init__(source, [self.behind(split, split.offset > 0) for split in splits])

    fails = "test_a_snapshot_after_each_poll_continues_with_the_next_record"


class TestSkipsARowBehindASavepoint(TestSkipsARowOnRestore):
    fails = "test_a_job_that_is_stopped_with_a_savepoint_continues_from_it"


class TestSkipsARowBehindALostNotice(TestSkipsARowOnRestore):
    fails = "test_an_aborted_checkpoint_and_a_lost_notice_change_nothing"


class TestRepeatsARowOnRestore(FaultySourceTests):
    class reader(LogReader):
        def snapshot(self) -> Sequence[Any]:
            return [self.behind(split, -(split.offset > 0)) for split in self.left]

    fails = "test_a_death_after_any_step_loses_and_repeats_no_record[complete]"


class TestRepeatsARowOnRestoreInAJob(TestRepeatsARowOnRestore):
    fails = "test_a_simulated_job_with_failures_at_any_moment_loses_and_repeats_no_record[aligned]"


class TestRepeatsARowOnASecondRestore(TestRepeatsARowOnRestore):
    fails = "test_a_second_death_while_the_job_restarts_changes_nothing[complete]"


class TestKeepsItsPositionOutside(FaultySourceTests):
    """As a consumer group whose offset decides where a restored reader continues."""

    class reader(LogReader):
        def behind(self, split: Partition, count: int) -> Partition:
            offsets = self.source.log.__dict__.setdefault("offsets", {})
            offsets[split.number] = max(offsets.get(split.number, 0), split.offset + count)
            return replace(split, offset=offsets[split.number])

        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            self.source = source
            super().__init__(source, [self.behind(split, 0) for split in splits])

    fails = "test_a_restart_from_an_older_savepoint_reads_again_what_came_later[the same job]"


class TestSharesItsPositionWithOlderAttempts(TestKeepsItsPositionOutside):
    fails = "test_an_attempt_that_was_declared_dead_and_lives_on_takes_no_record_away[complete]"


class TestKeepsItsFirstSplitOnly(FaultySourceTests):
    class reader(LogReader):
        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            super().__init__(source, splits[:1])

    fails = "test_a_restore_at_another_parallelism_loses_and_repeats_no_record[open]"


class TestForgetsSplitsThatItHasNotBegun(FaultySourceTests):
    class reader(LogReader):
        def snapshot(self) -> Sequence[Any]:
            return [split for split in self.left if split.offset > 0]

    fails = "test_a_snapshot_after_each_poll_continues_with_the_next_record"


class TestReadsEndedSplitsAgain(FaultySourceTests):
    class reader(LogReader):
        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            super().__init__(source, splits)
            self.all = list(splits)

        def snapshot(self) -> Sequence[Any]:
            return self.left or self.all

    fails = "test_a_split_that_has_ended_stays_ended"


class TestMovesInItsSnapshot(FaultySourceTests):
    class reader(LogReader):
        def snapshot(self) -> Sequence[Any]:
            taken, self.left = list(self.left), [self.behind(split, 1) for split in self.left]
            return taken

    fails = "test_a_snapshot_does_not_move_the_source"


class TestMovesBeforeTheAnswer(FaultySourceTests):
    class reader(LogReader):
        def fetch(self, split: Partition, end: int) -> list[str]:
            self.left[self.left.index(split)] = replace(split, offset=end)
            try:
                return super().fetch(split, end)
            except Exception:
                return []

        def behind(self, split: Partition, count: int) -> Partition:
            return split

        def poll(self, max_rows: int) -> Polled[Any]:
            for split in list(self.left):
                end = split.offset + max_rows
                if split.end is not None and split.offset >= split.end:
                    self.left.remove(split)
                elif texts := self.fetch(split, end):
                    return self.polled(split, texts)
            return Polled(finished=not self.left)

    fails = "test_a_call_that_goes_wrong_loses_and_repeats_no_record[poll]"


class TestNeverEnds(FaultySourceTests):
    class reader(LogReader):
        def poll(self, max_rows: int) -> Polled[Any]:
            return replace(super().poll(max_rows), finished=False)

    fails = "test_a_world_without_records_ends_at_once"


class TestListsASplitTwice(FaultySourceTests):
    class source(FaultySource):
        def splits(self, parallelism: int) -> list[Any]:
            return [*super().splits(parallelism), *super().splits(parallelism)[:1]]

    fails = "test_each_record_is_read_once[2]"


class TestCountsASplitTwice(TestListsASplitTwice):
    fails = "test_statistics_count_the_records"


class TestDropsLargePolls(FaultySourceTests):
    class reader(LogReader):
        def polled(self, split: Partition, texts: list[str]) -> Polled[Any]:
            return super().polled(split, texts[:2])

    fails = "test_large_polls_read_the_same"


class TestAssignsSplitsTwice(FaultySourceTests):
    class enumerator(LogEnumerator):
        def start(self) -> None:
            self.is_listed = False
            self.known = 0
            super().start()

    fails = "test_a_death_after_any_step_loses_no_split_of_an_enumerator[complete]"


class TestForgetsSplitsOfFailedReaders(FaultySourceTests):
    class enumerator(LogEnumerator):
        def add_splits_back(self, splits: Sequence[Any]) -> None:
            if not self.__dict__.setdefault("began", False):
                super().add_splits_back(splits)
            self.began = True

    fails = "test_the_splits_of_a_reader_that_failed_are_assigned_again[poll]"


class TestLooksForSplitsOnce(FaultySourceTests):
    class enumerator(LogEnumerator):
        def start(self) -> None:
            if not self.is_listed:
                super().start()

    fails = "test_a_split_that_comes_later_is_read_once[while the job is down]"


class TestAssignsToOneReader(FaultySourceTests):
    class enumerator(LogEnumerator):
        def listed(self, splits: list[Any]) -> None:
            super().listed(splits[:1])

    fails = "test_an_enumerator_assigns_each_split_once[3]"


class TestKnowsNoSplits(FaultySourceTests):
    class reader(LogReader):
        @property
        def split_progress(self) -> SplitProgress:
            return SplitProgress(("all",))

        def polled(self, split: Partition, texts: list[str]) -> Polled[Any]:
            return replace(super().polled(split, texts), split="all")

    fails = "test_no_record_is_late_if_each_split_is_in_order"


class TestForgetsIdleSplits(TestKnowsNoSplits):
    fails = "test_an_idle_split_does_not_hold_back_the_others"


class TestPausesNothing(FaultySourceTests):
    class reader(LogReader):
        def pause_splits(self, paused: Set[Hashable]) -> None:
            """Do nothing."""

    fails = "test_a_paused_split_gives_no_record_until_it_is_resumed"


class TestNeverResumesASplit(FaultySourceTests):
    class reader(LogReader):
        def pause_splits(self, paused: Set[Hashable]) -> None:
            self.paused |= paused

    fails = "test_a_paused_split_gives_no_record_until_it_is_resumed"


class TestHasALagOfEndedSplits(FaultySourceTests):
    class reader(LogReader):
        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            super().__init__(source, splits)
            self.all = list(splits)

        def lag(self) -> SourceLag:
            left = {split.number: split for split in self.left}
            ended = [replace(split, offset=split.end or 0) for split in self.all]
            return SourceLag.of([self.lag_of(left.get(split.number, split)) for split in ended])

    fails = "test_the_lag_counts_what_is_left_and_falls_to_nothing"


class TestHasALagThatCountsFromTheRestore(FaultySourceTests):
    class reader(LogReader):
        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            super().__init__(source, splits)
            self.first = {split.number: split.offset for split in splits}

        def lag_of(self, split: Partition) -> SplitLag:
            return super().lag_of(self.behind(split, -self.first[split.number]))

    fails = "test_the_lag_counts_what_is_left_and_falls_to_nothing"


class TestNeverKnowsItsLag(FaultySourceTests):
    class reader(LogReader):
        def lag(self) -> Any:
            return None

    fails = "test_the_lag_counts_what_is_left_and_falls_to_nothing"


class TestHasALagInItsOwnThreadOnly(FaultySourceTests):
    """As a connection of SQLite, which other threads must not use."""

    class reader(LogReader):
        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            super().__init__(source, splits)
            self.thread = threading.get_ident()

        def lag(self) -> SourceLag:
            if threading.get_ident() != self.thread:
                raise RuntimeError("the connection was made in another thread")
            return super().lag()

    fails = "test_the_lag_counts_what_is_left_and_falls_to_nothing"


class TestSkipsEveryBadRecord(FaultySourceTests):
    class reader(LogReader):
        def polled(self, split: Partition, texts: list[str]) -> Polled[Any]:
            return super().polled(split, [text for text in texts if text != "{"])

    fails = "test_a_bad_record_fails_the_job"


class TestCountsNoSkippedRecords(FaultySourceTests):
    class reader(LogReader):
        def polled(self, split: Partition, texts: list[str]) -> Polled[Any]:
            return replace(super().polled(split, texts), skipped=0)

    fails = "test_a_bad_record_is_skipped_and_counted"


class TestHasDeadLettersWithoutPlace(FaultySourceTests):
    class reader(LogReader):
        def letter(self, record: str, error: str, place: str) -> DeadLetter:
            return DeadLetter(record, error, "")

    fails = "test_a_bad_record_becomes_a_dead_letter_with_its_place"


class TestShowsItsPassword(FaultySourceTests):
    class source(FaultySource):
        def __repr__(self) -> str:
            return f"LogSource(password={self.password!r})"

    fails = "test_no_text_shows_the_secret"


class TestStoresItsPassword(FaultySourceTests):
    class reader(LogReader):
        def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
            super().__init__(source, [split[0] if isinstance(split, tuple) else split for split in splits])

        def snapshot(self) -> Sequence[Any]:
            return [(split, self.source.password) for split in self.left]

    fails = "test_no_text_shows_the_secret"


class TestHasErrorsWithItsPassword(FaultySourceTests):
    class reader(LogReader):
        def fetch(self, split: Partition, end: int) -> list[str]:
            try:
                return super().fetch(split, end)
            except Exception as error:
                raise RuntimeError(json.dumps({"user": f"me/{self.source.password}"})) from error

    fails = "test_no_error_shows_the_secret"


class TestAcknowledgesWhatItReads(SourceTests):
    most_polls = 1_000
    fails = "test_a_record_is_acknowledged_only_when_a_completed_checkpoint_covers_it"

    def make_world(self, folder: Path) -> Any:
        class Reader(QueueReader):
            def poll(self, max_rows: int) -> Polled[Any]:
                polled = super().poll(max_rows)
                self.queue.acknowledge(self.read)
                return polled

        return queue_with(Reader)


class TestAcknowledgesWithoutCheckpoint(SourceTests):
    most_polls = 1_000
    fails = "test_a_death_after_any_step_loses_and_repeats_no_record[poll]"
    make_world = TestAcknowledgesWhatItReads.make_world


class TestForgetsWhatItAcknowledges(SourceTests):
    """Its acknowledgement may be lost; the records then come again."""

    most_polls = 1_000
    fails = "test_a_death_after_any_step_loses_and_repeats_no_record[complete]"

    def make_world(self, folder: Path) -> Any:
        class Reader(QueueReader):
            def snapshot(self) -> Sequence[Any]:
                return [()]

        return queue_with(Reader)


class TestLosesRecordsWithoutAnEnd(SourceTests):
    guarantee = "at_least_once"
    is_bounded = False
    most_polls = 1_000
    fails = "test_a_death_after_any_step_loses_and_repeats_no_record[poll]"

    def make_world(self, folder: Path) -> Any:
        class Reader(EndlessReader):
            def poll(self, max_rows: int) -> Polled[Any]:
                polled = super().poll(max_rows)
                self.queue.acknowledge(self.read)
                return polled

        return EndlessQueue(Reader)


class TestRepeatsRecordsWithoutAnEnd(SourceTests):
    """It is at least once, and says that it is exactly once."""

    is_bounded = False
    most_polls = 1_000
    fails = "test_a_death_after_any_step_loses_and_repeats_no_record[complete]"

    def make_world(self, folder: Path) -> Any:
        return EndlessQueue()


def queue_with(reader: type[QueueReader]) -> Queue:
    class Source(QueueSource):
        def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
            return reader(self.queue, context, splits)

    class FaultyQueue(Queue):
        def source(self) -> QueueSource:
            return Source(self)

    return FaultyQueue()
