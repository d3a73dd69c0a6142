"""Master hooks: users' code in the JobMaster that takes part in every checkpoint.

When a checkpoint starts, each hook (Flink's `MasterTriggerRestoreHook`) is triggered before any subtask. It
may return a state, which is written into the checkpoint's metadata. Hooks serve external systems that cut
their data at the checkpoint. An *externally induced* source waits for a mark in its data, and its hook asks
the system to write that mark.

A restore gives every hook its state back. State without a hook would be lost silently. So such a restore is
refused, before any hook is called, unless the user allowed it.

All methods of a hook are called in the coordinator's thread and must not block. `trigger_checkpoint` may
answer later, in the same thread.

Users' hooks wait for external systems, so `BackgroundHook` runs their calls in the background, one after
another, even across attempts of the job. Results and errors return to the coordinator's thread.
`when_restored` and `when_closed` report the end of a restore and a close. A call that never returns blocks
only later calls of its hook, and checkpoints fail meanwhile. Only the newest waiting call is kept, because
the checkpoints of older calls have been aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.runtime.errors import CodecError, PenstockError
from penstock.runtime.names import problem_with_name
from penstock.runtime.operators.coordinators import FirstAnswer, MasterHook
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.ports import AsyncRunner
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import MasterState


class UnmatchedMasterStateError(PenstockError):
    """A checkpoint holds the state of a master hook that the job does not have."""


class HookAnswer(Protocol):
    """Takes the answer of a hook; only the first one counts."""

    def complete(self, state: Any | None = None) -> None:
        """Report success; `state` is `None` or any value that the codec can encode."""
        ...

    def fail(self, error: BaseException) -> None: ...


class MasterTriggerRestoreHook(Protocol):
    """A hook; the module's docstring says which thread calls it."""

    @property
    def identifier(self) -> str:
        """Name of the hook's state, unique in the job and constant for its life."""
        ...

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float, answer: HookAnswer) -> None:
        """Do the hook's part of a checkpoint that was triggered at `timestamp`, in wall-clock seconds."""
        ...

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


