"""Writes the end of a job into the decision log, with retries, and removes what nobody needs any more.

Only the record makes an end final: a JobMaster that comes back later finds it and does nothing. A storage
that does not answer is tried a few times. If it stays away, the job ends all the same, with a note that says
so. Files are deleted after the record is written: until then the job could be restored from them.

Coordinators and master hooks are closed beside the deletions. Neither waits for the other: a hook that fails
or hangs keeps no file. The job has ended when both are over, or the hooks have taken too long. Whatever went
wrong is in the note and a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.job.job_ledger import LostToOther
from penstock.runtime.job.job_state import JobState

if TYPE_CHECKING:
    from penstock.runtime.job.context import JobContext

#: Seconds before each further try.
RETRIES: Final = (1.0, 2.0, 4.0, 8.0, 16.0)


class EndOfJob:
    """Records how a job ended."""

    def __init__(self, job: JobContext) -> None:
        self._job = job

    def record(self, state: JobState, cause: str, then: Callable[[str], None], tried: int = 0) -> None:
        """Write the end.

        Args:
            state: The job's last state.
            cause: Why the job ended.
            then: Called once, with an empty note, or with one that says what went wrong.
            tried: Number of earlier tries.
        """
        job = self._job
        now = job.clock.now()

        def written(outcome: LostToOther | None) -> None:
            if outcome is not None:
                job.fence()
            else:
                self._clear_away(lambda ended: self._remove_uncovered(state, ended), then)

        def failed(error: BaseException) -> None:
            is_damaged = isinstance(error, CorruptSnapshotError)  # waiting does not mend it
            if tried < len(RETRIES) and not is_damaged:
                job.timers.call_later(RETRIES[tried], lambda: self.record(state, cause, then, tried + 1))
            else:
                note = f"its end could not be recorded: {type(error).__name__}: {error}"
                self._clear_away(lambda ended: ended(note), then)

        job.runner.run(lambda: job.ledger.end(state, cause, now), written, failed)

    def _clear_away(
        self, delete: Callable[[Callable[[str], None]], None], then: Callable[[str], None]
    ) -> None:
        """Close what operators have in the JobMaster, and delete files; go on when both are over."""
        job = self._job
        notes: dict[str, str] = {}

        def ended(part: str, note: str) -> None:
            notes[part] = note
            if len(notes) == 2:
                then("; ".join(filter(None, (notes["files"], notes["operators"]))))

        def closed(problems: str) -> None:
            if problems:
                job.warning = problems
            ended("operators", problems)

        delete(lambda note: ended("files", note))
        job.close_operators(closed)

    def _remove_uncovered(self, state: JobState, then: Callable[[str], None]) -> None:
        """Remove uncommitted output, before the checkpoints go that tell what is covered."""
        job = self._job
        output = job.uncovered
        if state is JobState.FINISHED or output is None or not output.is_known:
            self._delete_files(state, then)
            return

        def failed(error: BaseException) -> None:
            what = f"what its sinks had not committed could not be removed: {type(error).__name__}: {error}"
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
            then(f"its checkpoints could not be deleted: {type(error).__name__}: {error}")

        def delete() -> None:
            job.runner.run(lambda: job.ledger.delete_at_end(paths), lambda _: then(""), failed)

        # A place that is being prepared would come into being behind the deletions.
        coordinator.when_no_place_is_awaited(delete)
