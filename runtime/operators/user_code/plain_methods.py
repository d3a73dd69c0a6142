"""Refuses methods of users that emit nothing and yet are generators or coroutines: they would never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any

from penstock.runtime.errors import PenstockError


def check_has_run(name: str, given: Any) -> None:
    """Refuse what a method gave if the method has not run by that.

    Args:
        name: Name of the method.
        given: What it gave.

    Raises:
        PenstockError: It is a generator or a coroutine.

    Example:
        >>> def close():
        ...     yield "closed"
        >>> check_has_run("close", close())
        Traceback (most recent call last):
        penstock.runtime.errors.PenstockError: close yields, so it never runs: write it without `yield`
    """
    if isinstance(given, Coroutine):
        given.close()  # otherwise Python warns later that nobody has awaited it
        msg = f"{name} is declared `async def`, so it never runs: declare it `def`"
        raise PenstockError(msg)
    if isinstance(given, Generator | AsyncGenerator):
        msg = f"{name} yields, so it never runs: write it without `yield`"
        raise PenstockError(msg)
