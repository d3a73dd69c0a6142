"""Tests of sources with several splits: their assignment, their event time, and pauses."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.runtime.operators.source import EnumeratesSplits, PausesSplits, ReportsSplits, Source
from penstock.runtime.testing.connectors.outside import Outside
from penstock.runtime.testing.connectors.source_job import SourceJob, run_steps
from penstock.runtime.testing.connectors.source_test_base import SourceTestBase
from penstock.runtime.testing.connectors.worlds import AddsSplitsLater, HasSplits, SourceWorld, offered
from penstock.runtime.time.watermarks import WatermarkStrategy


class SplitTests(SourceTestBase):
    """Tests of splits that an enumerator assigns, and of splits with records and times of their own."""

    # -- an enumerator ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_an_enumerator_assigns_each_split_once(self, world: SourceWorld, parallelism: int) -> None:
        job = self.enumerated(world, parallelism=parallelism).start()
        job.finish()
        self.check(job, advice="the enumerator must assign each split once, and then signal_no_more_splits")

    def test_a_death_after_any_step_loses_no_split_of_an_enumerator(
        self, world: SourceWorld, step: str
    ) -> None:
        job = self.enumerated(world)
        run_steps(job, last=step)
        job.kill()
        job.start(parallelism=3).finish()
        self.check(job)

    @pytest.mark.parametrize("moment", ["open", "poll", "snapshot", "complete", "notify", "second snapshot"])
    def test_the_splits_of_a_reader_that_failed_are_assigned_again(
        self, world: SourceWorld, moment: str
    ) -> None:
        job = self.enumerated(world)
        run_steps(job, last=moment)
        for subtask in (0, 1):
            job.restart_reader(subtask)
        job.finish()
        self.check(job, advice="`add_splits_back` must assign the splits again")

    @pytest.mark.parametrize("when", ["before a checkpoint", "after a checkpoint", "while the job is down"])
    def test_a_split_that_comes_later_is_read_once(self, world: SourceWorld, when: str) -> None:
        grows = offered(world, AddsSplitsLater, "splits that come while the job runs are not tried")
        job = self.enumerated(world, grows.growing_source()).start()
        job.read(12)
        if when == "before a checkpoint":
            grows.add_split(self.records(4, first=12))
        job.checkpoint()
        if when == "after a checkpoint":
            grows.add_split(self.records(4, first=12))
            job.read(2)
        job.kill()
        if when == "while the job is down":
            grows.add_split(self.records(4, first=12))
        job.start(parallelism=3)
        job.read(16 - len(job.rows))
        self.check(job, 16, "the enumerator must find new splits, and its snapshot must know the old ones")
        grows.add_split(self.records(3, first=16))
        job.read(3)
        job.checkpoint()
        job.close()
        self.check(job, 19)

    # -- event time ---------------------------------------------------------------------------------------

    def test_no_record_is_late_if_each_split_is_in_order(self, outside: Outside[SourceWorld]) -> None:
        def write(world: SourceWorld) -> None:
            splits = offered(world, HasSplits, "watermarks by split are not tried")
            splits.write_to(0, self.records(6, first=20))
            splits.write_to(1, self.records(6))

        job = self.job_of(outside.new(write), parallelism=1, watermarks=self.in_order()).start()
        (harness,) = job.subtasks
        while not job.is_finished:
            known, reached = len(job.rows), harness.watermarks[-1:]
            job.read(1)
            late = [row for row in job.rows[known:] if reached and self.moment(row) <= reached[0]]
            assert not late, (
                f"{late} came after a later watermark. A reader of many splits needs `split_progress`, and "
                "each batch its split: Polled(batch, split=...)"
            )
        job.close()

    def test_an_idle_split_does_not_hold_back_the_others(self, outside: Outside[SourceWorld]) -> None:
        def write(world: SourceWorld) -> None:
            splits = offered(world, HasSplits, "idle splits are not tried")
            splits.write_to(0, self.records(3))
            splits.write_to(1, self.records(9))

        world = outside.new(write)
        splits = offered(world, HasSplits, "idle splits are not tried")
        grows = offered(world, AddsSplitsLater, "only a split without an end can be idle")
        strategy = self.in_order().with_idleness(5)
        job = self.job_of(world, grows.growing_source(), parallelism=1, watermarks=strategy).start()
        job.read(12)
        splits.write_to(1, self.records(3, first=9))
        job.read(3)
        (harness,) = job.subtasks
        held = self.moment(self.record(2))
        assert harness.watermarks[-1] <= held, "a split that is not idle yet must hold back event time"
        harness.advance(10)
        splits.write_to(1, self.records(3, first=12))
        job.read(3)
        harness.advance(1)
        assert harness.watermarks[-1] > held, "a split without records must become idle"
        job.close()

    def test_a_paused_split_gives_no_record_until_it_is_resumed(self, outside: Outside[SourceWorld]) -> None:
        def write(world: SourceWorld) -> None:
            splits = offered(world, HasSplits, "paused splits are not tried")
            splits.write_to(0, self.records(6))
            splits.write_to(1, self.records(6, first=6))

        job = self.job_of(outside.new(write), parallelism=1).start()
        reader = job.subtasks[0].reader
        if not (isinstance(reader, ReportsSplits) and isinstance(reader, PausesSplits)):
            job.kill()
            pytest.skip(f"{type(reader).__name__} has no pause_splits with split_progress")
        reader.pause_splits(frozenset(list(reader.split_progress.reading)[1:]))
        job.read(6)
        is_of_first = {row in self.records(6) for row in job.rows}
        assert len(is_of_first) == 1, f"{job.rows} has records of a split that `pause_splits` has paused"
        reader.pause_splits(frozenset())
        job.finish()
        self.check(
            job, advice="`pause_splits` must resume all splits that it does not name, and lose no record"
        )

    # -- what the tests share -----------------------------------------------------------------------------

    def enumerated(self, world: SourceWorld, source: Source[Any] | None = None, **settings: Any) -> SourceJob:
        """Return a job in which the source's enumerator assigns the splits."""
        source = source or world.source()
        if not isinstance(source, EnumeratesSplits):
            pytest.skip(f"{type(source).__name__} has no enumerator: its splits are fixed")
        return self.job_of(world, source, enumerated=True, **settings)

    def in_order(self) -> WatermarkStrategy[Any]:
        """The strategy of the tests: a record's number is its time in seconds."""
        return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(self.moment)

    def moment(self, row: Any) -> int:
        """Event time of a record in microseconds."""
        for number in range(_MOST_NUMBERS):
            if self.record(number) == row:
                return number * 1_000_000
        msg = f"{row!r} is not one of the records: the source must return what `record` returns"
        raise AssertionError(msg)


#: Largest number of a record in a test of event time.
_MOST_NUMBERS = 100
