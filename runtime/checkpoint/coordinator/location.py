"""The place of a snapshot: it can be written, its id is taken, a user's folder is tried.

`SnapshotLocation` is the first step of a checkpoint, in storage.

*The place.* A storage that can't be written fails every subtask of a checkpoint, after barriers have held up
the whole job. A savepoint in such a place would even end the data of a job that is to be stopped. So the
JobMaster writes a small file first. In a folder of the user's that file is deleted again. That is also done
when its write failed: the storage may have written it all the same. Its name is always the same. So a file
that a dying JobMaster has left is removed by the next savepoint into that folder. Several jobs may write and
delete it at a time. Only a folder in which nothing may be deleted keeps it. The storage removes folders that
it has made and that are empty.

*The id.* Master hooks put the id of a checkpoint into systems outside, as the mark of an externally induced
source. A JobMaster that dies before the checkpoint is complete leaves the mark there. If another one gave
the same id again, readers would take the new checkpoint at the old mark. So the id is written down before
any hook hears of it. One such file is kept, that of the newest id. In the job's own storage it is also the
proof that this can be written.

Why no id is given twice. An id is a file that is created only if it is absent, with the attempt as its text.
Attempts are unique by the decision log. Take an attempt and a newer one.

1. The old one writes the id, *then* looks into the log. The newer one writes itself into the log, *then*
   lists the ids, and begins behind the highest. So at least one of them sees the other: the old one is
   refused, or the newer one begins behind its id. This holds whatever was deleted meanwhile.
2. An attempt that finds the file of an older one takes the next id. It is a leftover, or its writer has
   given it. An attempt that finds the file of a newer one is past.
3. An attempt that finds its own file has written it: the answer was lost, or its earlier start was refused.
   No hook has heard of that id.

What it must never do: delete the file of the newest id, even if its write seems to have failed. It may be
that of another attempt by then. The next JobMaster removes what stays behind, or the end of the job does.

What it can't see: a place that the JobMaster's node can write and another node can't. Its subtasks decline
the checkpoint then.

`SavepointTargets`: a user's folder may be on a storage that hangs. Nothing else may wait for it: periodic
checkpoints continue, and a job that is to be stopped runs on. So a target is tried before its request reaches
the other requests. Each target has its own timeout. While the work of an old trial hangs, new requests for
the same target are refused at once, because each trial keeps a thread. Requests that come while a trial is
awaited share its outcome.

`WriteProbe`: blocking work in the background that is awaited for a while, because it may hang for ever. It
keeps a thread then. So one trial runs at a time. No other begins before the work of the last one has
returned, however long ago that was given up.
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

#: Name of the file that is written into a folder of the user's, and deleted.
TRIAL: Final = ".penstock-trial"
#: Not empty: a full disk takes empty files.
_TEXT: Final = b"A savepoint of a Penstock job is about to be written here. This file may be deleted.\n"

_GIVEN_BY: Final = re.compile(rb"given by attempt ([0-9]+)\n")


class PastAttemptError(StorageError):
    """A newer attempt of the job has begun, so this one gets no id; the message names it."""


class SnapshotLocation:
    """Prepares the places of one job's checkpoints and savepoints.

    Args:
        newer_attempt: Looks into the decision log for an attempt of another JobMaster; blocks.
    """

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
        """Take an id in the job's storage, and return it; blocks.

        Args:
            checkpoint_id: The id to take; the next one that is free when an older attempt has it.

        Raises:
            PastAttemptError: A newer attempt has begun.
            StorageError: The storage can't be written; the message names the place and the reason.
        """
        taken = next(each for each in count(checkpoint_id) if self._take(each, attempt))
        newer = self._newer_attempt()
        if newer is not None:
            raise PastAttemptError(self._is_past(taken, newer))
        older = map(self._paths.given_id, range(checkpoint_id - 1, taken))
        # What can't be deleted now is swept by the next JobMaster.
        with suppress(StorageError):
            self._storage.delete(older)
        return taken

    def try_target(self, target: str) -> None:
        """Try a folder of the user's, in which a savepoint is to get its own; blocks.

        Raises:
            StorageError: It can't be written; the message names the place and the reason.
        """
        if self._open_location is None:
            msg = f"no opener is given for {target}, which is outside of the job's storage"
            raise StorageError(msg)
        place = self._open_location(target, create=True)
        try:
            place.put(TRIAL, _TEXT)
        finally:
            # A savepoint needs no deletion. After a failed write, its error is the one to report.
            with suppress(StorageError):
                place.delete([TRIAL])

    def _take(self, checkpoint_id: int, attempt: int) -> bool:
        """Take an id; `False` when an older attempt has it."""
        path = self._paths.given_id(checkpoint_id)
        try:
            self._storage.put(path, b"given by attempt %d\n" % attempt, create=True)
        except ObjectExistsError:
            owner = self._owner(path)
            if owner is not None and owner > attempt:
                raise PastAttemptError(self._is_past(checkpoint_id, owner)) from None
            return owner == attempt
        return True

    def _owner(self, path: str) -> int | None:
        """The attempt that has written the file of an id; `None` when that can't be known any more."""
        try:
            found = _GIVEN_BY.fullmatch(self._storage.get(path))
        except ObjectNotFoundError:
            return None
        return None if found is None else int(found[1])

    def _is_past(self, checkpoint_id: int, newer: int) -> str:
        where = f"{self._storage.url}/{self._paths.given_id(checkpoint_id)}"
        return f"{where} is not for this attempt: attempt {newer} of the job has begun"


T = TypeVar("T")


class WriteProbe:
    """Runs one piece of work at a time, and reports its outcome or its timeout.

    Args:
        timeout: Seconds after which the wait ends.

    Attributes:
        is_running: Whether the work has not returned; it may outlive its timeout.
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

        Args:
            where: The place that is to answer, for the error after the timeout.

        Raises:
            RuntimeError: The last work still runs.
        """
        if self.is_running:
            msg = f"a trial of {where} can't begin: the work of the last one still runs"
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
        """Call back when no work is awaited: at once, or after the outcome was reported."""
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
    """Tries targets in the background.

    Args:
        try_target: Writes to the folder behind a URL; blocks, and raises when that is impossible.
        runner: Each target that hangs keeps one of its threads.
        timeout: Seconds within which a target has to answer.
    """

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

        Args:
            then: Called when it can be written.
            refuse: Called with the cause in words, which names the target.
            withdraw: Called with the arguments of `withdraw_all` when that ends the request.
        """
        self._targets = {known: each for known, each in self._targets.items() if each.trial.is_running}
        tried = self._targets.get(target)
        if tried is None:
            tried = self._targets[target] = _Target(WriteProbe(self._runner, self._timers, self._timeout))
        if tried.trial.hangs:
            refuse(f"{target} has not answered the last trial yet")
            return
        tried.waiting.append(_Waiting(then, refuse, withdraw))
        if not tried.trial.is_awaited:
            self._begin(target, tried)

    def withdraw_all(self, reason: Reason, detail: str) -> None:
        """No request is wanted any more; work that runs is left to itself."""
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
