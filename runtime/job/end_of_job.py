"""The end of a job: its record, uncovered output, and the closing of coordinators and master hooks.

`EndOfJob`: only the record in the decision log makes an end final. A JobMaster that restarts later finds the
record and only reports that end. Writes to an unavailable storage are retried a few times. Then the job ends
anyway, with a note, and only its last report shows the end. Files are deleted after the record is written:
until then the job could be restored from them. Coordinators and hooks are closed during the deletions. The
closing and the deletions each have a timeout, so a hook or a storage that hangs can't block the end.

`UncoveredOutput`: removes output that can't be committed any more. Output can be committed only if a
completed snapshot names it, and the newest snapshot names all such output. So all other output is removed, on
two conditions:

1. *The end of the job is in the log.* No checkpoint completes later. A process that is cut off and still runs
   gets no permit to commit the removed output. Output that it writes afterwards stays.
2. *The newest snapshot could be read.* Otherwise nothing is removed.

`ClosingOperators`: waits for the closing of master hooks, and collects errors of hooks and coordinators. Both
are users' code: a call may fail, and a call of a hook may never return. The end is already decided. So an
error of a hook or a coordinator is only reported to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError, StorageError, StorageTimeoutError
from penstock.runtime.graph.job_graph import JobGraph, sinks_of
from penstock.runtime.job.job_ledger import EndedBefore, LostToOther
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.committed_sink import COMMITTER_SUFFIX
from penstock.runtime.operators.sinks import COMMITTABLES, RemovesUncovered
from penstock.runtime.ports import Cancellable, SnapshotStorage, StorageOpener, TimerService
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.metadata import decode_atoms, read_state

if TYPE_CHECKING:
    from penstock.runtime.job.context import JobContext
    from penstock.runtime.job.failover import FailureCause


#: Seconds before each retry.
RETRIES: Final = (1.0, 2.0, 4.0, 8.0, 16.0)


class EndOfJob:
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
        """Write the end; `storage_timeout` limits the wait for all tries together.

        Args:
            then: Called once, with an empty note or a description of the errors. Not called if another
                JobMaster has taken the job over.
            ended_before: Called instead if the log already has an end.
        """
        job, timeout = self._job, self._job.ledger.storage_timeout
        pending: list[Cancellable | None] = [None]

        def settle(act: Callable[[], None]) -> None:
            """Act on the first outcome; a record that is written later changes nothing."""
            if pending:
                timer = pending.pop()
                if timer is not None:
                    timer.cancel()
                act()

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
        """Accept the end in the log; if it differs from `wanted`, its writer deletes the files."""

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
            # Waiting repairs no damage, and a storage that hangs has used up its timeout.
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
        """Close coordinators and hooks, and delete files; continue when both are done.

        The deletion has its own timeout, `storage_timeout`.
        """
        job, timeout = self._job, self._job.ledger.storage_timeout
        notes: dict[str, str] = {}
        pending: list[Cancellable] = []

        def ended(part: str, note: str) -> None:
            if part in notes:
                return  # this part has timed out
            notes[part] = note
            if part == "files":
                for timer in pending:
                    timer.cancel()
            if len(notes) == 2:
                then("; ".join(filter(None, (notes["files"], notes["operators"]))))

        if timeout is not None:
            late = f"unneeded files were not removed within {timeout:g} s (storage_timeout)"
            pending.append(job.timers.call_later(timeout, lambda: ended("files", late)))

        def closed(problems: str) -> None:
            if problems:
                job.warning = problems
            ended("operators", problems)

        delete(lambda note: ended("files", note))
        job.operators.close(closed)

    def _remove_uncovered(self, state: JobState, then: Callable[[str], None]) -> None:
        """Remove uncommitted output, before the deletion of the checkpoints that say what is covered.

        A job that finished in its first attempt has no such output. After a failed attempt, sinks remove it
        when a checkpoint is complete. But an attempt that only commits may take no checkpoint.
        """
        job = self._job
        output = job.uncovered
        is_clean = state is JobState.FINISHED and job.attempt == 1
        if is_clean or not output.is_known:
            self._delete_files(state, then)
            return

        def failed(error: BaseException) -> None:
            what = f"uncommitted output of its sinks could not be removed: {error_text(error)}"
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

        # A location that is still being prepared would appear after the deletions.
        coordinator.when_no_place_is_awaited(delete)


def _nothing_to_delete(ended: Callable[[str], None]) -> None:
    ended("")


class UncoveredOutput:
    def __init__(
        self,
        job_id: str,
        graph: JobGraph,
        codec: ValueCodec,
        storage: SnapshotStorage,
        open_location: StorageOpener | None,
    ) -> None:
        self._job_id = job_id
        self._codec = codec
        self._storage = storage
        self._open_location = open_location
        self._sinks = dict(_cleaning_sinks(graph))

    @property
    def is_known(self) -> bool:
        return bool(self._sinks)

    def remove(self, newest: CompletedCheckpoint | None) -> None:
        """Remove what the newest snapshot does not cover; blocks. The job's end must be in the log."""
        covered = {
            operator: list(self._covered(committing, newest))
            for operator, (committing, _) in self._sinks.items()
        }
        for operator, (_, sink) in self._sinks.items():
            sink.remove_uncovered(self._job_id, operator, covered[operator])

    def _covered(self, operator: str, newest: CompletedCheckpoint | None) -> Iterator[Any]:
        state = None if newest is None else newest.operators.get(operator)
        if newest is None or state is None:
            return
        place = self._place(newest)
        for subtask in state.subtasks.values():
            for handle in subtask.operator:
                if handle.name == COMMITTABLES:
                    for atom in decode_atoms(read_state(place, handle.state), "the newest snapshot"):
                        _, committable = self._codec.loads(atom)
                        yield committable

    def _place(self, checkpoint: CompletedCheckpoint) -> SnapshotStorage:
        if checkpoint.location is None:
            return self._storage
        if self._open_location is None:
            msg = f"this JobMaster can't open {checkpoint.location}, the job's newest savepoint"
            raise StorageError(msg)
        return self._open_location(checkpoint.location)


