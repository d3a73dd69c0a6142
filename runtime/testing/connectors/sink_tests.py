"""`SinkTests`: the tests that every sink must pass.

Most tests drive a job with one sink by hand (`SinkJob`): its checkpoints, deaths and restarts come exactly
where the test wants them. The last ones simulate a whole job, with failures at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar, Final

import pytest

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.operators.sinks import RemovesLeftovers, RemovesUncovered, Sink
from penstock.runtime.testing.connectors.checks import (
    Guarantee,
    case,
    check_no_secret,
    check_rows,
    error_of,
    texts_of,
)
from penstock.runtime.testing.connectors.connector_tests import ConnectorTests
from penstock.runtime.testing.connectors.outside import Outside, arm, fates_of
from penstock.runtime.testing.connectors.sink_job import DISTURBED, STEPS, SinkJob, run_steps
from penstock.runtime.testing.connectors.worlds import (
    FATES,
    Death,
    HasSecret,
    ShowsHidden,
    SinkWorld,
    offered,
)

_DEATHS: Final[tuple[Death, ...]] = ("killed", "failed")

_EVERY_STEP: Final = tuple(name for name, _ in STEPS)

_ONCE = "each record must be visible once: `commit` must do nothing for data that is already visible"


class SinkTests(ConnectorTests[SinkWorld]):
    """Tests of a sink: subclass it, and return a `SinkWorld` from `make_world`.

    Attributes:
        guarantee: `"at_least_once"` allows records that are visible early or repeatedly after a failure.
        is_shared: Whether several jobs may write to one world at a time.
    """

    guarantee: ClassVar[Guarantee] = "exactly_once"
    is_shared: ClassVar[bool] = True
    steps: ClassVar[Sequence[str]] = _EVERY_STEP

    def bad_record(self) -> Any:
        """Return a record that the sink can't write; by default there is none."""
        pytest.skip(f"{type(self).__name__} has no bad_record: refused records are not tried")

    # -- fixtures -----------------------------------------------------------------------------------------

    @pytest.fixture
    def new_world(self, outside: Outside[SinkWorld]) -> Callable[[], SinkWorld]:
        """Makes empty worlds."""
        return outside.new

    @pytest.fixture
    def world(self, new_world: Callable[[], SinkWorld]) -> SinkWorld:
        """An empty world."""
        return new_world()

    @pytest.fixture
    def job(self, world: SinkWorld) -> SinkJob:
        """A job of twelve records in two subtasks."""
        return self.job_of(world)

    def job_of(self, world: SinkWorld) -> SinkJob:
        """Return a job of twelve records in two subtasks."""
        return SinkJob(world, self.records(12))

    def check(self, world: SinkWorld, expected: Sequence[Any], advice: str = _ONCE) -> None:
        """Compare the visible records with those that must be visible."""
        check_rows(world.rows(), expected, advice, self.guarantee)

    def check_hidden(self, world: SinkWorld, visible: Sequence[Any] = ()) -> None:
        """Check that only these records are visible."""
        if self.guarantee == "exactly_once":
            advice = "a record must stay invisible until `commit` is called for its checkpoint"
            check_rows(world.rows(), visible, advice)

    # -- a sink without failures --------------------------------------------------------------------------

    def test_it_is_a_sink(self, world: SinkWorld) -> None:
        assert isinstance(world, SinkWorld), f"{type(world).__name__} needs the methods sink and rows"
        sink = world.sink()
        assert isinstance(sink, Sink), f"{type(sink).__name__} has no method writer(context)"

    def test_each_record_is_visible_once_at_the_end(self, world: SinkWorld, job: SinkJob) -> None:
        job.start().finish()
        self.check(world, self.records(12))

    def test_a_record_is_hidden_until_its_checkpoint_is_complete(
        self, world: SinkWorld, job: SinkJob
    ) -> None:
        job.start()
        job.write(4)
        self.check_hidden(world)
        checkpoint = job.snapshot()
        self.check_hidden(world)
        job.write(4)
        job.complete(checkpoint)
        self.check_hidden(world, self.records(4))
        job.finish()
        self.check(world, self.records(12))

    def test_a_checkpoint_without_records_changes_nothing(self, world: SinkWorld, job: SinkJob) -> None:
        job.start()
        job.checkpoint()
        job.checkpoint()
        self.check(world, [])
        job.finish()
        self.check(world, self.records(12))

    def test_an_aborted_checkpoint_is_covered_by_the_next_one(self, world: SinkWorld, job: SinkJob) -> None:
        job.start()
        job.write(4)
        job.abort(job.snapshot())
        job.write(4)
        job.checkpoint()
        self.check(world, self.records(8), "a checkpoint must commit the data of aborted ones before it")
        job.finish()
        self.check(world, self.records(12))

    def test_a_checkpoint_makes_up_for_lost_notices_of_earlier_ones(
        self, world: SinkWorld, job: SinkJob
    ) -> None:
        job.start()
        for _ in range(2):
            job.write(3)
            job.decide(job.snapshot())
        job.write(3)
        job.checkpoint()
        self.check(world, self.records(9), "`commit` must commit all committables that it gets")
        job.finish()
        self.check(world, self.records(12))

    def test_checkpoints_may_overlap(self, world: SinkWorld, job: SinkJob) -> None:
        job.start()
        job.write(3)
        first = job.snapshot()
        job.write(3)
        second = job.snapshot()
        job.write(3)
        job.complete(first)
        self.check_hidden(world, self.records(3))
        job.complete(second)
        self.check_hidden(world, self.records(6))
        job.finish()
        self.check(world, self.records(12))

    def test_a_job_without_checkpoints_commits_at_its_end(self, world: SinkWorld) -> None:
        SinkJob(world, self.records(12), transactional=False).start().finish()
        self.check(world, self.records(12))

    def test_more_subtasks_than_records_are_no_problem(self, world: SinkWorld) -> None:
        SinkJob(world, self.records(2), parallelism=4).start().finish()
        self.check(world, self.records(2))

    def test_statistics_count_the_transactions(self, job: SinkJob) -> None:
        job.start()
        job.write(4)
        checkpoint = job.snapshot()
        waiting = [each.extra["uncommitted"] for each in job.statistics()]
        if self.guarantee == "exactly_once":
            assert any(waiting), "`prepare_commit` must return committables when records were written"
        job.complete(checkpoint)
        assert not any(each.extra["uncommitted"] for each in job.statistics())
        assert [each.extra["committed"] for each in job.statistics()] == waiting
        job.close()

    # -- deaths and restarts ------------------------------------------------------------------------------

    def test_a_death_after_any_step_loses_and_repeats_no_record(
        self, new_world: Callable[[], SinkWorld], step: str
    ) -> None:
        for death in _DEATHS:
            with case(f"the job is {death} after {step!r}"):
                world = new_world()
                job = self.job_of(world)
                run_steps(job, last=step)
                self.die(job, death)
                job.start().finish()
                self.check(world, self.records(12))

    def test_a_second_death_while_the_job_restarts_changes_nothing(
        self, world: SinkWorld, job: SinkJob, step: str
    ) -> None:
        run_steps(job, last=step)
        job.kill()
        job.start().kill()
        job.start()
        job.write(2)
        job.snapshot()
        job.kill()
        job.start().finish()
        self.check(world, self.records(12))

    def test_a_restore_at_another_parallelism_loses_and_repeats_no_record(
        self, new_world: Callable[[], SinkWorld], step: str
    ) -> None:
        for parallelism in (1, 3):
            with case(f"2 subtasks become {parallelism} after {step!r}"):
                world = new_world()
                job = self.job_of(world)
                run_steps(job, last=step)
                job.kill()
                job.start(parallelism=parallelism)
                job.write(2)
                job.checkpoint()
                job.close()
                job.start(parallelism=2).finish()
                self.check(world, self.records(12))

    def test_a_repeated_commit_changes_nothing(self, world: SinkWorld, job: SinkJob) -> None:
        job.start()
        job.write(4)
        checkpoint = job.checkpoint()
        for _ in range(2):
            job.close()
            job.start()
            self.check(world, self.records(4))
        job.notify(checkpoint)
        self.check(world, self.records(4))
        job.finish()
        self.check(world, self.records(12))

    def test_data_that_no_checkpoint_covers_is_removed_by_the_next_attempt(
        self, world: SinkWorld, job: SinkJob
    ) -> None:
        shows = offered(world, ShowsHidden, "leftovers of dead attempts are not searched")
        job.start()
        if not all(isinstance(writer, RemovesLeftovers) for writer in job.writers()):
            job.kill()
            pytest.skip(f"the writer of {type(job.sink()).__name__} has no remove_leftovers")
        job.write(4)
        job.snapshot()
        job.write(2)
        job.kill()
        job.start()
        job.write()
        job.checkpoint()
        assert not shows.hidden(), (
            f"after a checkpoint {shows.hidden()} is left: `remove_leftovers` must remove uncommitted data "
            "of earlier attempts"
        )
        job.finish()
        self.check(world, self.records(12))

    # -- two at a time ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("moment", ["write", "pre-commit", "complete", "commit", "second pre-commit"])
    def test_an_attempt_that_was_declared_dead_and_lives_on_changes_nothing(
        self, world: SinkWorld, job: SinkJob, moment: str
    ) -> None:
        """The old attempt was cut off. It still writes, and learns of an earlier completed checkpoint."""
        run_steps(job, last=moment)
        zombie = job.fork()
        known = job.completed
        job.start()
        job.write(3)
        self.on_its_own(zombie, lambda: zombie.write(2))
        job.checkpoint()
        self.on_its_own(zombie, zombie.snapshot)
        if known is not None:
            self.on_its_own(zombie, lambda: zombie.notify(known))
        job.write(2)
        taken = job.snapshot()
        self.on_its_own(zombie, zombie.close)
        job.complete(taken)
        job.finish()
        self.check(world, self.records(12), "an older attempt must not change what a newer one has written")

    def test_two_jobs_at_a_time_do_not_touch_each_others_data(self, world: SinkWorld) -> None:
        if not self.is_shared:
            pytest.skip(f"is_shared is false in {type(self).__name__}")
        one = SinkJob(world, self.records(6)).start()
        one.write(4)
        waiting = one.snapshot()
        other = SinkJob(world, self.records(6, first=6)).start()
        other.write(2)
        other.kill()
        other.start().finish()
        other.remove_uncovered()
        one.complete(waiting)
        one.finish()
        self.check(world, self.records(12), "names of transactions must contain the id of their job")

    # -- savepoints ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("drain", [False, True], ids=["stopped", "drained"])
    def test_a_job_that_is_stopped_with_a_savepoint_continues_from_it(
        self, world: SinkWorld, job: SinkJob, drain: bool
    ) -> None:
        job.start()
        job.write(5)
        if drain:
            job.end_of_data()
        savepoint = job.checkpoint()
        job.close()
        job.remove_uncovered()
        self.check(world, self.records(5), "a job that was stopped must leave all its records visible")
        SinkJob(world, self.records(12), restored=savepoint).start().finish()
        self.check(world, self.records(12))

    @pytest.mark.parametrize("same_job", [True, False], ids=["the same job", "a new job"])
    def test_a_restart_from_an_older_savepoint_loses_no_record(
        self, world: SinkWorld, job: SinkJob, same_job: bool
    ) -> None:
        """Visible data stays. Everything that the job writes from then on becomes visible, too."""
        job.start()
        job.write(3)
        savepoint = job.checkpoint()
        for _ in range(3):
            job.write(2)
            job.checkpoint()
        job.close()
        written = self.records(6, first=12)
        if same_job:
            job.completed = savepoint
            again = job.with_input([*self.records(3), *written])
        else:
            records = [*self.records(3), *written]
            again = SinkJob(world, records, restored=savepoint)
        again.start()
        again.write(3)
        again.checkpoint()
        again.finish()
        advice = (
            "a job that starts from an older savepoint writes new transactions, which must not be taken for "
            "committed ones: the id of the newest checkpoint does not distinguish them"
        )
        self.check(world, [*self.records(9), *written], advice)

    def test_a_restart_from_an_older_savepoint_commits_nothing_that_came_later(
        self, world: SinkWorld, job: SinkJob
    ) -> None:
        job.start()
        job.write(3)
        savepoint = job.checkpoint()
        job.write(3)
        job.snapshot()
        job.kill()
        again = SinkJob(world, self.records(12), restored=savepoint).start()
        self.check_hidden(world, self.records(3))
        job.remove_uncovered()
        again.finish()
        self.check(world, self.records(12))

    def test_a_cancelled_job_keeps_what_its_last_checkpoint_covers(
        self, world: SinkWorld, job: SinkJob
    ) -> None:
        job.start()
        job.write(4)
        job.decide(job.snapshot())
        job.write(2)
        job.snapshot()
        job.kill()
        job.remove_uncovered()
        last = job.completed
        assert last is not None
        if isinstance(world, ShowsHidden) and isinstance(job.sink(), RemovesUncovered):
            covered = len(world.hidden())
            assert covered, "`remove_uncovered` must not remove what a completed snapshot covers"
        again = SinkJob(world, self.records(12), restored=last).start()
        self.check_hidden(world, self.records(4))
        again.finish()
        self.check(world, self.records(12))

    # -- calls of the outside world   ---------------------------------------------------------------------

    @pytest.mark.parametrize("call", DISTURBED)
    def test_a_call_that_goes_wrong_loses_and_repeats_no_record(
        self, new_world: Callable[[], SinkWorld], call: str
    ) -> None:
        before, disturbed = DISTURBED[call]
        for fate in FATES:
            with case(f"{call!r}: {fate.value}"):
                world = new_world()
                calls = fates_of(world)
                job = self.job_of(world).start()
                job.write(2)
                job.checkpoint()
                before(job)
                if not arm(calls, fate):
                    job.kill()
                    continue
                error = error_of(lambda job=job: disturbed(job))  # type: ignore[misc]
                calls.next_fate(None)
                if error is None and job.is_running:  # the error of a sink with threads may come now
                    error_of(lambda job=job: (job.write(1), job.checkpoint()))  # type: ignore[misc]
                job.kill()
                job.start().finish()
                self.check(world, self.records(12), f"{_ONCE}; a failed request must raise an error")

    # -- records that can't be written --------------------------------------------------------------------

    def test_a_record_that_cannot_be_written_is_refused(self, world: SinkWorld) -> None:
        job = SinkJob(world, [*self.records(3), self.bad_record()], parallelism=1).start()
        job.write(3)
        job.checkpoint()
        with pytest.raises(PenstockError):
            job.finish()
        job.close()
        self.check(world, self.records(3), "a record that can't be written must not spoil the others")

    # -- secrets ------------------------------------------------------------------------------------------

    def test_no_text_shows_the_secret(
        self, world: SinkWorld, job: SinkJob, caplog: pytest.LogCaptureFixture
    ) -> None:
        secret = offered(world, HasSecret, "texts are not searched for it").secret
        caplog.set_level(logging.DEBUG)
        job.start()
        shown: list[tuple[str, str | bytes]] = []
        for each in (world.sink(), *job.writers()):
            shown += [(f"repr of {type(each).__name__}", repr(each)), (f"{type(each).__name__}", str(each))]
        job.write(3)
        checkpoint = job.snapshot()
        shown += [("a checkpoint", data) for data in checkpoint.data]
        shown += [("a committable", repr(each)) for each in checkpoint.committables]
        job.complete(checkpoint)
        job.finish()
        env = StreamEnvironment("kit")
        env.from_collection("records", self.records(1)).sink("out", world.sink())
        shown += [("the graph", env.describe()), ("the log", caplog.text)]
        check_no_secret(secret, shown)

    def test_no_error_shows_the_secret(self, new_world: Callable[[], SinkWorld]) -> None:
        shown: list[tuple[str, str]] = []
        for fate, (before, disturbed) in product(FATES, DISTURBED.values()):
            world = new_world()
            secret = offered(world, HasSecret, "errors are not searched for it").secret
            calls = fates_of(world)
            job = self.job_of(world).start()
            before(job)
            if arm(calls, fate):
                error = error_of(lambda step=disturbed, job=job: step(job))  # type: ignore[misc]
                calls.next_fate(None)
                shown += [(text, secret) for text in texts_of(error)]
            job.kill()
        if not shown:
            pytest.skip(f"no call of {type(self).__name__} has failed: there is no error to look at")
        for text, secret in shown:
            check_no_secret(secret, [("an error", text)])

    # -- a whole job --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
    def test_a_simulated_job_with_failures_at_any_moment_loses_and_repeats_no_record(
        self, outside: Outside[SinkWorld], unaligned: bool
    ) -> None:
        if not self.simulated:
            pytest.skip(f"simulated is false in {type(self).__name__}")
        records = self.records(24)

        def build(world: Any) -> StreamEnvironment:
            checkpointing = Checkpointing(every=60, unaligned=unaligned)
            env = StreamEnvironment("kit", parallelism=2, checkpointing=checkpointing)
            env.from_collection("records", records).rebalance().sink("out", world.sink())
            return env

        equal = None if self.guarantee == "exactly_once" else _holds_all
        self.simulate(outside, build, lambda world: world.rows(), equal=equal)

    # -- what the tests share -----------------------------------------------------------------------------

    def die(self, job: SinkJob, death: Death) -> None:
        """Let the processes die, or close the writers as after an error."""
        if death == "killed":
            job.kill()
        else:
            job.close()

    def on_its_own(self, zombie: SinkJob, step: Callable[[], object]) -> None:
        """Run a step of an attempt that was declared dead; the outside world may refuse it."""
        if error_of(step) is not None:
            zombie.kill()


def _holds_all(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    left = list(found)
    return all(row in left for row in expected)
