"""`LastCommit`: the newest commit of a sink, for reports and the web page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The newest commit of a sink, of one subtask or of all subtasks.

    A writer fills in the first three fields; its operator adds the others.

    Attributes:
        version: The version that the commit has created, such as `"7"`, or the id of a snapshot; `None` for
            destinations without versions.
        rows: Number of rows that were written; `None` if it is not known.
        files: Number of files that were written; `None` if it is not known, or if the sink writes no files.
        checkpoint_id: The checkpoint whose completion caused the commit; `None` at the end of a job without
            checkpoints.
        at: Time of the commit, in seconds since the epoch.

    Example:
        >>> LastCommit(rows=3, checkpoint_id=8, at=5.0).plus(LastCommit(rows=4, checkpoint_id=8, at=5.5))
        LastCommit(version=None, rows=7, files=None, checkpoint_id=8, at=5.5)
    """

    version: str | None = None
    rows: int | None = None
    files: int | None = None
    checkpoint_id: int | None = None
    at: float = 0.0

    def plus(self, other: LastCommit) -> LastCommit:
        """Return the sum of both commits if the same checkpoint caused them, else the newer commit."""
        older, newer = sorted((self, other), key=lambda commit: commit.at)
        if older.checkpoint_id != newer.checkpoint_id:
            return newer
        return LastCommit(
            newer.version,
            _sum(older.rows, newer.rows),
            _sum(older.files, newer.files),
            newer.checkpoint_id,
            newer.at,
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
