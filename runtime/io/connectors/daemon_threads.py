"""Calls in daemon threads, so that a server that hangs does not keep the process from exiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")
A = TypeVar("A")

#: Calls to a storage that run at a time.
_FILES_AT_A_TIME: Final = 16


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run work in a daemon thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again by `result`
            future.set_exception(error)

    threading.Thread(target=run, name="external-call", daemon=True).start()
    return future


def for_each(
    work: Callable[[A], object],
    arguments: Iterable[A],
    threads: int,
    run_in_thread: Callable[[Callable[[], None]], Future[None]] = in_thread,
) -> None:
    """Call a function for each argument, several at a time, and wait for all calls.

    Args:
        run_in_thread: Starts a function in a thread; a simulation passes its own.

    Raises:
        Exception: The first error; raised after all calls have ended.

    Example:
        >>> done = []
        >>> for_each(done.append, range(4), threads=2)
        >>> sorted(done)
        [0, 1, 2, 3]
    """
    waiting = list(reversed(list(arguments)))
    errors: list[Exception] = []

    def run() -> None:
        while True:
            try:
                argument = waiting.pop()
            except IndexError:
                return
            try:
                work(argument)
            except Exception as error:  # raised below
                errors.append(error)

    for running in [run_in_thread(run) for _ in range(min(threads, len(waiting)))]:
        running.result()
    if errors:
        raise errors[0]


def first_missing(exists: Callable[[A], bool], files: Sequence[A]) -> A | None:
    """The first file that does not exist; several are looked for at a time.

    Example:
        >>> first_missing({"a", "c"}.__contains__, ["a", "b", "c", "d"])
        'b'
    """
    missing: set[int] = set()

    def look(index: int) -> None:
        if not exists(files[index]):
            missing.add(index)

    for_each(look, range(len(files)), _FILES_AT_A_TIME)
    return files[min(missing)] if missing else None
