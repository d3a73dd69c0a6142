"""`ClusterCalls`: calls to the cluster's key-value store, in a thread outside the JobMaster's event loop.

The store is in Ray's GCS, one process on the head node. When the GCS hangs, a call blocks until the GCS
answers again, for at most a minute. On the event loop such a call would stop leases and checkpoints. Guards
and clients would get no answer either, and would kill a healthy JobMaster.

- Calls are made one at a time, in the order in which they were begun. So a process is recorded before it is
  started, and the report of a job's end is written after all calls that end the job.
- A job's report is written every two seconds. Only the newest waiting report is written, at the queue's end.
- A caller waits for an answer with a timeout, and gets a `ClusterTimeoutError` if the store is silent. The
  call keeps its place: it is made when the store answers again.
- A few decisions need their answer immediately. Their calls overtake waiting calls, so they must not rely on
  a waiting call. Together they may block the event loop for two seconds in every ten. After these two seconds
  a caller gets a default.

Once the process serves callers, no call may be made on the event loop. No call may delay the end of a job for
ever. The thread does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, Generic, TypeVar

from ray.exceptions import RayError

from penstock.runtime.errors import PenstockError

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which the event loop waits for answers that it needs immediately. Usually they take
#: milliseconds.
_AT_ONCE: Final = 2.0
#: Seconds after which the budget `_AT_ONCE` is renewed.
_PERIOD: Final = 10.0
#: Calls that take longer than this, in seconds, are logged.
_LONG: Final = 5.0


class ClusterTimeoutError(PenstockError, TimeoutError):
    """The cluster's key-value store gave no answer in time; the call is made when it answers again."""


class ClusterCall(Generic[T]):
    """A call that waits for its turn, is being made, or has been made.

    Args:
        what: Purpose of the call, for messages: "keep the report of job words-1".
        make: Function that makes the call; blocks.
    """

    def __init__(self, what: str, make: Callable[[], T]) -> None:
        self.what = what
        self.make = make
        self.future: Future[T] = Future()

    async def answered(self, within: float | None) -> T:
        """Wait for the call's answer in an event loop; an error of the call is raised here.

        Raises:
            ClusterTimeoutError: No answer came within `within` seconds; the call is still made.
        """
        answer = asyncio.wrap_future(self.future)
        # `_make` logs an error that comes too late; asyncio would report it as never retrieved.
        answer.add_done_callback(lambda made: made.cancelled() or made.exception())
        done, _ = await asyncio.wait([answer], timeout=within)
        if done:
            return answer.result()
        msg = (
            f"can't {self.what}: the cluster's key-value store has not answered within {within:g} s. "
            "Check that the head node and its GCS run"
        )
        raise ClusterTimeoutError(msg)


class ClusterCalls:
    """Makes the calls of one process. All methods must be called from its event loop.

    Args:
        at_once: Seconds in every ten that the event loop may wait for answers that it needs at once.
    """

    def __init__(self, at_once: float = _AT_ONCE) -> None:
        self._at_once = self._left = at_once
        self._next_period = 0.0
        self._changed = threading.Condition()
        self._waiting: deque[ClusterCall[Any]] = deque()
        self._newest: ClusterCall[None] | None = None
        threading.Thread(target=self._make_all, name="cluster-calls", daemon=True).start()

    def begin(self, what: str, make: Callable[[], T]) -> ClusterCall[T]:
        """Make a call after all earlier calls; a failure is always logged."""
        call = ClusterCall(what, make)
        with self._changed:
            self._waiting.append(call)
            self._changed.notify()
        return call

    def begin_newest(self, what: str, make: Callable[[], None]) -> ClusterCall[None]:
        """Like `begin`, but replaces a waiting call of this kind; its callers get the new call's answer."""
        call = ClusterCall(what, make)
        with self._changed:
            if self._newest is not None:
                self._waiting.remove(self._newest)
                call.future = self._newest.future
            self._newest = call
            self._waiting.append(call)
            self._changed.notify()
        return call

    def at_once(
        self, what: str, make: Callable[[], T], otherwise: T, late: Callable[[T], None] | None = None
    ) -> T:
        """Make a call before all waiting calls; the event loop waits briefly for its answer.

        Args:
            otherwise: The answer when the store is silent, Ray raises an error, or `at_once` is used up.
            late: Called with an answer that arrives too late, in the thread that makes the calls.
        """
        begun = time.monotonic()
        if begun >= self._next_period:
            self._left, self._next_period = self._at_once, begun + _PERIOD
        if self._left <= 0.0:
            return otherwise
        call = ClusterCall(what, make)
        with self._changed:
            self._waiting.appendleft(call)
            self._changed.notify()
        done, _ = wait([call.future], self._left)
        self._left -= time.monotonic() - begun
        if done:
            return otherwise if isinstance(call.future.exception(), RayError) else call.future.result()
        logger.warning("can't %s: the cluster's key-value store does not answer", what)
        if not call.future.cancel() and late is not None:
            call.future.add_done_callback(lambda done: None if done.exception() else late(done.result()))
        return otherwise

    def _make_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                call = self._waiting.popleft()
                if call is self._newest:
                    self._newest = None
            if call.future.set_running_or_notify_cancel():
                self._make(call)

    def _make(self, call: ClusterCall[Any]) -> None:
        begun = time.monotonic()
        try:
            answer = call.make()
        except BaseException as error:  # Ray's error about the store, or the call's own
            logger.warning("can't %s: %s: %s", call.what, type(error).__name__, error)
            call.future.set_exception(error)
        else:
            call.future.set_result(answer)
        took = time.monotonic() - begun
        if took >= _LONG:
            logger.warning("the cluster's key-value store took %.0f s to %s", took, call.what)
