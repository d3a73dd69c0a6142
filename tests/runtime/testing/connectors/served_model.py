"""The base of the models of this folder: each request needs the password."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.testing import ExternalWorld

T = TypeVar("T")


class Server(ExternalWorld):
    """A model of a system outside."""

    secret = "pa55-of-the-model"

    def request(self, effect: Callable[[], T], password: str) -> T:
        """Make a call; the test or the simulation decides about its answer."""
        if password != self.secret:
            raise PermissionError("the password is wrong")
        return self.run.call(effect, timeout=5.0)
