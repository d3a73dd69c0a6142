"""Finds the depot of a reader, or starts it."""

from __future__ import annotations

from typing import Any, Final

import ray

from penstock.actors.shared.names import NAMESPACE
from penstock.bridge.receive_buffer.actor import DepotActor
from penstock.bridge.receive_buffer.actor_names import depot_name

#: Calls that may wait at the same time: four of every Spark task. Were there fewer than wait for room, the
#: reader that makes room would never be heard.
DEPOT_CALLS: Final = 100_000


def depot_actor(job_id: str, hand_over: str, index: int, of: int, window: int, staged: bool) -> Any:
    """The handle of a depot, which is started if it is not there.

    Raises:
        ray.exceptions.RayError: It can't be started.
    """
    actor: Any = ray.remote(DepotActor)
    return actor.options(
        name=depot_name(job_id, hand_over, index),
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=0,
        max_concurrency=DEPOT_CALLS,
    ).remote(job_id, hand_over, index, of, window, staged)
