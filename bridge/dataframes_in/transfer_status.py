"""Progress of the transfers to a job, for any program of the cluster."""

from __future__ import annotations

import time
from typing import Any, Final

import ray
from ray.util import list_named_actors

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.actor_calls import RepeatedCall
from penstock.actors.shared.registry import NAMESPACE
from penstock.bridge.receive_buffer.messages import ReceiveBufferStatistics, buffer_prefix
from penstock.runtime.errors import ConfigurationError, JobFailedError
from penstock.runtime.graph.executor import JobHandle, JobStatus
from penstock.runtime.names import checked_keywords
from penstock.runtime.time.durations import Duration, seconds_in

_POLL: Final = 0.2
_ANSWER: Final = 30.0


def transfer_statistics(job: JobHandle) -> list[ReceiveBufferStatistics]:
    """Counters of every receive buffer between Spark and this job, by index.

    They live as long as the job; afterwards the list is empty.

    Raises:
        ConfigurationError: The job does not run on Ray.
        NoAnswerError: A receive buffer is silent, or Ray can't reach it.
    """
    prefix = buffer_prefix(_on_ray(job).job_id)
    names = sorted(
        actor["name"]
        for actor in list_named_actors(all_namespaces=True)
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(prefix)
    )
    found: list[ReceiveBufferStatistics] = []
    for name in names:
        try:
            buffer: Any = ray.get_actor(name, namespace=NAMESPACE)
            call = RepeatedCall[dict[str, Any]](
                buffer.statistics.remote, f"{name} (rows between Spark and a job)"
            )
            counters = call.answer(_ANSWER)
            found.append(ReceiveBufferStatistics(**counters))
        except (ValueError, ray.exceptions.RayActorError):
            continue  # the job has just ended
    return found


@checked_keywords
def wait_for_transfer(job: JobHandle, timeout: Duration | None = None) -> list[ReceiveBufferStatistics]:
    """Wait until the job has all rows of all its DataFrames; Spark may be stopped then.

    Args:
        job: The result of `env.submit()`.
        timeout: Seconds to wait at most; `None` waits for ever.

    Returns:
        The counters of the receive buffers; none if the job has ended meanwhile.

    Raises:
        JobFailedError: The job failed before.
        TimeoutError: The transfer is not complete after `timeout`.
    """
    seconds = None if timeout is None else seconds_in("timeout", timeout)
    handle = _on_ray(job)
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        status = handle.status()
        if status is JobStatus.FAILED:
            failure = handle.report().failure
            why = "" if failure is None else f": {failure.root}"
            msg = f"job {handle.job_id} failed before all rows were transferred{why}"
            raise JobFailedError(msg)
        found = transfer_statistics(job)
        # Readers start their receive buffers when they are opened, so a job that runs has all of them, if
        # any.
        if status.is_terminal or (status is JobStatus.RUNNING and all(d.complete for d in found)):
            return found
        if deadline is not None and time.monotonic() > deadline:
            waiting = [d.index for d in found if not d.complete]
            msg = (
                f"receive buffers {waiting} of job {handle.job_id} ({status.value}) still lack rows "
                f"after {seconds:g} s"
            )
            raise TimeoutError(msg)
        time.sleep(_POLL)


def _on_ray(job: JobHandle) -> RayJobHandle:
    if not isinstance(job, RayJobHandle):
        msg = f"{job!r:.80} is not a job on Ray; give what env.submit() returns"
        raise ConfigurationError(msg)
    return job
