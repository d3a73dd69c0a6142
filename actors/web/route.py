"""`Route`: a path of the server with its description for `openapi`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from penstock.actors.web.server import WebServer


#: Answers a request with plain values that JSON carries, or with a response of its own.
Handler = Callable[["WebServer", web.Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One path and method.

    Attributes:
        path: Path with `{names}` in aiohttp's syntax.
        answer: Form of its answer; `None` for an answer without a body, or with a special form.
        body: Form of the request's body; `None` without one.
        query: Meaning of each parameter behind `?`.
        is_open: Whether it answers without a session.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: Any = None
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    status: int = 200

    @property
    def changes(self) -> bool:
        """Whether the route changes something; `--read-only` refuses changes of jobs."""
        return self.method != "GET"


class Problem(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def dumps(value: Any) -> str:
    """Return a value as JSON; a user's gauge of NaN or infinity becomes `null`.

    Example:
        >>> dumps({"queue": [1.5, float("nan")]})
        '{"queue": [1.5, null]}'
    """
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
