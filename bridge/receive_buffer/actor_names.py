"""Names of receive buffers and rendezvous among the cluster's actors."""

from __future__ import annotations

from typing import Final

import ray

from penstock.actors.shared.names import NAMESPACE

_PREFIX: Final = "receive-buffer:"


def buffer_name(job_id: str, transfer: str, index: int) -> str:
    """Name of a receive buffer.

    Example:
        >>> buffer_name("words-1a2b", "3c4d", 0)
        'receive-buffer:words-1a2b:3c4d:0'
    """
    return f"{_PREFIX}{job_id}:{transfer}:{index}"


def buffer_prefix(job_id: str) -> str:
    """Prefix of the names of all receive buffers of a job."""
    return f"{_PREFIX}{job_id}:"


def rendezvous_name(transfer: str) -> str:
    """Name of the rendezvous of a transfer.

    Example:
        >>> rendezvous_name("3c4d")
        'rendezvous:3c4d'
    """
    return f"rendezvous:{transfer}"


def actor_exists(name: str) -> bool:
    """Whether an actor of this name is alive."""
    # A handle would load the actor's class, and all that it imports, into this process.
    named: list[dict[str, str]] = ray.util.list_named_actors(all_namespaces=True)
    return {"name": name, "namespace": NAMESPACE} in named
