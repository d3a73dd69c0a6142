"""Prepares a snapshot: checks that its location can be written, and assigns the id of its checkpoint.

*The location.* A storage that can't be written fails every subtask of a checkpoint, after barriers have
blocked the job. For a synchronous savepoint the subtasks would even end their data. So `SnapshotLocation`
writes a small file first. In a user's folder it deletes the file again, even after a failed write, which may
have stored it. The name is always the same, so the next savepoint into the folder removes the file of a dead
JobMaster. If only some other nodes can't write there, the check succeeds, and their subtasks decline the
checkpoint.

*The id.* Master hooks put the id of a checkpoint into external systems, as the mark of an externally induced
source. The mark stays when the JobMaster dies before the checkpoint is complete. If another JobMaster gave
the same id again, readers would take the new checkpoint at the old mark. So the id is written to a file
before any hook gets it. Only the file of the newest id is kept. In the job's own storage it also proves that
the storage can be written.

Why no id is given twice. The file of an id is created only if absent, and holds the attempt. Attempts are
unique by the decision log.

1. An old attempt writes the id, *then* reads the log. A newer attempt writes into the log, *then* lists the
   ids and begins above the highest. So the old attempt is refused, or the newer one begins above the
   old one's id, even if files were deleted meanwhile.
2. An attempt that finds the file of an older attempt takes the next id. One that finds the file of a newer
   attempt is fenced.
3. An attempt that finds its own file has lost the answer to its write, or its earlier start was refused. No
   hook has received that id.

`SnapshotLocation` must never delete the file of the newest id, even after a failed write, because another
attempt may have written the file. The next JobMaster, or the end of the job, removes old files.

`SavepointTargets`: a user's folder may be on a storage that hangs, and no other request may wait for it. So a
target is tried before its request enters the queue, with a timeout. While an old trial hangs, new requests
for the target are refused at once, because each trial occupies a thread. Requests during a trial share its
outcome.

`WriteProbe`: blocking work in the background, with a timeout. New work begins only after the previous work
has returned, even after a timeout, because hanging work occupies a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.runtime.ports import AsyncRunner, Cancellable, SnapshotStorage, StorageOpener, TimerService
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.paths import SnapshotPaths

#: Name of the file that is written into a user's folder, and deleted.
TRIAL: Final = ".penstock-trial"
#: Not empty, because a full disk accepts empty files.
_TEXT: Final = b"A savepoint of a Penstock job is about to be written here. This file may be deleted.\n"

_GIVEN_BY: Final = re.compile(rb"given by attempt ([0-9]+)\n")


class PastAttemptError(StorageError):
    """A newer attempt of the job has begun, so this one gets no id."""


class SnapshotLocation:
    """Prepares the locations of one job's checkpoints and savepoints; `newer_attempt` reads the log."""

    def __init__(
        self,
        storage: SnapshotStorage,
        paths: SnapshotPaths,
        newer_attempt: Callable[[], int | None],
        open_location: StorageOpener | None = None,
    ) -> None:
        self._storage = storage
        self._paths = paths
        self._newer_attempt = newer_attempt
        self._open_location = open_location

    def prepare(self, checkpoint_id: int, attempt: int) -> int:
        """Take and return the first id, `checkpoint_id` or higher, that no older attempt has; blocks.

        Raises:
            PastAttemptError: A newer attempt has begun.
            StorageError: The storage can't be written.
        """
        taken = next(number for number in count(checkpoint_id) if self._take(number, attempt))
        newer = self._newer_attempt()
        if newer is not None:
            raise PastAttemptError(self._is_past(taken, newer))
        older = map(self._paths.assigned_id, range(checkpoint_id - 1, taken))
        # The next JobMaster sweeps files that can't be deleted now.
        with suppress(StorageError):
            self._storage.delete(older)
        return taken

    def try_target(self, target: str) -> None:
        """Check that a user's folder for savepoints can be written; blocks."""
        if self._open_location is None:
            msg = f"no opener is given for {target}, which is outside the job's storage"
            raise StorageError(msg)
        place = self._open_location(target, create=True)
        try:
            place.put(TRIAL, _TEXT)
        finally:
            # A savepoint does not depend on the deletion, and a failed write has its own error.
            with suppress(StorageError):
                place.delete([TRIAL])

    def _take(self, checkpoint_id: int, attempt: int) -> bool:
        """Take an id; return false if an older attempt has it."""
        path = self._paths.assigned_id(checkpoint_id)
        try:
            self._storage.put(path, b"given by attempt %d\n" % attempt, create=True)
        except ObjectExistsError:
            owner = self._owner(path)
            if owner is not None and owner > attempt:
                raise PastAttemptError(self._is_past(checkpoint_id, owner)) from None
            return owner == attempt
        return True

    def _owner(self, path: str) -> int | None:
        """The attempt that wrote the file of an id; `None` if that is unknown."""
        try:
            found = _GIVEN_BY.fullmatch(self._storage.get(path))
        except ObjectNotFoundError:
            return None
        return None if found is None else int(found[1])

    def _is_past(self, checkpoint_id: int, newer: int) -> str:
        where = f"{self._storage.url}/{self._paths.assigned_id(checkpoint_id)}"
        return f"{where} is not for this attempt: attempt {newer} of the job has begun"


