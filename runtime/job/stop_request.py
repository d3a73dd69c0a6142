"""A request to stop a job with a savepoint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopRequest:
    """How a job is to be stopped.

    Attributes:
        drain: Whether event time advances to its end first: the job will not continue from the savepoint.
        target: URL of the folder in which the savepoint gets its own; `None` for the checkpoint storage.
    """

    drain: bool = False
    target: str | None = None
