"""What a user asks for who stops a job with a savepoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopRequest:
    """How a job is to be stopped.

    Attributes:
        drain: Event time goes to its end first: for a job that will not go on from the savepoint.
        target: URL of the folder in which the savepoint gets its own; `None` for the checkpoint storage.
    """

    drain: bool = False
    target: str | None = None
