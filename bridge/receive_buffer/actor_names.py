"""Under which names depots, and the desk they take rows from, are found in the cluster."""

from __future__ import annotations

from typing import Final

import ray

from penstock.actors.shared.names import NAMESPACE

_PREFIX: Final = "depot:"


def depot_name(job_id: str, hand_over: str, index: int) -> str:
    """Name of a depot.

    Example:
        >>> depot_name("words-1a2b", "3c4d", 0)
        'depot:words-1a2b:3c4d:0'
    """
    return f"{_PREFIX}{job_id}:{hand_over}:{index}"


def depot_prefix(job_id: str) -> str:
    """How the names of all depots of a job begin."""
    return f"{_PREFIX}{job_id}:"


def desk_name(hand_over: str) -> str:
    """Name of the desk of a hand-over.

    Example:
        >>> desk_name("3c4d")
        'hand-over:3c4d'
    """
    return f"hand-over:{hand_over}"


def actor_exists(name: str) -> bool:
    """Whether an actor of this name lives."""
    # A handle would bring the class of the actor, and all that it imports, into this process.
    named: list[dict[str, str]] = ray.util.list_named_actors(all_namespaces=True)
    return {"name": name, "namespace": NAMESPACE} in named
