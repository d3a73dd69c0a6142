"""`SubtaskActor`: the Ray actor around one subtask.

Its event loop only receives: frames, control, leases. The subtask itself runs in a task thread (`Attempt`).
The actor outlives attempts: after a failure elsewhere it is deployed again, which saves starting a process.

Attempts are fenced: a deployment that arrives after a newer one, or after a stop that covers it, is refused,
and a stop never touches a newer attempt. So neither a call that comes late nor a JobMaster that has been
replaced can undo what a newer one did.

It holds a lease. An actor that hears from no JobMaster for `lease_timeout` ends itself, so that no orphan
stays on the cluster whatever died first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.cycle_collector import spare_long_lived_objects
from penstock.actors.shared.messages import SubtaskControl, SubtaskFailed, SubtaskOutcome, SubtaskStopped
from penstock.actors.shared.output_capture import capture_subtask
from penstock.actors.subtask.deliveries import DeliveryAnswer
from penstock.actors.subtask.lease import Lease
from penstock.actors.subtask.metrics import SubtaskMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.statistics import SubtaskStatistics

if TYPE_CHECKING:
    from penstock.actors.subtask.attempt import Attempt

logger = logging.getLogger(__name__)


class SubtaskActor:
    """Runs the attempts of one subtask, one after the other.

    Args:
        job_id: The job.
        lease_timeout: Seconds without a sign of the JobMaster after which the actor ends itself.
    """

    def __init__(self, job_id: str, lease_timeout: float) -> None:
        # For `deploy`: loaded here, while other actors are being started, and not above, because the
        # JobMaster loads this module, too, and has no use for all that runs a subtask.
        import penstock.actors.subtask.attempt  # noqa: F401

        self._job_id = job_id
        self._lease = Lease(lease_timeout, time.monotonic())
        self._attempt: Attempt | None = None
        #: No attempt up to this number is deployed any more.
        self._past = 0
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="snapshot")
        self._loop = asyncio.get_running_loop()
        self._watchdog = self._loop.create_task(self._watch_lease())
        self._metrics = SubtaskMetrics()
        self._output = capture_subtask(job_id)

    async def where(self) -> tuple[int, str]:
        """Process id and node id: what a message about this actor needs."""
        return os.getpid(), ray.get_runtime_context().get_node_id()

    async def deploy(self, descriptor: TaskDescriptor, master: ActorHandle[Any]) -> SubtaskFailed | None:
        """Build and restore the subtask of a new attempt; what went wrong, if anything did."""
        from penstock.actors.subtask.attempt import Attempt, describe_failure

        self._lease.renew()
        past = SubtaskFailed(f"attempt {descriptor.attempt} of {descriptor.id} is past", "")
        if descriptor.attempt <= self._past:
            return past
        self._past = descriptor.attempt - 1
        previous = self._attempt
        if previous is not None and previous.outcome is None:
            await previous.stop()
        if descriptor.attempt <= self._past:
            return past
        self._attempt = attempt = Attempt(descriptor, master, self._pool, self._loop)
        try:
            await attempt.deploy()
        except Exception as error:
            attempt.outcome = describe_failure(error)
            return attempt.outcome
        spare_long_lived_objects()
        return None

    async def run(self, attempt: int, peers: Mapping[SubtaskId, ActorHandle[Any]]) -> SubtaskOutcome:
        """Run a deployed attempt to its end; this call stays open and its failure is the actor's death."""
        current = self._current(attempt)
        if current is None:
            return SubtaskStopped()
        current.start(peers)
        self._metrics.begin(self._job_id, str(current.descriptor.id), current.statistics)
        outcome = await current.run()
        if self._output is not None:
            self._output.flush()
        return outcome

    async def deliver(self, attempt: int, channel: int, first: int, elements: list[bytes]) -> int:
        """Take a frame of a channel; the return, the value of a `DeliveryAnswer`, is the sender's credit."""
        current = self._attempt
        if current is None or current.descriptor.attempt < attempt:
            return DeliveryAnswer.NOT_YET.value
        if current.descriptor.attempt > attempt:
            return DeliveryAnswer.STALE.value
        answer = await current.deliver(channel, first, elements)
        return answer.value

    async def control(self, attempt: int, message: SubtaskControl) -> bool:
        """Take a message of the JobMaster; `False` if it is for another attempt or one that is over."""
        self._lease.renew()
        current = self._current(attempt)
        if current is None or current.outcome is not None:
            return False
        current.control(message)
        return True

    async def stop(self, attempt: int) -> None:
        """Stop this attempt, or an older one that still runs, and wait until it is closed."""
        self._lease.renew()
        self._past = max(self._past, attempt)
        current = self._attempt
        if current is not None and current.outcome is None and current.descriptor.attempt <= attempt:
            await current.stop()

    async def renew_lease(self) -> tuple[int, SubtaskStatistics | None]:
        """The JobMaster lives; it is told the counters, and of which attempt they are."""
        self._lease.renew()
        if self._attempt is None:
            return 0, None
        return self._attempt.descriptor.attempt, self._attempt.statistics()

    async def leave(self) -> None:
        """End this actor."""
        if self._attempt is not None:
            await self.stop(self._attempt.descriptor.attempt)
        self._metrics.end()
        ray.actor.exit_actor()  # type: ignore[no-untyped-call]

    def _current(self, attempt: int) -> Attempt | None:
        current = self._attempt
        return current if current is not None and current.descriptor.attempt == attempt else None

    async def _watch_lease(self) -> None:
        while True:
            await asyncio.sleep(self._lease.interval)
            if self._lease.is_over(time.monotonic()):
                silent = self._lease.silent
                logger.error("heard from no JobMaster of job %s for %.0f s: leaving", self._job_id, silent)
                # The task thread may be stuck in users' code, so the process is ended, not asked.
                os._exit(1)
