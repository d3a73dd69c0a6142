"""An asyncio event loop without threads, sockets or a clock of its own, for the harness and the simulation.

`ManualEventLoop` runs the ready callbacks, and then stops. Its time is a clock that a test or the simulation
sets. So sleeps and timeouts of coroutines take simulated time, and a run is reproducible. Work for a thread
(`asyncio.to_thread`) is done immediately. Connections are refused with a clear error: a test should give its
function a client without connections.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

from penstock.runtime.errors import PenstockError
from penstock.runtime.testing.manual_time import ManualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _NoSelector:
    """Selects nothing, and never waits."""

    def select(self, timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None: ...


class ManualEventLoop(asyncio.BaseEventLoop):
    """An event loop in a test's time; see the module's docstring.

    Args:
        monotonic: Seconds of the clock that the coroutines see.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._monotonic = monotonic
        self._ahead = 0.0
        self._has_callbacks = False
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()

    def time(self) -> float:
        return self._monotonic() + self._ahead

    @property
    def next_at(self) -> float | None:
        """Time of the next timer; `None` without timers."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def is_ready(self) -> bool:
        """Whether a callback can run now."""
        return self._has_callbacks or ((at := self.next_at) is not None and at <= self.time())

    def run_ready(self) -> None:
        """Run everything that is ready now, and everything that becomes ready as a result."""
        with _no_other_loop():
            while self.is_ready:
                self._drop_due_timers()
                self._has_callbacks = False
                super().call_soon(self.stop)
                try:
                    self.run_forever()
                except SystemExit:  # raised by a task; the coroutine that awaits it gets the error, too
                    self._has_callbacks = True

    def run_to_end(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine to its end; time jumps ahead for this loop alone.

        Raises:
            BaseException: The error of the coroutine.
        """
        task = self.create_task(coroutine)
        self.run_ready()
        while not task.done():
            at = self.next_at
            if at is None:
                task.cancel()
                self.run_ready()
                msg = "a coroutine waits for something that never comes in a test"
                raise PenstockError(msg)
            self._ahead += max(0.0, at - self.time())
            self.run_ready()
        task.result()

    def end(
        self, calls: Iterable[asyncio.Task[Any]], last: Callable[[], Coroutine[Any, Any, object]] | None
    ) -> None:
        """Cancel the calls, run the last coroutine, cancel the remaining tasks, and close the loop."""
        for task in calls:
            task.cancel()
        try:
            self.run_ready()
            if last is not None:
                self.run_to_end(last())
        finally:
            for task in asyncio.all_tasks(self):
                task.cancel()
            self.run_ready()
            self.close()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Any = None
    ) -> asyncio.Handle:
        self._has_callbacks = True
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse_connection()

    async def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse_connection()

    async def create_unix_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse_connection()

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def _drop_due_timers(self) -> None:
        now = self.time()
        while self._timers and (self._timers[0][2].cancelled() or self._timers[0][0] <= now):
            heapq.heappop(self._timers)


def _refuse_connection() -> NoReturn:
    msg = (
        "a coroutine opens a connection, but a harness or a simulation has no network: give the "
        "function a client that answers without a server"
    )
    raise PenstockError(msg)


@contextmanager
def _no_other_loop() -> Iterator[None]:
    """Let a loop run inside another one, such as a notebook's."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)


async def called_back(
    work: Callable[[], Coroutine[Any, Any, T]],
    on_result: Callable[[T], None],
    on_error: Callable[[BaseException], None],
    answer: Callable[[Callable[[], None]], None],
) -> None:
    """Await a coroutine, and pass the call of its callback to `answer`."""
    try:
        result = await work()
    except BaseException as error:  # the owner decides what an error means, even a SystemExit
        failure = error
        answer(lambda: on_error(failure))
    else:
        answer(lambda: on_result(result))


class HarnessEventLoop:
    """The port `EventLoop` of a harness; `loop.run_ready` runs the coroutines and the callbacks."""

    def __init__(self, clock: ManualClock, on_blocked: Callable[[str, float], None]) -> None:
        self.loop = ManualEventLoop(clock.monotonic)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        def answer(callback: Callable[[], None]) -> None:
            if not self._is_closed:
                callback()

        task = self.loop.create_task(called_back(work, on_result, on_error, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        self._is_closed = True
        self.loop.end(self._tasks, last)
