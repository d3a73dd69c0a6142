"""Holds interrupts (Ctrl-C) of a program while it starts a job, so that no job is lost.

A job is detached. An interrupt between the start of its JobMaster and the first line that stores its id would
leave a job without a handle. So SIGINT is *held* while a job is started and watched, and *delivered* where
the program waits. There the program has a handle, so it can end the job or name it to the user.

    with InterruptsHeld():
        job = begin()
        try:
            with interrupts_delivered():
                wait(job)
        except BaseException as stop:
            name_job(stop, job.job_id, "keeps running")
            raise

The handler decides in the main thread, between two bytecodes. It stops delivery before it raises. So a second
interrupt can't break the handling of the first, unless that code delivers interrupts itself. Other threads
get no interrupts. A program without a handler in Python (`SIG_DFL`, `SIG_IGN`) is left unchanged.

An interrupt that names a job ends the program with its notes alone, without a traceback (`explain`). The exit
code is 130, as after Ctrl-C in a shell. Without this module the code is not always 130: code that runs when
Python shuts down, such as Ray's, may change it to 1.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final

from penstock.actors.client.program import is_interactive


class _Held:
    """State of this process's handler of SIGINT; only the main thread touches it.

    Attributes:
        depth: Number of `InterruptsHeld` blocks around the current line.
        is_open: Whether an interrupt is delivered at once.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.is_open = False
        self._is_waiting = False
        self._before: Any = None

    def begin(self) -> bool:
        """Hold interrupts from now on; return `False` in a thread or program that gets none."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if self.depth == 0:
            before = signal.getsignal(signal.SIGINT)
            if not callable(before):
                return False
            self._before, self.is_open, self._is_waiting = before, False, False
            signal.signal(signal.SIGINT, self._handle)
        self.depth += 1
        return True

    def end(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            signal.signal(signal.SIGINT, self._before)
            self.deliver()

    def deliver(self) -> None:
        if self._is_waiting:
            self._is_waiting = self.is_open = False
            self._before(signal.SIGINT, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.is_open:
            self._is_waiting = True
            return
        self.is_open = False
        self._before(number, frame)
        self.is_open = True  # reached only if the user's handler does not raise


_HELD: Final = _Held()


class InterruptsHeld:
    """A context manager that holds interrupts inside its block; blocks may be nested."""

    def __init__(self) -> None:
        self._holds = self._was_open = False

    def __enter__(self) -> None:
        self._holds = _HELD.begin()
        if self._holds:
            self._was_open, _HELD.is_open = _HELD.is_open, False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holds:
            _HELD.end()
        if self._was_open and error is None:
            _HELD.is_open = True
            _HELD.deliver()


@contextmanager
def interrupts_delivered() -> Iterator[None]:
    """Deliver interrupts inside the block, including a held one; outside `InterruptsHeld` it does nothing."""
    if not _HELD.depth or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _HELD.is_open
    try:
        _HELD.is_open = True
        _HELD.deliver()
        yield
    finally:
        _HELD.is_open = before


def name_job(stop: BaseException, job_id: str, what: str) -> None:
    """Add a note that names a job and how to end it; `what` is the predicate, such as `keeps running`."""
    explain(
        stop,
        f"job {job_id} {what}: `penstock cancel {job_id}`, or penstock.job({job_id!r}).cancel(), ends it",
    )


def explain(stop: BaseException, text: str) -> None:
    """Add a note; an interrupt that ends the program, or a notebook's cell, then shows only its notes."""
    stop.add_note(text)
    if isinstance(stop, KeyboardInterrupt):
        vars(stop)[_IN_NOTEBOOKS] = lambda: list(stop.__notes__)
        if sys.excepthook is not _show_notes:
            _EARLIER.append(sys.excepthook)
            sys.excepthook = _show_notes


#: Exit code of a program that Ctrl-C has ended: 128 + SIGINT.
EXIT_CODE: Final = 128 + signal.SIGINT
#: Method of an exception whose lines a notebook shows instead of a traceback.
_IN_NOTEBOOKS: Final = "_render_traceback_"
#: Hooks that were installed before `_show_notes`, the newest last.
_EARLIER: Final[list[Callable[..., Any]]] = []


def _show_notes(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt) and _IN_NOTEBOOKS in vars(error):
        print("\n".join(error.__notes__), file=sys.stderr)
        if not is_interactive():
            sys.exit(EXIT_CODE)
    else:
        _EARLIER[-1](kind, error, trace)
