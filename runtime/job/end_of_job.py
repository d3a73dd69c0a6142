"""Writes the end of a job into the decision log, with retries, and removes what nobody needs any more.

Only the record makes an end final: a JobMaster that comes back later finds it and does nothing. A storage
that does not answer is tried a few times. If it stays away, the job ends all the same, with a note that says
so. Files are deleted after the record is written: until then the job could be restored from them.
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
            then: Called with an empty note when the record is written, or with a note when it can't be.
            tried: Number of earlier tries.
        """
        job = self._job
        now = job.clock.now()

        def written(outcome: LostToOther | None) -> None:
            if outcome is not None:
                job.fence()
            else:
                if job.operators is not None:
                    job.operators.close()
                self._remove_uncovered(state, then)

        def failed(error: BaseException) -> None:
            is_damaged = isinstance(error, CorruptSnapshotError)  # waiting does not mend it
            if tried < len(RETRIES) and not is_damaged:
                job.timers.call_later(RETRIES[tried], lambda: self.record(state, cause, then, tried + 1))
            else:
                then(f"its end could not be recorded: {type(error).__name__}: {error}")

        job.runner.run(lambda: job.ledger.end(state, cause, now), written, failed)

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
        job = self._job
        paths = () if job.coordinator is None else job.coordinator.end_job(state.value)
        if not paths:
            then("")
            return

        def failed(error: BaseException) -> None:
            then(f"its checkpoints could not be deleted: {type(error).__name__}: {error}")

        job.runner.run(lambda: job.ledger.delete(paths), lambda _: then(""), failed)
