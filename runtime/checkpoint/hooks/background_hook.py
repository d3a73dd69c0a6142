"""`BackgroundHook`: a master hook whose calls may block.

Users' hooks talk to systems outside and wait for them. So all calls run in the background, one after the
other: the next one begins when the one before has returned, also across attempts of the job. Answers come
back to the coordinator's thread. A restore ends later than its call; `when_restored` tells when. So does the
close; `when_closed` tells when. No error of a user's hook is raised here: each is handed to whoever waits.

A call that never returns holds back this hook and nothing else. Of the calls that wait behind it only the
newest is kept: the checkpoints of the older ones have been aborted by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.runtime.checkpoint.hooks.master_hooks import HookAnswer
from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.coordinators.master_hook import MasterHook
from penstock.runtime.ports import AsyncRunner


class HookOvertakenError(PenstockError):
    """A call was dropped: an earlier call of the hook has not returned, and a newer one waits."""


@dataclass(slots=True)
class _Call:
    """One call of a hook."""

    work: Callable[[], Any]
    on_result: Callable[[Any], None]
    on_error: Callable[[BaseException], None]


@dataclass(slots=True)
class _Outcome:
    """The outcome of a restore, a reset or the close."""

    is_over: bool = False
    error: BaseException | None = None
    waiting: list[Callable[[BaseException | None], None]] = field(default_factory=list)

    def end(self, error: BaseException | None) -> None:
        self.is_over, self.error = True, error
        waiting, self.waiting = self.waiting, []
        for tell in waiting:
            tell(error)

    def when_over(self, tell: Callable[[BaseException | None], None]) -> None:
        if self.is_over:
            tell(self.error)
        else:
            self.waiting.append(tell)


class BackgroundHook:
    """Runs a blocking hook beside the coordinator.

    Args:
        hook: The user's.

    Attributes:
        identifier: The hook's, asked once.
    """

    def __init__(self, hook: MasterHook, runner: AsyncRunner) -> None:
        self.identifier = hook.identifier
        self._hook = hook
        self._runner = runner
        self._is_busy = False
        self._waiting: _Call | None = None
        self._restore = _Outcome(is_over=True)
        self._close = _Outcome()

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float, answer: HookAnswer) -> None:
        """Trigger the hook in the background; `answer` is called in the coordinator's thread."""
        self._put(
            _Call(
                lambda: self._hook.trigger_checkpoint(checkpoint_id, timestamp), answer.complete, answer.fail
            )
        )

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """Restore the hook in the background; `when_restored` tells when it is done."""
        self._bring_back(lambda: self._hook.restore_checkpoint(checkpoint_id, state))

    def reset(self) -> None:
        """Reset the hook in the background; `when_restored` tells when it is done."""
        self._bring_back(lambda: self._hook.reset())

    @property
    def is_restored(self) -> bool:
        """Whether the last restore or reset is over."""
        return self._restore.is_over

    def when_restored(self, tell: Callable[[BaseException | None], None]) -> None:
        """Call `tell` with the error or `None` when the last restore or reset is over; at once if it is.

        A restore that a newer one has overtaken fails with `HookOvertakenError`.
        """
        self._restore.when_over(tell)

    def close(self) -> None:
        """Close the hook after its last call has returned; `when_closed` tells when it is done."""
        self._put(_Call(lambda: self._hook.close(), lambda _: self._close.end(None), self._close.end))

    @property
    def is_closed(self) -> bool:
        """Whether the close is over."""
        return self._close.is_over

    def when_closed(self, tell: Callable[[BaseException | None], None]) -> None:
        """Call `tell` with the error or `None` when the close is over; at once if it is."""
        self._close.when_over(tell)

    def _bring_back(self, work: Callable[[], None]) -> None:
        restore = self._restore = _Outcome()
        self._put(_Call(work, lambda _: restore.end(None), restore.end))

    def _put(self, call: _Call) -> None:
        if not self._is_busy:
            self._run(call)
            return
        overtaken, self._waiting = self._waiting, call
        if overtaken is not None:
            msg = f"an earlier call of the master hook {self.identifier!r} has not come back"
            overtaken.on_error(HookOvertakenError(msg))

    def _run(self, call: _Call) -> None:
        self._is_busy = True
        self._runner.run(
            call.work,
            lambda result: self._over(lambda: call.on_result(result)),
            lambda error: self._over(lambda: call.on_error(error)),
        )

    def _over(self, tell: Callable[[], None]) -> None:
        self._is_busy = False
        call, self._waiting = self._waiting, None
        if call is not None:
            self._run(call)
        tell()
