"""What is told when a snapshot and a job do not fit together."""

from __future__ import annotations

from penstock.runtime.errors import PenstockError


class StateMismatchError(PenstockError):
    """A checkpoint does not fit the job that is to start from it; the message says which operator and why."""
