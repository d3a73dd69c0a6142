"""Requests of a model of the outside world, and the fate that a test chooses for the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.testing.connectors import Answer

T = TypeVar("T")


class Answers:
    """The base of models: every request goes through `request`."""

    secret = "pa55-of-the-model"

    def __init__(self) -> None:
        self._next: Answer | None = None

    def next_answer(self, answer: Answer | None) -> None:
        self._next = answer

    def request(self, effect: Callable[[], T], password: str) -> T:
        """Carry out a request, unless the test wants it otherwise."""
        answer, self._next = self._next, None
        if password != self.secret:
            raise PermissionError("the password is wrong")
        if answer == "refused":
            raise ConnectionRefusedError("the request was refused")
        if answer == "hanging":
            raise TimeoutError("no answer within 5 s")
        result = effect()
        if answer == "lost":
            raise ConnectionResetError("the connection was reset")
        return result