T = TypeVar("T")


class WriteProbe:
    """Runs one piece of work at a time; reports its outcome, or the expiry of `timeout` seconds.

    `is_running` stays true until the work has returned, perhaps after its timeout.
    """

    def __init__(self, runner: AsyncRunner, timers: TimerService, timeout: float) -> None:
        self._runner = runner
        self._timers = timers
        self._timeout = timeout
        self.is_running = False
        self._timer: Cancellable | None = None
        self._when_over: list[Callable[[], None]] = []

    @property
    def is_awaited(self) -> bool:
        return self._timer is not None

    @property
    def hangs(self) -> bool:
        return self.is_running and self._timer is None

    def begin(
        self,
        work: Callable[[], T],
        where: str,
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Run `work`; exactly one callback follows, at the latest after the timeout.

        The error after the timeout names `where`. A call while other work runs raises a `RuntimeError`.
        """
        if self.is_running:
            msg = f"a trial of {where} can't begin: the work of the last one is still running"
            raise RuntimeError(msg)
        late = TimeoutError(f"{where} did not answer within {self._timeout:g} s")

        def returned(report: Callable[[], None]) -> None:
            self.is_running = False
            self._end(report)

        self.is_running = True
        self._timer = self._timers.call_later(self._timeout, lambda: self._end(lambda: on_error(late)))
        self._runner.run(
            work,
            lambda result: returned(lambda: on_result(result)),
            lambda error: returned(lambda: on_error(error)),
        )

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back when no outcome is awaited: at once, or after it was reported."""
        if self.is_awaited:
            self._when_over.append(callback)
        else:
            callback()

    def _end(self, report: Callable[[], None]) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        report()
        callbacks, self._when_over = self._when_over, []
        for callback in callbacks:
            callback()


@dataclass(frozen=True, slots=True)
class _Waiting:
    then: Callable[[], None]
    refuse: Callable[[str], None]
    withdraw: Callable[[Reason, str], None]


@dataclass(slots=True)
class _Target:
    trial: WriteProbe
    waiting: list[_Waiting] = field(default_factory=list)


class SavepointTargets:
    """Tries targets in the background; each target that hangs occupies a thread of `runner`."""

    def __init__(
        self,
        try_target: Callable[[str], None],
        runner: AsyncRunner,
        timers: TimerService,
        timeout: float,
    ) -> None:
        self._try_target = try_target
        self._runner = runner
        self._timers = timers
        self._timeout = timeout
        self._targets: dict[str, _Target] = {}

    def request(
        self,
        target: str,
        then: Callable[[], None],
        refuse: Callable[[str], None],
        withdraw: Callable[[Reason, str], None],
    ) -> None:
        """Try a target for one request; exactly one of the callbacks follows.

        `refuse` gets a description of the failure; `withdraw_all` calls `withdraw`.
        """
        self._targets = {url: known for url, known in self._targets.items() if known.trial.is_running}
        tried = self._targets.get(target)
        if tried is None:
            tried = self._targets[target] = _Target(WriteProbe(self._runner, self._timers, self._timeout))
        if tried.trial.hangs:
            refuse(f"{target} has not yet answered the previous trial")
            return
        tried.waiting.append(_Waiting(then, refuse, withdraw))
        if not tried.trial.is_awaited:
            self._begin(target, tried)

    def withdraw_all(self, reason: Reason, detail: str) -> None:
        """Withdraw all requests; running trials continue."""
        for tried in tuple(self._targets.values()):
            while tried.waiting:
                tried.waiting.pop(0).withdraw(reason, detail)

    def _begin(self, target: str, tried: _Target) -> None:
        def try_target() -> None:
            self._try_target(target)

        def refused(error: BaseException) -> None:
            cause = str(error) if isinstance(error, StorageError | TimeoutError) else _named(error)
            while tried.waiting:
                tried.waiting.pop(0).refuse(cause)

        def written(_: None) -> None:
            while tried.waiting:
                tried.waiting.pop(0).then()

        tried.trial.begin(try_target, target, written, refused)


def _named(error: BaseException) -> str:
    return error_text(error)
