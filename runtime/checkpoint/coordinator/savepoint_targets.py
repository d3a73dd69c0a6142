"""`SavepointTargets`: tries the folders that users name for savepoints, before anything waits for them.

A user's folder may be on a storage that hangs. Nothing else may wait for it: periodic checkpoints go on, and
a job that is to be stopped runs on. So a target is tried before its request reaches the other requests. Each
target has its own timeout. While the work of an old trial hangs, new requests for the same target are refused
at once, because each trial keeps a thread. Requests that come while a trial is awaited share its outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.runtime.checkpoint.coordinator.trial import Trial
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import StorageError
from penstock.runtime.ports import AsyncRunner, TimerService
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason


@dataclass(frozen=True, slots=True)
class _Waiting:
    then: Callable[[], None]
    refuse: Callable[[str], None]
    withdraw: Callable[[Reason, str], None]


@dataclass(slots=True)
class _Target:
    trial: Trial
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
        url: str,
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
        target = self._targets.get(url)
        if target is None:
            target = self._targets[url] = _Target(Trial(self._runner, self._timers, self._timeout))
        if target.trial.hangs:
            refuse(f"{url} has not answered the last trial yet")
            return
        target.waiting.append(_Waiting(then, refuse, withdraw))
        if not target.trial.is_awaited:
            self._begin(url, target)

    def withdraw_all(self, reason: Reason, detail: str) -> None:
        """No request is wanted any more; work that runs is left to itself."""
        for target in tuple(self._targets.values()):
            while target.waiting:
                target.waiting.pop(0).withdraw(reason, detail)

    def _begin(self, url: str, target: _Target) -> None:
        def try_target() -> None:
            self._try_target(url)

        def refused(error: BaseException) -> None:
            cause = str(error) if isinstance(error, StorageError | TimeoutError) else _named(error)
            while target.waiting:
                target.waiting.pop(0).refuse(cause)

        def tried(_: None) -> None:
            while target.waiting:
                target.waiting.pop(0).then()

        target.trial.begin(try_target, url, tried, refused)


def _named(error: BaseException) -> str:
    return error_text(error)
