"""Threads of the connector in a simulation: the agenda schedules them, and they die with their process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from penstock.runtime.io.connectors.kafka.clients import ENDED
from penstock.runtime.testing.simulation.world.external import WorldContext

T = TypeVar("T")


class SimulatedFuture(Future[T], Generic[T]):
    """The outcome of work in a thread; a caller that waits for it lets the thread run now."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self._work: Callable[[], T] | None = work

    def run(self) -> None:
        """Do the work, unless it is done; does not catch the `BaseException` that ends a process."""
        work, self._work = self._work, None
        if work is None:
            return
        try:
            outcome = work()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(outcome)

    def result(self, timeout: float | None = None) -> T:
        self.run()
        return super().result(0)


class SimulatedWorker:
    """A `Worker` whose steps are entries of the simulation's agenda.

    A worker that waits for records takes its next step when the wait is over. A worker that rests takes none
    until it is woken, however short its rest is.
    """

    def __init__(self, run: WorldContext, step: Callable[[], float]) -> None:
        self._run = run
        self._step = step
        self._is_scheduled = self._has_ended = False
        self._waits = 0.0
        self.wake()

    def wait(self, seconds: float) -> None:
        """Note that the current step waits; called within the step."""
        self._waits = seconds

    def wake(self) -> None:
        if not self._is_scheduled and not self._has_ended:
            self._schedule(0.0)

    def join(self, timeout: float) -> bool:
        """Take steps until the worker ends or rests; return whether it has ended."""
        while not self._has_ended:
            if self._take_step() > 0.0:
                break
        return self._has_ended

    def _schedule(self, after: float) -> None:
        self._is_scheduled = True
        self._run.in_thread(self._turn, "the Kafka fetcher steps", after=after)

    def _turn(self) -> None:
        self._is_scheduled = False
        if not self._has_ended and self._take_step() == 0.0:
            self._schedule(self._waits)

    def _take_step(self) -> float:
        self._waits = 0.0
        rest = self._step()
        self._has_ended = rest == ENDED
        return rest