def _cleaning_sinks(graph: JobGraph) -> Iterator[tuple[str, tuple[str, RemovesUncovered]]]:
    """The ids of sinks that clean up, each with the id of the operator that commits and the sink."""
    for spec, sink in sinks_of(graph):
        if isinstance(sink, RemovesUncovered):
            yield spec.id, (spec.id + COMMITTER_SUFFIX if spec.has_committer else spec.id, sink)


#: Seconds that an ended job waits for its master hooks to be closed.
CLOSE_TIMEOUT: Final = 5.0


class ClosingOperators:
    """Collects errors until all hooks are closed or `CLOSE_TIMEOUT` has passed.

    Args:
        hooks: Names of the hooks, with their operators, as users see them.
        then: Called once, by `begin` or later, with a description of all errors, or an empty one.
    """

    def __init__(self, hooks: Iterable[str], timers: TimerService, then: Callable[[str], None]) -> None:
        self._open = list(hooks)
        self._then: Callable[[str], None] | None = then
        self._problems: list[str] = []
        self._is_begun = False
        self._timer = timers.call_later(CLOSE_TIMEOUT, self._give_up)

    def begin(self) -> None:
        self._is_begun = True
        self._end_if_all_are_closed()

    def failed(self, problem: str) -> None:
        self._problems.append(problem)

    def closed(self, hook: str, problem: str = "") -> None:
        """Record that the call that closes a hook has ended; `problem` is empty after success."""
        self._open.remove(hook)
        if problem:
            self.failed(problem)
        self._end_if_all_are_closed()

    def _give_up(self) -> None:
        for hook in self._open:
            self.failed(
                f"{hook} was not closed within {CLOSE_TIMEOUT:g} s: one of its calls has not returned"
            )
        self._end()

    def _end_if_all_are_closed(self) -> None:
        if self._is_begun and not self._open:
            self._end()

    def _end(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            self._timer.cancel()
            then("; ".join(self._problems))
