"""Names of actors; all are in one Ray namespace."""

from __future__ import annotations

from typing import Final

#: The Ray namespace of every Penstock actor.
NAMESPACE: Final = "penstock"

_MASTER_PREFIX: Final = "master:"
_PROCESS_PREFIX: Final = "process:"


def master_name(process: str) -> str:
    """Name of the actor of a process that takes jobs as their JobMaster; says nothing about the job.

    Example:
        >>> master_name("9f04")
        'master:9f04'
    """
    return _MASTER_PREFIX + process


def process_of_master(actor_name: str) -> str | None:
    """The process of a JobMaster's name; `None` for any other actor.

    Example:
        >>> process_of_master("master:9f04"), process_of_master("process:9f04")
        ('9f04', None)
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
        >>> process_of("process:9f04"), process_of("master:2a51")
        ('9f04', None)
    """
    return actor_name.removeprefix(_PROCESS_PREFIX) if actor_name.startswith(_PROCESS_PREFIX) else None
