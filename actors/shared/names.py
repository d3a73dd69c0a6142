"""Names of actors; all are in one Ray namespace."""

from __future__ import annotations

from typing import Final

#: The Ray namespace of every Penstock actor.
NAMESPACE: Final = "penstock"

_MASTER_PREFIX: Final = "job:"
_PROCESS_PREFIX: Final = "process:"


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
        >>> job_of_master("job:word-count-1a2b"), job_of_master("process:x:9f04")
        ('word-count-1a2b', None)
    """
    return actor_name.removeprefix(_MASTER_PREFIX) if actor_name.startswith(_MASTER_PREFIX) else None


def process_prefix(job_id: str) -> str:
    """How the names of all processes of a job begin that run subtasks."""
    return f"{_PROCESS_PREFIX}{job_id}:"


def process_name(job_id: str, process: str) -> str:
    """Name of the actor of a process; says nothing about the role that the process holds.

    Example:
        >>> process_name("word-count-1a2b", "9f04")
        'process:word-count-1a2b:9f04'
    """
    return process_prefix(job_id) + process


def process_of(job_id: str, actor_name: str) -> str | None:
    """The process of an actor of this job; `None` for any other actor.

    Example:
        >>> process_of("j", "process:j:9f04"), process_of("j", "job:j")
        ('9f04', None)
    """
    prefix = process_prefix(job_id)
    return actor_name.removeprefix(prefix) if actor_name.startswith(prefix) else None
