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


def process_name(process: str) -> str:
    """Name of the actor of a process that takes roles of subtasks; says nothing about the role.

    Example:
        >>> process_name("9f04")
        'process:9f04'
    """
    return _PROCESS_PREFIX + process


def process_of(actor_name: str) -> str | None:
    """The process of an actor's name; `None` for any other actor.

    Example:
        >>> process_of("process:9f04"), process_of("job:j")
        ('9f04', None)
    """
    return actor_name.removeprefix(_PROCESS_PREFIX) if actor_name.startswith(_PROCESS_PREFIX) else None
