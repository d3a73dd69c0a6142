"""`JobMaster`: the actor that runs one job at a time, and its calls.

It is detached, so the job outlives the program that submitted it. Ray restarts it whenever it dies.

Ray loads an actor's class in every process that gets a handle of it, and each subtask gets one. So this file
has only the calls. `MasterProcess`, which the actor's own process alone imports, carries them out.

The process serves several jobs, one after the other. So every call of a client names its job. It raises
`ValueError` when the process does not run that job (any more), as Ray does for an actor that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.actors.shared.job_report import JobReport
    from penstock.actors.shared.registry import SubmittedJob
    from penstock.actors.shared.snapshot_answers import CheckpointReply, SavepointAnswer
    from penstock.runtime.execution.role import Role
    from penstock.runtime.job.job_state import RescaleAnswer, SubtaskReport
    from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails


class JobMaster:
    """Answers the calls of clients and subtasks.

    Args:
        job: The first job to run, without its chunks.
        chunks: Separate arguments: Ray keeps small ones in the actor's specification, also when the program
            has ended. A large one would be lost with the program.
    """

    def __init__(self, process: str, job: SubmittedJob, *chunks: bytes) -> None:
        from penstock.actors.master.master_process import MasterProcess

        self._process = MasterProcess(process, job, chunks)

    async def take(self, job: SubmittedJob) -> bool:
        """Run another job for the program that has claimed this process; `False` when it must not."""
        return await self._process.take(job)

    # -- calls of clients -----------------------------------------------------------------------------------

    async def ready(self, job_id: str) -> None:
        """Return when the job's scheduler has started, or could not be made."""
        await self._process.runner(job_id).ready()

    async def status(self, job_id: str, fresh: bool = True) -> JobReport:
        """The job's report; without `fresh` no subtask is asked for its counters."""
        return await self._process.runner(job_id).status(fresh)

    async def wait_end(self, job_id: str, seconds: float) -> JobReport:
        return await self._process.runner(job_id).wait_end(seconds)

    async def cancel(self, job_id: str) -> None:
        """Cancel the job; does nothing when it has ended. A cancellation outlives this process."""
        await self._process.runner(job_id).cancel()

    async def checkpoint(self, job_id: str, full: bool = False) -> CheckpointReply:
        """Take a checkpoint now; returns when it is complete, or why there is none."""
        return await self._process.runner(job_id).requests.checkpoint(full)

    async def savepoint(self, job_id: str, target: str | None) -> SavepointAnswer:
        """Take a savepoint; returns when it is complete, or why there is none."""
        return await self._process.runner(job_id).requests.savepoint(target)

    async def stop(self, job_id: str, drain: bool, target: str | None) -> SavepointAnswer:
        """Stop the job with a savepoint; returns when the job has ended, or why it continues."""
        return await self._process.runner(job_id).requests.stop(drain, target)

    async def rescale(self, job_id: str, parallelism: Mapping[str, int]) -> RescaleAnswer:
        """Change the parallelism of operators; returns when the subtasks are redeployed, or why not."""
        return await self._process.runner(job_id).requests.rescale(parallelism)

    async def checkpoints(
        self, job_id: str, checkpoint_id: int | None = None
    ) -> tuple[CheckpointDetails, ...]:
        """The last checkpoints with what each subtask measured, oldest first; with an id, those with it."""
        return await self._process.runner(job_id).checkpoints(checkpoint_id)

    async def leave(self, incarnation: str) -> bool:
        """End this actor for good. A process calls itself; `False` says that another one got the call."""
        return self._process.leave_if(incarnation)

    # -- calls of subtasks ----------------------------------------------------------------------------------

    async def answers(self) -> None:
        """Return at once: an answer says that the event loop runs."""

    async def report(self, role: Role, report: SubtaskReport) -> None:
        """Take a subtask's report; the scheduler ignores those of old attempts."""
        runner = self._process.current
        if runner is not None and (scheduler := runner.scheduler_of(role)) is not None:
            with runner.guard():
                scheduler.report(role.attempt, report)
