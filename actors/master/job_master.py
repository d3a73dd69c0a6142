"""`JobMaster`: the actor that runs one job, and its calls.

It is detached, so the job outlives the program that submitted it. Ray restarts it whenever it dies.

Ray loads an actor's class in every process that gets a handle of it, and each subtask gets one. So this file
has only the calls. `JobLife`, which the actor's own process alone imports, carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.actors.shared.checkpoint_answers import CheckpointReply
    from penstock.actors.shared.job_report import JobReport
    from penstock.actors.shared.savepoint_answers import SavepointAnswer
    from penstock.runtime.execution.messages import SubtaskReport
    from penstock.runtime.execution.role import Role
    from penstock.runtime.job.rescale_request import RescaleAnswer
    from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails


class JobMaster:
    """Answers the calls of clients and subtasks.

    Args:
        job_id: Lower-case letters, digits and `-`.
        name: The name that the user gave.
        submitted_at: Seconds since the epoch.
        chunks: The pickled job graph and settings (see `graph_shipping`).
    """

    def __init__(self, job_id: str, name: str, submitted_at: float, *chunks: bytes) -> None:
        from penstock.actors.master.job_life import JobLife

        self._life = JobLife(job_id, name, submitted_at, *chunks)

    # -- calls of clients -----------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return when the job has been taken up."""
        await self._life.ready()

    async def status(self) -> JobReport:
        """Everything that is known of the job right now, counters fresh."""
        return await self._life.status()

    async def wait_end(self, seconds: float) -> JobReport:
        """Wait for the job to end, at most so long; its report then."""
        return await self._life.wait_end(seconds)

    async def cancel(self) -> None:
        """Cancel the job; does nothing when it has ended. Remembered should this process die meanwhile."""
        await self._life.cancel()

    async def checkpoint(self, full: bool = False) -> CheckpointReply:
        """Take a checkpoint now; returns when it is complete, or why there is none."""
        return await self._life.checkpoint(full)

    async def savepoint(self, target: str | None) -> SavepointAnswer:
        """Take a savepoint; returns when it is complete, or why there is none."""
        return await self._life.savepoint(target)

    async def stop(self, drain: bool, target: str | None) -> SavepointAnswer:
        """Stop the job with a savepoint; returns when the job has ended, or why it goes on."""
        return await self._life.stop(drain, target)

    async def rescale(self, parallelism: Mapping[str, int]) -> RescaleAnswer:
        """Change the parallelism of operators; returns when the subtasks are redeployed, or why not."""
        return await self._life.rescale(parallelism)

    async def checkpoints(self) -> tuple[CheckpointDetails, ...]:
        """The last checkpoints with what each subtask measured, oldest first."""
        return await self._life.checkpoints()

    async def leave(self, incarnation: str) -> bool:
        """End this actor for good; a process calls itself, and `False` says that another one got the call."""
        return self._life.leave(incarnation)

    # -- calls of subtasks ----------------------------------------------------------------------------------

    async def report(self, role: Role, report: SubtaskReport) -> None:
        """Take what a subtask says; the scheduler ignores what belongs to an old attempt."""
        self._life.report(role, report)
