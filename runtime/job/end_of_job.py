"""Writes the end of a job into the decision log, with retries, and removes what nobody needs any more.

Only the record makes an end final: a JobMaster that comes back later finds it and does nothing. A storage
that does not answer is tried a few times. If it stays away, the job ends all the same, with a note that says
so. Only the job's last report, which the cluster keeps, says then that it has ended. Files are deleted after
the record is written: until then the job could be restored from them.

Coordinators and master hooks are closed beside the deletions. Neither waits for the other: a hook that fails
or hangs keeps no file. The job has ended when both are over, or have taken too long. So no storage that
hangs, nor the place of a sink's output, holds the end up. Whatever went wrong is in the note and a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError, StorageTimeoutError
from penstock.runtime.job.job_ledger import EndedBefore, LostToOther
from penstock.runtime.job.job_state import JobState
from penstock.runtime.ports import Cancellable

if TYPE_CHECKING:
    from penstock.runtime.job.context import JobContext
    from penstock.runtime.job.failure import FailureCause

#: Seconds before each further try.
RETRIES: Final = (1.0, 2.0, 4.0, 8.0, 16.0)


class EndOfJob:
    """Records how a job ended."""

    def __init__(self, job: JobContext) -> None:
        self._job = job

    def record(
        self,
        state: JobState,
        cause: str,
        then: Callable[[str], None],
        ended_before: Callable[[EndedBefore], None],
        failure: FailureCause | None = None,
    ) -> None:
        """Write the end; `storage_timeout` bounds the wait for it, with all tries.

        Args:
            state: The job's last state.
            cause: Why the job ended.
            then: Called once, with an empty note, or with one that says what went wrong.
            ended_before: Called instead if the log has another end.
            failure: The failure behind `cause`.
        """
        job, timeout = self._job, self._job.ledger.storage_timeout
        pending: list[Cancellable | None] = [None]

        def settle(go_on: Callable[[], None]) -> None:
            """The first outcome counts; a record that gets in later changes nothing any more."""
            if pending:
                timer = pending.pop()
                if timer is not None:
                    timer.cancel()
                go_on()

        def give_up() -> None:
            late = StorageTimeoutError(f"the storage did not answer within {timeout:g} s (storage_timeout)")
            settle(lambda: self._give_up(late, then))

        if timeout is not None:
            pending[0] = job.timers.call_later(timeout, give_up)

        def written(outcome: EndedBefore | LostToOther | None) -> None:
            match outcome:
                case LostToOther():
                    settle(job.fence)
                case EndedBefore() as before:
                    settle(lambda: self._ended_before(state, before, ended_before))
                case None:
                    settle(lambda: self._clear_away(lambda end: self._remove_uncovered(state, end), then))

        now = job.clock.now()

        def write() -> EndedBefore | LostToOther | None:
            return job.ledger.end(state, cause, now, failure)

        self._try(write, written, lambda error: settle(lambda: self._give_up(error, then)), 0)

    def _ended_before(
        self, wanted: JobState, before: EndedBefore, then: Callable[[EndedBefore], None]
    ) -> None:
        """Go on behind the end that the log has; of another end than wanted, its writer deletes the files."""

        def ended(note: str) -> None:
            if note:
                self._job.warning = note
            then(before)

        is_same = before.state is wanted
        self._clear_away(partial(self._remove_uncovered, wanted) if is_same else _nothing_to_delete, ended)

    def _try(
        self,
        write: Callable[[], EndedBefore | LostToOther | None],
        written: Callable[[EndedBefore | LostToOther | None], None],
        give_up: Callable[[BaseException], None],
        tried: int,
    ) -> None:
        job = self._job

        def failed(error: BaseException) -> None:
            # Waiting mends no damage, and a storage that hung was waited for.
            is_final = isinstance(error, CorruptSnapshotError | StorageTimeoutError)
            if tried < len(RETRIES) and not is_final:
                again = partial(self._try, write, written, give_up, tried + 1)
                job.timers.call_later(RETRIES[tried], again)
            else:
                give_up(error)

        job.runner.run(write, written, failed)

    def _give_up(self, error: BaseException, then: Callable[[str], None]) -> None:
        note = f"its end could not be recorded: {error_text(error)}"
        self._clear_away(lambda ended: ended(note), then)

    def _clear_away(
        self, delete: Callable[[Callable[[str], None]], None], then: Callable[[str], None]
    ) -> None:
        """Close what operators have in the JobMaster, and delete files; go on when both are over.

        The wait for the files has a bound of its own, `storage_timeout`.
        """
        job, timeout = self._job, self._job.ledger.storage_timeout
        notes: dict[str, str] = {}
        pending: list[Cancellable] = []

        def ended(part: str, note: str) -> None:
            if part in notes:
                return  # it was given up before
            notes[part] = note
            if part == "files":
                for timer in pending:
                    timer.cancel()
            if len(notes) == 2:
                then("; ".join(filter(None, (notes["files"], notes["operators"]))))

        if timeout is not None:
            late = f"files that nobody needs were not removed within {timeout:g} s (storage_timeout)"
            pending.append(job.timers.call_later(timeout, lambda: ended("files", late)))

        def closed(problems: str) -> None:
            if problems:
                job.warning = problems
            ended("operators", problems)

        delete(lambda note: ended("files", note))
        job.close_operators(closed)

    def _remove_uncovered(self, state: JobState, then: Callable[[str], None]) -> None:
        """Remove uncommitted output, before the checkpoints go that tell what is covered.

        A job that has finished in its first attempt has none. Behind a failed attempt the sinks remove it
        when a checkpoint is complete. But an attempt may be there for the last commits alone, and see none.
        """
        job = self._job
        output = job.uncovered
        is_clean = state is JobState.FINISHED and job.attempt == 1
        if is_clean or output is None or not output.is_known:
            self._delete_files(state, then)
            return

        def failed(error: BaseException) -> None:
            what = f"what its sinks had not committed could not be removed: {error_text(error)}"
            self._delete_files(state, lambda note: then("; ".join(filter(None, (what, note)))))

        job.runner.run(
            lambda: output.remove(job.ledger.newest()), lambda _: self._delete_files(state, then), failed
        )

    def _delete_files(self, state: JobState, then: Callable[[str], None]) -> None:
        job, coordinator = self._job, self._job.coordinator
        if coordinator is None:
            then("")
            return
        paths = coordinator.end_job(state.value)

        def failed(error: BaseException) -> None:
            then(f"its checkpoints could not be deleted: {error_text(error)}")

        def delete() -> None:
            job.runner.run(lambda: job.ledger.delete_at_end(state, paths), lambda _: then(""), failed)

        # A place that is being prepared would come into being behind the deletions.
        coordinator.when_no_place_is_awaited(delete)


def _nothing_to_delete(ended: Callable[[str], None]) -> None:
    """Whoever recorded the job's end deletes its files."""
    ended("")
