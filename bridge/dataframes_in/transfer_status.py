"""Looking at the hand-overs of a job, from any program of the cluster."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Final

import ray
from ray.util import list_named_actors

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.names import NAMESPACE
from penstock.actors.shared.repeated_call import RepeatedCall
from penstock.bridge.receive_buffer.actor_names import depot_prefix
from penstock.bridge.receive_buffer.messages import DepotStatistics
from penstock.runtime.errors import ConfigurationError, JobFailedError
from penstock.runtime.graph.job_handle import JobHandle, JobStatus

_POLL: Final = 0.2
_ANSWER: Final = 30.0


def hand_over_statistics(job: JobHandle) -> list[DepotStatistics]:
    """Counters of every depot that holds rows between Spark and this job, by their index.

    They live as long as the job; afterwards the list is empty.

    Raises:
        ConfigurationError: It is no job on Ray.
        NoAnswerError: A depot is there and silent, or Ray can't reach it.
    """
    prefix = depot_prefix(_on_ray(job).job_id)
    names = sorted(
        actor["name"]
        for actor in list_named_actors(all_namespaces=True)
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(prefix)
    )
    found: list[DepotStatistics] = []
    for name in names:
        try:
            depot: Any = ray.get_actor(name, namespace=NAMESPACE)
            call = RepeatedCall[dict[str, Any]](
                depot.statistics.remote, f"{name} (rows between Spark and a job)"
            )
            counters = call.answer(_ANSWER)
            found.append(DepotStatistics(**counters))
        except (ValueError, ray.exceptions.RayActorError):
            continue  # the job has just ended
    return found


def wait_for_hand_over(job: JobHandle, timeout: float | timedelta | None = None) -> list[DepotStatistics]:
    """Wait until all rows of all DataFrames are in the hands of the job; Spark may be stopped then.

    Args:
        job: The job.
        timeout: Seconds to wait at most; `None` waits for ever.

    Returns:
        The counters of the depots; none when the job has ended meanwhile.

    Raises:
        JobFailedError: The job failed before.
        TimeoutError: It is not done after `timeout`.
    """
    handle = _on_ray(job)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        status = handle.status()
        if status is JobStatus.FAILED:
            failure = handle.report().failure
            why = "" if failure is None else f": {failure.root}"
            msg = f"job {handle.job_id} failed before all rows were handed over{why}"
            raise JobFailedError(msg)
        found = hand_over_statistics(job)
        # Readers start their depots when they are opened, so a job that runs has all of them, if any.
        if status.is_terminal or (status is JobStatus.RUNNING and all(d.complete for d in found)):
            return found
        if deadline is not None and time.monotonic() > deadline:
            waiting = [d.index for d in found if not d.complete]
            msg = (
                f"depots {waiting} of job {handle.job_id} ({status.value}) have not got all their rows after "
                f"{seconds:g} s"
            )
            raise TimeoutError(msg)
        time.sleep(_POLL)


def _on_ray(job: JobHandle) -> RayJobHandle:
    if not isinstance(job, RayJobHandle):
        msg = f"{job!r:.80} is no job on Ray; give what env.submit() returns"
        raise ConfigurationError(msg)
    return job
