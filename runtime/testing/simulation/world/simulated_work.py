"""Background work of a simulated process: done in one move, its outcome told in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import SimulatedUserError, World

T = TypeVar("T")


class SimulatedWork:
    """One piece of background work."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Nobody wants to know the outcome; the work may still be done."""
        self.is_cancelled = True


class SimulatedRunner:
    """An `AsyncRunner` whose work goes on the agenda.

    Args:
        world: Has the agenda.
        owner: Whose work it is, for the trace.
        guard: Runs callbacks in the owner's thread.
        guard_work: Runs the work itself.
        on_work: Called when work is requested.
        holds: Keeps a happening for later when the owner can't run; whether it did.
    """

    def __init__(
        self,
        world: World,
        owner: object,
        guard: Callable[[Callable[[], None]], None],
        guard_work: Callable[[Callable[[], object]], None],
        on_work: Callable[[], None] = lambda: None,
        holds: Callable[..., bool] = lambda *happening: False,
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
        """Put work on the agenda."""
        item = SimulatedWork()
        name = getattr(work, "__qualname__", type(work).__name__)
        at = self._world.slow_moment()

        def do() -> None:
            self._do(item, work, on_result, on_error)

        self._world.agenda.add(Happening.WORK, do, self._owner, "does", name, at=at)
        self._on_work()
        return item

    def close(self) -> None:
        """The owner is gone: work that was begun is done, and nobody is told."""
        self._is_closed = True

    def die(self) -> None:
        """The process is gone: nothing is done any more."""
        self._is_closed = self._is_dead = True

    def _do(
        self,
        item: SimulatedWork,
        work: Callable[[], Any],
        on_result: Callable[[Any], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        if self._is_dead or self._holds(
            Happening.WORK, lambda: self._do(item, work, on_result, on_error), self._owner, "does its work"
        ):
            return

        def attempt() -> None:
            try:
                result = work()
            except (PenstockError, SimulatedUserError) as error:
                failure = error
                self._tell_later(item, lambda: on_error(failure), "is told:", failure)
            else:
                self._tell_later(item, lambda: on_result(result), "is told the result")

        self._guard_work(attempt)

    def _tell_later(self, item: SimulatedWork, tell: Callable[[], None], *what: object) -> None:
        def told() -> None:
            if item.is_cancelled or self._is_closed:
                return
            if not self._holds(Happening.WORK, told, self._owner, *what):
                self._guard(tell)

        at = self._world.take_lateness()
        self._world.agenda.add(Happening.WORK, told, self._owner, *what, at=at)
