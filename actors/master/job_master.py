"""`JobMaster`: the actor that runs one job at a time, and its calls.

The actor is detached, so the job outlives the program that submitted it. Ray restarts the actor when it dies.

Ray loads an actor's class in every process that gets a handle of it, and each subtask gets one. So this file
has only the calls. `MasterProcess`, which only the actor's own process imports, carries them out.

The process serves several jobs, one after the other, so every call of a client names its job. A call raises
`ValueError` if the process does not run that job, or no longer runs it. `ray.get_actor` raises the same error
if the actor has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.actors.shared.edge_records import EdgeRecord
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
        chunks: Chunks of the job, as separate arguments. Ray keeps small ones in the actor's specification,
            which outlives the program. A large one would be lost with the program.
    """

    def __init__(self, process: str, job: SubmittedJob, *chunks: bytes) -> None:
        from penstock.actors.master.master_process import MasterProcess

        self._process = MasterProcess(process, job, chunks)

    async def take(self, job: SubmittedJob) -> bool:
        """Run another job for the program that has claimed this process; `False` if the process refuses."""
        return await self._process.take(job)

    # -- calls of clients -----------------------------------------------------------------------------------

    async def ready(self, job_id: str) -> None:
        """Return once the job's scheduler has started or failed to start."""
        await self._process.runner.running(job_id).ready()

    async def status(self, job_id: str, fresh: bool = True) -> JobReport:
        """The job's report; without `fresh` no subtask is asked for its counters."""
        return await self._process.runner.running(job_id).status(fresh)

    async def wait(self, job_id: str, seconds: float) -> JobReport:
        return await self._process.runner.running(job_id).wait_end(seconds)

    async def cancel(self, job_id: str) -> None:
        """Cancel the job; does nothing when it has ended. A restarted process cancels the job, too."""
        await self._process.runner.running(job_id).cancel()

    async def checkpoint(self, job_id: str, full: bool = False) -> CheckpointReply:
        """Take a checkpoint now; return its outcome, or the reason for its failure."""
        return await self._process.runner.running(job_id).requests.checkpoint(full)

    async def savepoint(self, job_id: str, target: str | None) -> SavepointAnswer:
        """Take a savepoint; return its outcome, or the reason for its failure."""
        return await self._process.runner.running(job_id).requests.savepoint(target)

    async def stop(self, job_id: str, drain: bool, target: str | None) -> SavepointAnswer:
        """Stop the job with a savepoint; return it after the job's end, or return why the job continues."""
        return await self._process.runner.running(job_id).requests.stop(drain, target)

    async def keep_program(self, job_id: str) -> None:
        """Start an actor that keeps the job's program; return once it has the program."""
        await self._process.runner.running(job_id).keep_program(JobMaster)

    async def rescale(self, job_id: str, parallelism: Mapping[str, int]) -> RescaleAnswer:
        """Change the parallelism; return when the new deployment begins, or return a refusal."""
        return await self._process.runner.running(job_id).requests.rescale(parallelism)

    async def checkpoints(
        self, job_id: str, checkpoint_id: int | None = None
    ) -> tuple[CheckpointDetails, ...]:
        """The remembered checkpoints, or one by its id, oldest first.

        The newest ones have the measurements of each subtask.
        """
        return await self._process.runner.running(job_id).checkpoints(checkpoint_id)

    async def sample_edge(self, job_id: str, edge: int, most: int, seconds: float) -> list[EdgeRecord]:
        """Records that are sent now on the graph's edge with index `edge`; empty if none is sent in time."""
        return await self._process.runner.running(job_id).sample_edge(edge, most, seconds)

    async def leave(self, incarnation: str) -> bool:
        """End this actor for good. Its own process calls this; `False` when another incarnation answers."""
        return self._process.leave_if(incarnation)

    # -- calls of subtasks ----------------------------------------------------------------------------------

    async def answers(self) -> None:
        """Return at once; an answer proves that the event loop runs. Waiting clients call this, too."""

    async def report(self, role: Role, report: SubtaskReport) -> None:
        """Take a report of this job's subtask; the scheduler ignores reports of old attempts."""
        runner = self._process.runner.current
        if runner is None or runner.job_id != role.job_id or runner.scheduler is None:
            return
        with runner.guard():
            runner.scheduler.report(role.attempt, report)
