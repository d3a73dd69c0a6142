"""The parts of a simulated process: timers, background work, coroutines, storage access and databases.

A `Suspension` models SIGSTOP and SIGCONT, a virtual machine that is migrated, or C code that holds the GIL. A
suspended process runs no step, no timer and no background work. Frames that it sent before still arrive. The
operating system buffers arriving frames until the process wakes up. A suspended process can be killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.errors import PenstockError
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend
from penstock.runtime.testing.harness_state import open_state_backend
from penstock.runtime.testing.manual_event_loop import ManualEventLoop, called_back
from penstock.runtime.testing.manual_time import ManualClock, ManualTimer, ManualTimers
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import SimulatedUserError, World

T = TypeVar("T")


class Suspension:
    """Whether one process can run; see the module's docstring."""

    __slots__ = ("_held", "_world", "is_frozen")

    def __init__(self, world: World) -> None:
        self.is_frozen = False
        self._world = world
        self._held: list[tuple[Happening, Callable[[], None], tuple[object, ...]]] = []

    def freeze(self) -> None:
        self.is_frozen = True

    def wake(self) -> None:
        """Continue the process; kept actions run in a random order."""
        self.is_frozen = False
        held, self._held = self._held, []
        for kind, act, what in held:
            self._world.agenda.add(kind, act, *what)

    def holds(self, kind: Happening, act: Callable[[], None], *what: object) -> bool:
        """Keep an action for later if the process can't run now; return whether it was kept."""
        if self.is_frozen:
            self._held.append((kind, act, what))
        return self.is_frozen


class ProcessTimers(ManualTimers):
    """Timers that fire in the order in which they are due, one per move, until their owner has ended."""

    def __init__(self, world: World, clock: ManualClock, suspension: Suspension, name: str) -> None:
        super().__init__(clock)
        self._world = world
        self._suspension = suspension
        self._name = name
        self._scheduled: float | None = None
        self._is_closed = False

    def call_later(self, delay: float, callback: Callable[[], None]) -> ManualTimer:
        timer = super().call_later(delay, callback)
        self._schedule()
        return timer

    def close(self) -> None:
        self._is_closed = True

    def _schedule(self) -> None:
        """Put the next timer on the agenda, unless it is there already."""
        due = self.next_due
        if due is None or (self._scheduled is not None and self._scheduled <= due):
            return
        self._scheduled = due
        at = self._world.clocks.in_world(self._clock, due)
        self._world.agenda.add(Happening.TIMER, lambda: self._fire(due), self._name, "timer", at=at)

    def _fire(self, due: float) -> None:
        if self._is_closed or self._suspension.holds(
            Happening.TIMER, lambda: self._fire(due), self._name, "timer"
        ):
            return
        if self._scheduled == due:
            self._scheduled = None
        next_due = self.next_due
        if next_due is not None and next_due <= self._clock.monotonic():
            self.fire_next()
        self._schedule()