class MasterHooks:
    def __init__(self, codec: ValueCodec | None = None) -> None:
        self._codec = codec or ValueCodec()
        self._hooks: dict[str, MasterTriggerRestoreHook] = {}

    @property
    def identifiers(self) -> tuple[str, ...]:
        return tuple(self._hooks)

    def add(self, hook: MasterTriggerRestoreHook) -> bool:
        """Add a hook; return false if the job already has a hook with this identifier."""
        if hook is None:
            msg = "there is no hook to add"
            raise TypeError(msg)
        identifier = hook.identifier
        problem = problem_with_name(identifier)
        if problem is not None:
            msg = f"a master hook has the identifier {identifier!r:.80}: {problem}"
            raise ValueError(msg)
        if identifier in self._hooks:
            return False
        self._hooks[identifier] = hook
        return True

    def trigger(
        self,
        identifier: str,
        checkpoint_id: int,
        timestamp: float,
        on_state: Callable[[MasterState | None], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        def answered(state: Any) -> None:
            try:
                kept = None if state is None else MasterState(identifier, self._codec.dumps(state))
            except BaseException as error:  # methods of the user's state run while it is encoded
                on_failed(error)
            else:
                on_state(kept)

        answer = FirstAnswer(answered, on_failed)
        try:
            self._hooks[identifier].trigger_checkpoint(checkpoint_id, timestamp, answer)
        except BaseException as error:  # the user's hook may raise anything; the checkpoint is aborted
            answer.fail(error)

    def restore(
        self, checkpoint_id: int, states: Iterable[MasterState], *, allow_non_restored: bool = False
    ) -> None:
        """Restore every hook to its state in this checkpoint; a hook without one gets `None`.

        Raises:
            UnmatchedMasterStateError: A state belongs to a hook that the job does not have; no hook was
                called.
            CodecError: A state can't be decoded; no hook was called.
        """
        by_name = {state.identifier: state for state in states}
        unmatched = sorted(by_name.keys() - self._hooks.keys())
        if unmatched and not allow_non_restored:
            msg = (
                f"checkpoint {checkpoint_id} holds state of master hooks that the job no longer has: "
                f"{', '.join(unmatched)}. Add each of them again under the same identifier, or restore with "
                "allow_non_restored_state=True to drop the state"
            )
            raise UnmatchedMasterStateError(msg)
        values = {
            name: self._decoded(checkpoint_id, by_name[name]) for name in self._hooks if name in by_name
        }
        for identifier, hook in self._hooks.items():
            hook.restore_checkpoint(checkpoint_id, values.get(identifier))

    def reset(self) -> None:
        for hook in self._hooks.values():
            hook.reset()

    def close(self) -> None:
        """Close every hook, once, and forget it."""
        hooks, self._hooks = self._hooks, {}
        for hook in hooks.values():
            hook.close()

    def _decoded(self, checkpoint_id: int, state: MasterState) -> Any:
        try:
            return self._codec.loads(state.data)
        except CodecError as error:
            msg = f"the state of the master hook {state.identifier!r} in checkpoint {checkpoint_id}: {error}"
            raise CodecError(msg) from error


class HookOvertakenError(PenstockError):
    """A call was dropped, because an earlier call of the hook is still running and a newer call waits."""


@dataclass(slots=True)
class _Call:
    work: Callable[[], Any]
    on_result: Callable[[Any], None]
    on_error: Callable[[BaseException], None]


@dataclass(slots=True)
class _Outcome:
    is_over: bool = False
    error: BaseException | None = None
    waiting: list[Callable[[BaseException | None], None]] = field(default_factory=list)

    def end(self, error: BaseException | None) -> None:
        self.is_over, self.error = True, error
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)

    def when_over(self, callback: Callable[[BaseException | None], None]) -> None:
        if self.is_over:
            callback(self.error)
        else:
            self.waiting.append(callback)


class BackgroundHook:
    def __init__(self, hook: MasterHook, runner: AsyncRunner) -> None:
        self.identifier = hook.identifier
        self._hook = hook
        self._runner = runner
        self._is_busy = False
        self._waiting: _Call | None = None
        self._restore = _Outcome(is_over=True)
        self._close = _Outcome()

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float, answer: HookAnswer) -> None:
        trigger = self._calling("trigger_checkpoint", checkpoint_id, timestamp)
        self._put(_Call(trigger, answer.complete, answer.fail))

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        self._begin_restore(self._calling("restore_checkpoint", checkpoint_id, state))

    def reset(self) -> None:
        self._begin_restore(self._calling("reset"))

    @property
    def is_restored(self) -> bool:
        return self._restore.is_over

    def when_restored(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call back with the error or `None` after the last restore or reset; at once if it has ended."""
        self._restore.when_over(callback)

    def close(self) -> None:
        """Close the hook after the running call, if any, has returned; a waiting call is dropped."""
        self._put(_Call(self._calling("close"), lambda _: self._close.end(None), self._close.end))

    def when_closed(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call back with the error or `None` after the close; at once if the hook is closed."""
        self._close.when_over(callback)

    def _calling(self, name: str, *arguments: Any) -> Callable[[], Any]:
        def call() -> Any:
            returned = getattr(self._hook, name)(*arguments)
            check_has_run(name, returned)
            return returned

        return call

    def _begin_restore(self, work: Callable[[], Any]) -> None:
        restore = self._restore = _Outcome()
        self._put(_Call(work, lambda _: restore.end(None), restore.end))

    def _put(self, call: _Call) -> None:
        if not self._is_busy:
            self._run(call)
            return
        overtaken, self._waiting = self._waiting, call
        if overtaken is not None:
            msg = f"an earlier call of the master hook {self.identifier!r} has not returned"
            overtaken.on_error(HookOvertakenError(msg))

    def _run(self, call: _Call) -> None:
        self._is_busy = True
        self._runner.run(
            call.work,
            lambda result: self._returned(lambda: call.on_result(result)),
            lambda error: self._returned(lambda: call.on_error(error)),
        )

    def _returned(self, report: Callable[[], None]) -> None:
        self._is_busy = False
        call, self._waiting = self._waiting, None
        if call is not None:
            self._run(call)
        report()
