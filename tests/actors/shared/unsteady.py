"""Actors behind a connection that breaks when a test wants it to.

Ray can't be made to lose a chosen call, so the connection is simulated. The object behind it is real.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from typing import Any

import ray

UNAVAILABLE = ray.exceptions.ActorUnavailableError("the connection broke", b"\0" * 16)
DEAD = ray.exceptions.ActorDiedError()


class Answer:
    """The outcome of a call of an actor."""

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self._future

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()


class Unsteady:
    """An actor handle for a local object.

    Args:
        behind: The object whose methods are called.
        lost: Number of lost calls, by method: the call does not arrive, or its answer is lost.
        arrives: Whether a lost call is carried out.
        error: Error that Ray raises for a lost call; `None` if it never answers.
    """

    def __init__(
        self,
        behind: Any,
        lost: dict[str, int],
        *,
        arrives: bool = False,
        error: Exception | None = UNAVAILABLE,
    ) -> None:
        self._behind = behind
        self._lost = lost
        self._arrives = arrives
        self._error = error
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return _Method(self, name)

    def call(self, name: str, arguments: tuple[Any, ...]) -> Answer:
        self.calls.append((name, *arguments))
        answer = Answer()
        is_lost = self._lost.get(name, 0) > 0
        if is_lost:
            self._lost[name] -= 1
        if not is_lost or self._arrives:
            result = getattr(self._behind, name)(*arguments)
            result = _run(result) if inspect.iscoroutine(result) else result
        if is_lost and self._error is not None:
            answer.future().set_exception(self._error)
        elif not is_lost:
            answer.future().set_result(result)
        return answer


def _run(call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never suspends, with or without a running event loop."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class _Method:
    def __init__(self, actor: Unsteady, name: str) -> None:
        self._actor = actor
        self._name = name

    def remote(self, *arguments: Any) -> Answer:
        return self._actor.call(self._name, arguments)