class SimulatedWork:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Drop the outcome; the work may still be done."""
        self.is_cancelled = True


class SimulatedRunner:
    """An `AsyncRunner` that puts its work on the agenda.

    Args:
        guard: Runs callbacks in the owner's thread.
        guard_work: Runs the work itself.
        on_work: Called when work is requested.
        holds: `Suspension.holds` of the owner.
    """

    def __init__(
        self,
        world: World,
        owner: object,
        guard: Callable[[Callable[[], None]], None],
        guard_work: Callable[[Callable[[], object]], None],
        on_work: Callable[[], None],
        holds: Callable[..., bool],
    ) -> None:
        self._world = world
        self._owner = owner
        self._guard = guard
        self._guard_work = guard_work
        self._on_work = on_work
        self._holds = holds
        self._is_closed = False
        self._is_dead = False

    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> SimulatedWork:
        item, world = SimulatedWork(), self._world
        name = getattr(work, "__qualname__", type(work).__name__)
        at = world.slow_moment()

        def do() -> None:
            if not self._is_dead and not self._holds(Happening.WORK, do, self._owner, "does its work"):
                self._guard_work(attempt)

        def attempt() -> None:
            try:
                result = work()
            except Exception as error:
                is_known = isinstance(error, PenstockError | SimulatedUserError)
                if not is_known and not world.may_come_from_outside(error):
                    raise
                failure = error
                self._call_later(item, lambda: on_error(failure), "gets:", failure)
            else:
                self._call_later(item, lambda: on_result(result), "gets the result")

        world.agenda.add(Happening.WORK, do, self._owner, "does", name, at=at)
        self._on_work()
        return item

    def close(self) -> None:
        """Drop the outcomes of all work; the work itself may still be done."""
        self._is_closed = True

    def die(self) -> None:
        """Stop all work."""
        self._is_closed = self._is_dead = True

    def _call_later(self, item: SimulatedWork, callback: Callable[[], None], *what: object) -> None:
        def call() -> None:
            if item.is_cancelled or self._is_closed:
                return
            if not self._holds(Happening.WORK, call, self._owner, *what):
                self._guard(callback)

        at = self._world.take_lateness()
        self._world.agenda.add(Happening.WORK, call, self._owner, *what, at=at)


class SimulatedEventLoop:
    """An `EventLoop` whose coroutines run on the agenda, in the time of the process.

    Each call begins in its own move, and each answer arrives in its own. So calls overtake one another, and
    the process may die before any of these moves.

    Args:
        deliver: Runs a callback in the task's thread, and lets the task step.
        guard_work: Runs coroutines; `ProcessDied` ends the process.
        effect: Called before a call begins.
        holds: `Suspension.holds` of the process.
    """

    def __init__(
        self,
        world: World,
        owner: object,
        clock: ManualClock,
        deliver: Callable[[Callable[[], None]], None],
        guard_work: Callable[[Callable[[], object]], None],
        effect: Callable[[], None],
        holds: Callable[..., bool],
    ) -> None:
        self._world = world
        self._owner = owner
        self._clock = clock
        self._deliver = deliver
        self._guard_work = guard_work
        self._effect = effect
        self._holds = holds
        self._loop = ManualEventLoop(clock.monotonic)
        #: Keeps the tasks of a dead process referenced; otherwise garbage collection would run their
        #: `finally` blocks.
        self._tasks: list[asyncio.Task[Any]] = []
        self._scheduled: float | None = None
        self._is_closed = False

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        def answer(callback: Callable[[], None]) -> None:
            if not self._is_closed:
                self._add(lambda: self._deliver(callback), "gets an answer")

        def begin() -> None:
            self._effect()
            task = self._loop.create_task(called_back(work, on_result, on_error, answer))
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._tasks.append(task)
            self._run()

        self._add(lambda: self._guard_work(begin), "begins a call", at=self._world.slow_moment())

    def close(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        self._is_closed = True
        self._loop.end(self._tasks, last)

    def die(self) -> None:
        """Stop running coroutines."""
        self._is_closed = True

    def _add(self, act: Callable[[], None], what: str, at: float | None = None) -> None:
        def do() -> None:
            if not self._is_closed and not self._holds(Happening.WORK, do, self._owner, what):
                act()

        self._world.agenda.add(Happening.WORK, do, self._owner, what, at=at)

    def _run(self) -> None:
        self._loop.run_ready()
        due = self._loop.next_at
        if due is None or (self._scheduled is not None and self._scheduled <= due):
            return
        self._scheduled = due
        at = self._world.clocks.in_world(self._clock, due)
        self._add(lambda: self._wake(due), "continues its calls", at=at)

    def _wake(self, due: float) -> None:
        if self._scheduled == due:
            self._scheduled = None
        self._guard_work(self._run)


class WatchedStorage:
    """The storage of one process, which may die before it writes a path."""

    def __init__(self, storage: SnapshotStorage, before_write: Callable[[str], None]) -> None:
        self._storage = storage
        self._before_write = before_write

    @property
    def url(self) -> str:
        return self._storage.url

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        self._before_write(path)
        self._storage.put(path, data, create=create)

    def get(self, path: str) -> bytes:
        return self._storage.get(path)

    def list(self, prefix: str) -> list[str]:
        return self._storage.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        self._storage.delete(paths)


class StateBackendsOfProcess:
    """A `StateBackendOpener`; the databases are real, and are deleted when the process dies."""

    def __init__(self) -> None:
        self._opened: list[KeyedStateBackend] = []

    def __call__(self, config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
        backend = open_state_backend(config, setup)
        self._opened.append(backend)
        return backend

    def die(self) -> None:
        for backend in self._opened:
            backend.close()
