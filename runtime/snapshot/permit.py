"""The permit that a sink needs to commit.

Only a completed checkpoint, whose record is in the decision log, issues one: code that would commit early has
no permit to pass. A subtask of a job without checkpoints gets the permit of its ended input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_ISSUER: Final = object()


@dataclass(frozen=True, slots=True, init=False)
class CommitPermit:
    """The right to commit everything that was pre-committed up to one checkpoint.

    Attributes:
        checkpoint_id: The completed checkpoint; `None` when the job takes no checkpoints and its input ended.
        attempt: The attempt that completed it.

    Raises:
        TypeError: It was not issued by one of the functions of this module.

    Example:
        >>> CommitPermit(7, 1)
        Traceback (most recent call last):
        ...
        TypeError: a CommitPermit comes only from a completed checkpoint
    """

    checkpoint_id: int | None
    attempt: int

    def __init__(self, checkpoint_id: int | None, attempt: int, *, _issuer: object = None) -> None:
        if _issuer is not _ISSUER:
            msg = "a CommitPermit comes only from a completed checkpoint"
            raise TypeError(msg)
        object.__setattr__(self, "checkpoint_id", checkpoint_id)
        object.__setattr__(self, "attempt", attempt)

    def covers(self, checkpoint_id: int) -> bool:
        """Whether work that was pre-committed for `checkpoint_id` may be committed."""
        return self.checkpoint_id is None or checkpoint_id <= self.checkpoint_id


def permit_of_completed_checkpoint(checkpoint_id: int, attempt: int) -> CommitPermit:
    """Issue the permit of a checkpoint; call only where its completion is known from the log.

    Example:
        >>> permit_of_completed_checkpoint(7, 1).covers(6)
        True
    """
    return CommitPermit(checkpoint_id, attempt, _issuer=_ISSUER)


def permit_of_ended_input(attempt: int) -> CommitPermit:
    """Issue the permit of a subtask that takes no checkpoints and has seen the end of its input."""
    return CommitPermit(None, attempt, _issuer=_ISSUER)
