"""Names of actors; all are in one Ray namespace."""

from __future__ import annotations

from typing import Final

from penstock.runtime.snapshot.subtask_id import SubtaskId

#: The Ray namespace of every Penstock actor.
NAMESPACE: Final = "penstock"

_MASTER_PREFIX: Final = "job:"
_SUBTASK_PREFIX: Final = "subtask:"


def master_name(job_id: str) -> str:
    """Name of a job's JobMaster.

    Example:
        >>> master_name("word-count-1a2b")
        'job:word-count-1a2b'
    """
    return _MASTER_PREFIX + job_id


def job_of_master(actor_name: str) -> str | None:
    """The job of a JobMaster's name; `None` for any other actor.

    Example:
        >>> job_of_master("job:word-count-1a2b"), job_of_master("subtask:x:count:0:1")
        ('word-count-1a2b', None)
    """
    return actor_name.removeprefix(_MASTER_PREFIX) if actor_name.startswith(_MASTER_PREFIX) else None


def subtask_prefix(job_id: str) -> str:
    """How the names of all subtask actors of a job begin."""
    return f"{_SUBTASK_PREFIX}{job_id}:"


def subtask_name(job_id: str, subtask: SubtaskId, incarnation: int) -> str:
    """Name of the n-th actor for a subtask.

    Example:
        >>> subtask_name("word-count-1a2b", SubtaskId("count", 0), 3)
        'subtask:word-count-1a2b:count:0:3'
    """
    return f"{subtask_prefix(job_id)}{subtask.vertex}:{subtask.index}:{incarnation}"


def parse_subtask_name(job_id: str, actor_name: str) -> tuple[SubtaskId, int] | None:
    """The subtask and incarnation of a subtask actor of this job; `None` for any other actor.

    Example:
        >>> parse_subtask_name("j", "subtask:j:a:b:0:3")
        (SubtaskId(vertex='a:b', index=0), 3)
    """
    prefix = subtask_prefix(job_id)
    if not actor_name.startswith(prefix):
        return None
    vertex, index, incarnation = actor_name.removeprefix(prefix).rsplit(":", 2)
    return SubtaskId(vertex, int(index)), int(incarnation)
