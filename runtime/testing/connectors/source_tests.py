"""`SourceTests`: the tests that every source must pass.

Most tests drive a job with one source by hand (`SourceJob`): its checkpoints, deaths and restarts come
exactly where the test wants them. The last ones simulate a whole job, with failures at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.operators.source import ReportsLag, Source
from penstock.runtime.testing.connectors.checks import case, check_no_secret, check_rows, error_of, texts_of
from penstock.runtime.testing.connectors.collected import CollectedRecords, RecordsSink
from penstock.runtime.testing.connectors.outside import Outside, arm, fates_of
from penstock.runtime.testing.connectors.source_job import DISTURBED, SourceJob, run_steps
from penstock.runtime.testing.connectors.source_test_base import ONCE
from penstock.runtime.testing.connectors.split_tests import SplitTests
from penstock.runtime.testing.connectors.worlds import (
    FATES,
    HasBadRecords,
    HasSecret,
    ShowsAcknowledged,
    SourceWorld,
    offered,
)
from penstock.runtime.testing.simulation.run.report import difference
from penstock.runtime.testing.simulation.world.external import Fate


class SourceTests(SplitTests):
    """Tests of a source: subclass it, and return a `SourceWorld` from `make_world`.

    Attributes:
        guarantee: `"at_least_once"` allows records that are read repeatedly after a failure.
        is_bounded: Whether the source ends. If not, a test stops the job when it has read all records.
        is_exclusive: Whether an attempt reads nothing until the previous one has ended, as with a port.
        refuses_bad_records: Whether the sender of a bad record gets an error, and the job does not fail.
        is_resumable: Whether a record that a completed checkpoint covers can be read again, by any job.
        knows_lag: Whether a reader that has the method `lag` can return the lag. Some systems don't report
            the lag of a bounded source.
        most_polls: Polls without a record after which a test no longer waits for the real system.
    """

    # -- a source without failures ------------------------------------------------------------------------

    def test_it_is_a_source(self, world: SourceWorld) -> None:
        assert isinstance(world, SourceWorld), f"{type(world).__name__} needs the methods source and write"
        source = world.source()
        assert isinstance(source, Source), (
            f"{type(source).__name__} needs the methods splits(parallelism) and reader(context, splits)"
        )

    @pytest.mark.parametrize("parallelism", [1, 2, 5])
    def test_each_record_is_read_once(self, world: SourceWorld, parallelism: int) -> None:
        job = self.job_of(world, parallelism=parallelism).start()
        job.finish()
        self.check(job, advice="`splits` must hold each record once, and `poll` must return all of them")

    def test_large_polls_read_the_same(self, world: SourceWorld) -> None:
        job = self.job_of(world, poll_rows=1000).start()
        job.finish()
        self.check(job)

    def test_a_world_without_records_ends_at_once(self, outside: Outside[SourceWorld]) -> None:
        if not self.is_bounded:
            pytest.skip(f"is_bounded is false in {type(self).__name__}: it never ends")
        job = self.job_of(outside.new()).start()
        job.finish()
        self.check(job, 0)

    def test_statistics_count_the_records(self, job: SourceJob) -> None:
        job.start()
        job.read_all()
        assert sum(each.records_out for each in job.statistics()) == 12
        job.close()

    def test_the_lag_counts_what_is_left_and_falls_to_nothing(self, job: SourceJob) -> None:
        job.start()
        if not self.knows_lag or not all(isinstance(each.reader, ReportsLag) for each in job.subtasks):
            job.kill()
            pytest.skip(f"the reader of {type(job.source()).__name__} has no lag, or knows_lag is false")
        job.read(5)
        self.check_lag(job)
        job.checkpoint()
        job.kill()
        job.start()
        while job.read(1):
            self.check_lag(job)
        self.check_lag(job)
        job.close()

    # -- deaths and restarts ------------------------------------------------------------------------------

    def test_a_death_after_any_step_loses_and_repeats_no_record(
        self, new_world: Callable[[], SourceWorld], step: str
    ) -> None:
        for death in ("killed", "failed"):
            with case(f"the job is {death} after {step!r}"):
                job = self.job_of(new_world())
                run_steps(job, last=step)
                if death == "killed":
                    job.kill()
                else:
                    job.close()
                job.start().finish()
                self.check(job)

    def test_a_second_death_while_the_job_restarts_changes_nothing(self, job: SourceJob, step: str) -> None:
        run_steps(job, last=step)
        job.kill()
        job.start().kill()
        job.start()
        job.read(2)
        job.snapshot()
        job.kill()
        job.start().finish()
        self.check(job)

    def test_a_restore_at_another_parallelism_loses_and_repeats_no_record(
        self, new_world: Callable[[], SourceWorld], step: str
    ) -> None:
        for parallelism in (1, 3):
            with case(f"2 subtasks become {parallelism} after {step!r}"):
                job = self.job_of(new_world())
                run_steps(job, last=step)
                job.kill()
                job.start(parallelism=parallelism)
                job.read(2)
                job.checkpoint()
                job.close()
                job.start(parallelism=2).finish()
                self.check(job)

    def test_a_snapshot_after_each_poll_continues_with_the_next_record(self, world: SourceWorld) -> None:
        job = self.job_of(world, parallelism=1).start()
        while job.read(1):
            job.checkpoint()
            job.kill()
            job.start()
        job.close()
        self.check(job)

    def test_a_snapshot_does_not_move_the_source(self, job: SourceJob) -> None:
        job.start()
        job.read(3)
        assert job.snapshot().splits == job.snapshot().splits, "`snapshot` must change nothing"
        job.finish()
        self.check(job)

    def test_a_split_that_has_ended_stays_ended(self, job: SourceJob) -> None:
        if not self.is_bounded:
            pytest.skip(f"is_bounded is false in {type(self).__name__}: no split ends")
        job.start()
        job.read_all()
        job.checkpoint()
        job.close()
        for parallelism in (2, 3):
            job.start(parallelism=parallelism)
            job.read_all()
            self.check(job, advice="a restored source must not read a split again that had ended")
            job.checkpoint()
            job.close()

    def test_an_aborted_checkpoint_and_a_lost_notice_change_nothing(self, job: SourceJob) -> None:
        job.start()
        job.read(2)
        job.snapshot()
        job.read(2)
        job.decide(job.snapshot())
        job.read(2)
        job.checkpoint()
        job.read(1)
        job.kill()
        job.start().finish()
        self.check(job)

    @pytest.mark.parametrize("moment", ["poll", "snapshot", "complete", "notify", "second snapshot"])
    def test_an_attempt_that_was_declared_dead_and_lives_on_takes_no_record_away(
        self, job: SourceJob, moment: str
    ) -> None:
        """Its process was cut off. It continues to read, and learns of an earlier completed checkpoint."""
        run_steps(job, last=moment)
        zombie, known = job.fork(), job.completed
        job.start()
        if not self.is_exclusive:
            job.read(1)
        # The outside world may refuse an older attempt.
        error_of(lambda: zombie.read(2))
        error_of(zombie.snapshot)
        if known is not None:
            error_of(lambda: zombie.notify(known))
        if self.is_exclusive:
            error_of(zombie.close)
        job.checkpoint()
        job.read(1)
        error_of(zombie.close)
        job.kill()
        job.start().finish()
        self.check(job)

    # -- savepoints ---------------------------------------------------------------------------------------

    def test_a_job_that_is_stopped_with_a_savepoint_continues_from_it(
        self, world: SourceWorld, job: SourceJob
    ) -> None:
        self.need_resumable()
        job.start()
        job.read(5)
        savepoint = job.checkpoint()
        job.close()
        left = None if self.is_bounded else [row for row in self.records(12) if row not in job.rows]
        following = self.job_of(world, restored=savepoint, written=left).start()
        following.finish()
        check_rows([*job.rows, *following.rows], self.records(12), ONCE, self.guarantee)

    @pytest.mark.parametrize("same_job", [True, False], ids=["the same job", "a new job"])
    def test_a_restart_from_an_older_savepoint_reads_again_what_came_later(
        self, world: SourceWorld, job: SourceJob, same_job: bool
    ) -> None:
        if isinstance(world, ShowsAcknowledged):
            pytest.skip(f"{type(world).__name__} sends acknowledged records only once")
        self.need_resumable()
        job.start()
        job.read(2)
        savepoint = job.checkpoint()
        before = job.rows
        for _ in range(2):
            job.read(2)
            job.checkpoint()
        job.close()
        if same_job:
            job.completed = savepoint
            job.start().finish()
            self.check(job)
        else:
            following = self.job_of(world, restored=savepoint).start()
            following.finish()
            check_rows([*before, *following.rows], self.records(12), ONCE)

    # -- acknowledgements ---------------------------------------------------------------------------------

    def test_a_record_is_acknowledged_only_when_a_completed_checkpoint_covers_it(
        self, world: SourceWorld, job: SourceJob
    ) -> None:
        shows = offered(world, ShowsAcknowledged, "acknowledgements are not checked")
        job.start()
        job.read(3)
        checkpoint = job.snapshot()
        covered = job.rows
        self.check_acknowledged(shows, job, [])
        job.read(2)
        job.complete(checkpoint)
        self.check_acknowledged(shows, job, covered)
        job.finish()
        self.check_acknowledged(shows, job, self.records(12))

    # -- calls to the outside world   ---------------------------------------------------------------------

    @pytest.mark.parametrize("call", DISTURBED)
    def test_a_call_that_goes_wrong_loses_and_repeats_no_record(
        self, new_world: Callable[[], SourceWorld], call: str
    ) -> None:
        before, disturbed = DISTURBED[call]
        for fate in FATES:
            with case(f"{call!r}: {fate.value}"):
                world = new_world()
                calls = fates_of(world)
                job = self.job_of(world).start()
                job.read(1)
                job.checkpoint()
                before(job)
                if not arm(calls, fate):
                    job.kill()
                    continue
                error = error_of(lambda job=job: disturbed(job))  # type: ignore[misc]
                calls.next_fate(None)
                if error is None and job.subtasks:  # the error of a source with threads may come now
                    error_of(lambda job=job: (job.read(1), job.checkpoint()))  # type: ignore[misc]
                job.kill()
                job.start().finish()
                self.check(job)

    # -- bad records --------------------------------------------------------------------------------------

    def test_a_bad_record_fails_the_job(self, world: SourceWorld) -> None:
        bad = offered(world, HasBadRecords, "bad records are not tried")
        bad.write_bad()
        job = self.job_of(world).start()
        if self.refuses_bad_records:
            job.finish()
            self.check(job)
            return
        with pytest.raises(PenstockError):
            self.read_behind(world, job)
        job.close()

    def test_a_bad_record_is_skipped_and_counted(self, world: SourceWorld) -> None:
        bad = offered(world, HasBadRecords, "bad records are not tried")
        bad.write_bad()
        job = self.job_of(world, bad.tolerant_source("skip")).start()
        count = self.read_behind(world, job, bad=1)
        assert sum(each.records_skipped for each in job.statistics()) == 1, "use Polled(skipped=...)"
        job.close()
        self.check(job, count)

    def test_a_bad_record_becomes_a_dead_letter_with_its_place(self, world: SourceWorld) -> None:
        bad = offered(world, HasBadRecords, "bad records are not tried")
        bad.write_bad()
        job = self.job_of(world, bad.tolerant_source("dead_letter")).start()
        count = self.read_behind(world, job, bad=1)
        letters = [letter for harness in job.subtasks for letter in harness.dead_letters]
        assert len(letters) == 1, f"one dead letter is expected, not {letters}"
        assert letters[0].origin, "a dead letter needs its origin, such as 'file:offset'"
        assert letters[0].error, "a dead letter needs its error"
        assert sum(each.dead_letters for each in job.statistics()) == 1
        job.checkpoint()
        job.close()
        self.check(job, count)
        job.start()
        self.read_behind(world, job, count)
        again = [letter for harness in job.subtasks for letter in harness.dead_letters]
        assert not again, f"a dead letter that a checkpoint covers was read again: {again}"
        job.close()

    def read_behind(self, world: SourceWorld, job: SourceJob, count: int = 12, bad: int = 0) -> int:
        """Read to the end; return the number of rows.

        If the source is unbounded, this writes one more record. It waits until the source has returned that
        record, and has reported `bad` bad records.
        """
        if self.is_bounded:
            job.read_all()
            return count

        def is_behind() -> bool:
            reported = sum(each.records_skipped + each.dead_letters for each in job.statistics())
            return job.is_finished and last in job.rows and reported >= bad

        world.write([last := self.record(count)])
        job.read_until(is_behind, f"the source never returns {last}, or reports no bad record")
        return count + 1

    # -- secrets ------------------------------------------------------------------------------------------

    def test_no_text_shows_the_secret(
        self, world: SourceWorld, job: SourceJob, caplog: pytest.LogCaptureFixture
    ) -> None:
        secret = offered(world, HasSecret, "texts are not searched for it").secret
        caplog.set_level(logging.DEBUG)
        source = world.source()
        name = type(source).__name__
        shown: list[tuple[str, str | bytes]] = [(f"repr of {name}", repr(source)), (name, str(source))]
        job.start()
        job.read(3)
        checkpoint = job.snapshot()
        shown += [("a checkpoint", data) for data in checkpoint.data]
        shown += [("a split", repr(each)) for each in checkpoint.splits]
        job.complete(checkpoint)
        job.finish()
        env = StreamEnvironment("kit")
        env.from_source("records", source).sink("out", RecordsSink(CollectedRecords()))
        shown += [("the graph", env.describe()), ("the log", caplog.text)]
        check_no_secret(secret, shown)

    def test_no_error_shows_the_secret(self, new_world: Callable[[], SourceWorld]) -> None:
        shown: list[tuple[str, str]] = []
        impossible: set[Fate] = set()
        for fate, (before, disturbed) in product(FATES, DISTURBED.values()):
            if fate in impossible:
                continue
            world = new_world()
            secret = offered(world, HasSecret, "errors are not searched for it").secret
            calls = fates_of(world)
            job = self.job_of(world).start()
            before(job)
            if arm(calls, fate):
                error = error_of(lambda step=disturbed, job=job: step(job))  # type: ignore[misc]
                calls.next_fate(None)
                shown += [(text, secret) for text in texts_of(error)]
            else:
                impossible.add(fate)
            job.kill()
        if not shown:
            pytest.skip(f"no call of {type(self).__name__} has failed: there is no error to look at")
        for text, secret in shown:
            check_no_secret(secret, [("an error", text)])

    # -- a whole job --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
    def test_a_simulated_job_with_failures_at_any_moment_loses_and_repeats_no_record(
        self, outside: Outside[SourceWorld], unaligned: bool
    ) -> None:
        if not self.simulated:
            pytest.skip(f"simulated is false in {type(self).__name__}")
        written = self.records(24)

        def build(world: Any) -> StreamEnvironment:
            checkpointing = Checkpointing(every=60, unaligned=unaligned)
            env = StreamEnvironment("kit", parallelism=2, checkpointing=checkpointing)
            records = env.from_source("records", world.source())
            records.rebalance().sink("out", RecordsSink(world.collected))
            return env

        def prepare(world: Any) -> None:
            world.write(written)
            world.collected = CollectedRecords()

        self.simulate(outside, build, lambda world: world.collected.rows, prepare=prepare)

    # -- what the tests share -----------------------------------------------------------------------------

    def need_resumable(self) -> None:
        """Skip a test of a job that continues from the savepoint of another one, or from an older one."""
        if not self.is_resumable:
            pytest.skip(f"is_resumable is false in {type(self).__name__}: its records are sent only once")

    def check_lag(self, job: SourceJob) -> None:
        """Compare the lag with the rest of the twelve records; a lag in bytes is only compared with 0."""
        lag, left = job.lag(self.most_polls), 12 - len(job.rows)
        assert lag is not None, "`lag` stays unknown"
        advice = "`lag` must count what follows the position of each split"
        assert lag.records in (None, left), f"the lag is {lag.records} records, and {left} are left; {advice}"
        assert lag.bytes != 0 or not left, f"the lag is 0 bytes, and {left} records are left; {advice}"
        if job.is_finished:
            rest = lag.splits, lag.records or 0, lag.bytes or 0
            assert not any(rest), f"at the end the lag is {lag}; `lag` must leave out splits that have ended"

    def check_acknowledged(self, shows: ShowsAcknowledged, job: SourceJob, expected: Sequence[Any]) -> None:
        """Compare the acknowledged records; acknowledgements may still be on their way to the system."""
        for _ in range(min(_MOST_LOOKS, self.most_polls)):
            if difference(expected, shows.acknowledged()) is None:
                return
            job.poll()
        advice = "a record must be acknowledged by `notify_checkpoint_complete`, and not before"
        check_rows(shows.acknowledged(), expected, advice)


#: Maximum number of polls until the acknowledgements to a real system must have arrived.
_MOST_LOOKS = 1_000
