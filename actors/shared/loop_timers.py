"""Timers on an event loop (the `TimerService` port)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.runtime.ports import Cancellable


class LoopTimers:
    """Runs callbacks later on an event loop.

    Args:
        loop: Its thread runs the callbacks.
        guard: Runs each callback and handles its failure.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, guard: Callable[[Callable[[], None]], None]) -> None:
        self._loop = loop
        self._guard = guard

    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` after `delay` seconds."""
        return self._loop.call_later(delay, self._guard, callback)
