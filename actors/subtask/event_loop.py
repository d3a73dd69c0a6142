"""`ThreadedEventLoop`: an asyncio event loop in a thread of its own, for users' coroutines.

The task thread passes coroutines to the loop in a deque, and wakes the loop once for many coroutines. Five
thousand calls that begin together take one write to the loop's pipe. Answers arrive in the task thread's
mailbox; the answers of one iteration of the loop are one mail.

A coroutine that blocks delays all other coroutines. Once a second a watchdog thread schedules a callback on
the loop and waits for it to run. If the callback has not run after a second, the watchdog logs a warning with
the line of the user's code that blocks the loop. After `limit` seconds it reports the line to the owner, if
the same coroutine still runs. If another one runs by then, none of them blocks: the first steps of thousands
of coroutines may take that long on a busy machine. The owner may ignore a report: the watchdog continues. The
loop gets 0.2 s more before the warning and before the report, because the process may have been frozen. No
warning is logged if the loop runs no user code.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from penstock.runtime.errors import UserLocation
from penstock.runtime.operators.user_code.failure import running_line

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds without a run of the callback after which a warning is logged, and after which the calls fail.
_WARN_AFTER: Final = 1.0
_FAIL_AFTER: Final = 5.0
#: Additional seconds for the callback, because the process may have been frozen.
_GRACE: Final = 0.2
#: Maximum seconds for the whole of `close`, and for the cancelled tasks within it.
_CLOSE_WITHIN: Final = 10.0
_CANCEL_WITHIN: Final = 4.0


class ThreadedEventLoop:
    """See the module's docstring. One thread, the owner's, creates the object and calls its methods.

    Args:
        name: Name of the subtask, for the thread and for warnings.
        post: Runs a callable in the owner's thread, soon.
        on_blocked: Called in the owner's thread with the line that blocks the loop, and with `limit`.
    """

    def __init__(
        self,
        name: str,
        post: Callable[[Callable[[], None]], None],
        on_blocked: Callable[[str, float], None],
        *,
        warn_after: float = _WARN_AFTER,
        limit: float = _FAIL_AFTER,
    ) -> None:
        self._name = name
        self._post = post
        self._on_blocked = on_blocked
        self._warn_after, self._limit = warn_after, limit
        self._new: deque[Coroutine[Any, Any, None]] = deque()
        self._is_woken = False
        self._answers: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._ended = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"{name} coroutines", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name=f"{name} watchdog", daemon=True).start()

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._new.append(self._answered(work, on_result, on_error))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._begin)

    def close(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        self._is_closed = True
        ended: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._begin_end, last, ended)
        try:
            ended.result(_CLOSE_WITHIN)
        except TimeoutError:
            line = self._line()
            where = "" if line is None else f", at {line}"
            logger.warning("coroutines of %s have not ended in time; they are abandoned%s", self._name, where)
        finally:
            self._ended.set()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_GRACE)

    # -- on the loop --------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._has_run():
            pass
        self._loop.close()

    def _has_run(self) -> bool:
        """Run the loop until it is stopped; return `False` if a task ended it by a `SystemExit`.

        A call that awaits this task has the error as its outcome, so the loop must continue.
        """
        try:
            self._loop.run_forever()
        except BaseException:
            logger.warning("a task of %s would have ended its event loop", self._name, exc_info=True)
            return False
        return True

    def _begin(self) -> None:
        self._is_woken = False  # before the deque is read: a coroutine that arrives now wakes the loop again
        while self._new:
            task = self._loop.create_task(self._new.popleft())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answered(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        try:
            result = await work()
        except BaseException as error:  # the owner decides what an error means, even a SystemExit
            failure = error
            self._answer(lambda: on_error(failure))
        else:
            self._answer(lambda: on_result(result))

    def _answer(self, callback: Callable[[], None]) -> None:
        """Collect the answers of this iteration of the loop, to send them together."""
        self._answers.append(callback)
        if len(self._answers) == 1:
            self._loop.call_soon(self._send_answers)

    def _send_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._post(lambda: self._call_back(answers))

    def _call_back(self, answers: Sequence[Callable[[], None]]) -> None:
        for callback in answers:
            if not self._is_closed:
                callback()

    def _begin_end(self, last: Callable[[], Coroutine[Any, Any, object]] | None, ended: Future[None]) -> None:
        if not self._ended.is_set():
            self._loop.create_task(self._end(last, ended))

    async def _end(self, last: Callable[[], Coroutine[Any, Any, object]] | None, ended: Future[None]) -> None:
        while self._new:
            self._new.popleft().close()
        failure: BaseException | None = None
        try:
            await _cancelled(self._tasks)
            if last is not None:
                await last()
        except BaseException as error:
            failure = error
        calls = {*self._tasks, asyncio.current_task()}
        await _cancelled({task for task in asyncio.all_tasks() if task not in calls})
        await self._loop.shutdown_asyncgens()
        if failure is None:
            ended.set_result(None)
        else:
            ended.set_exception(failure)

    # -- the watchdog -------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ended.wait(self._warn_after):
            sign = threading.Event()
            self._loop.call_soon_threadsafe(sign.set)
            if sign.wait(self._warn_after) or sign.wait(_GRACE) or self._is_closed:
                continue
            line, task = self._line(), asyncio.current_task(self._loop)
            if line is None:
                continue
            logger.warning(
                "a coroutine of %s has blocked its event loop for over %.1f seconds, at %s: all other calls "
                "wait. Use a non-blocking call there, or `await asyncio.to_thread(...)`",
                self._name,
                self._warn_after,
                line,
            )
            has_run = sign.wait(max(0.0, self._limit - self._warn_after - _GRACE)) or sign.wait(_GRACE)
            if not has_run and asyncio.current_task(self._loop) is task:
                self._report(str(self._line() or line))

    def _report(self, where: str) -> None:
        self._post(lambda: self._call_back([lambda: self._on_blocked(where, self._limit)]))

    def _line(self) -> UserLocation | None:
        ident = self._thread.ident
        return None if ident is None else running_line(sys._current_frames().get(ident))


async def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and give them some time for their `finally` blocks."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_WITHIN)
