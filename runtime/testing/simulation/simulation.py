"""`Simulation`: runs one seed from its first move to the oracle's word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.job import FIRST_JOB, SimulatedJob
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger
from penstock.runtime.testing.simulation.jobs.code_hooks import RunHooks
from penstock.runtime.testing.simulation.jobs.external_system import ExternalSystem
from penstock.runtime.testing.simulation.jobs.handover import Handover
from penstock.runtime.testing.simulation.jobs.scenario import HandlerMode, Scenario
from penstock.runtime.testing.simulation.jobs.surroundings import Around
from penstock.runtime.testing.simulation.oracle.damage_rule import needless_failure, records_passed_over
from penstock.runtime.testing.simulation.oracle.final_state import FinalState, newest_checkpoint
from penstock.runtime.testing.simulation.oracle.oracle import Oracle
from penstock.runtime.testing.simulation.oracle.restart_rule import is_by_rule
from penstock.runtime.testing.simulation.simulated_run import SimulatedRun
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World

#: Failures of checkpoints that nothing injects by name: they follow from what happens.
_SEEN_IN_HISTORY: Final = {
    CheckpointFailureReason.CHECKPOINT_EXPIRED: FaultKind.CHECKPOINT_EXPIRED,
    CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED: FaultKind.ALIGNMENT_LIMIT,
}


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """How a run went.

    Attributes:
        problems: What is wrong; empty when nothing is.
        happened: Failures that really happened, by kind.
        state: How the job ended; `None` when it did not.
        moves: Moves made.
        seconds: Virtual seconds.
        attempts: Attempts of the job, or of both.
        completed: Checkpoints completed.
        transactions: Transactions committed.
        captured: Parts of checkpoints that were acknowledged with data in flight.
        restored: Subtasks that began with data in flight.
        stored: Parts of checkpoints whose alignment stored elements.
        spilled: Those of them whose alignment needed the disk.
        barriers: The mode, and what the end of a channel means to a checkpoint that runs.
    """

    seed: int
    problems: tuple[str, ...]
    happened: Mapping[FaultKind, int] = field(default_factory=dict)
    state: JobState | None = None
    moves: int = 0
    seconds: float = 0.0
    attempts: int = 0
    completed: int = 0
    transactions: int = 0
    captured: int = 0
    restored: int = 0
    stored: int = 0
    spilled: int = 0
    barriers: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class Simulation:
    """One run.

    Args:
        scenario: What the seed picked.
        write: Takes the lines of the trace; `None` for no trace.

    Attributes:
        scenario: What the seed picked.
        system: The external system behind the sinks.

    Example:
        >>> from penstock.runtime.testing.simulation.jobs.scenario import draw_scenario
        >>> Simulation(draw_scenario(1)).run().passed
        True
    """

    def __init__(self, scenario: Scenario, write: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed, scenario.weather, write)
        self.system = ExternalSystem()
        ledger = HookLedger(self.world)
        around = Around(RunHooks(self.world), self.system, self.world.valves, ledger.make)
        self._program = scenario.shape.build(around)
        first = SimulatedJob(
            FIRST_JOB,
            build_execution_graph(self._program),
            scenario.config,
            compact_every=scenario.compact_every,
            inline_limit=scenario.inline_limit,
        )
        self._run = SimulatedRun(self.world, first, scenario.plan, ledger)
        checkpointing = scenario.config.checkpointing
        allow_older = checkpointing is not None and checkpointing.allow_older
        self.world.fallbacks.watch(self._take_back, allow_older=allow_older)
        self._is_whole = True

    @property
    def control(self) -> ControlPlane:
        """The processes and JobMasters of the job that runs."""
        return self._run.control

    def run(self) -> SimulationResult:
        """Run to the end and ask the oracle.

        Raises:
            StandstillError: A job does not end.
            Exception: Something failed that nobody had injected: a bug of the runtime, or of the simulation.
        """
        for line in self.scenario.describe() if self.world.trace.is_on else ():
            self.world.trace.note(line)
        state, cause = self._run.run_to_end()
        second = Handover(self.world, self.system, self.control.job, self.scenario.second)
        job = second.second(state, self._program)
        self._is_whole = not second.is_damaged
        if job is not None:
            self._run.go_on_with(job)
            state, cause = self._run.run_to_end()
        self._run.let_processes_end()
        assert not self.world.spill_disk.open_files, "a process that is gone has left spill files open"
        return self._result(self._check(state, cause), state)

    def _check(self, state: JobState, cause: str) -> list[str]:
        oracle = Oracle(self.scenario, self.system, self.world.restores)
        problems = self._check_restarts(state, cause) + self._run.problems_of_the_ends()
        has_gone_on = self._is_whole and state not in (JobState.CANCELLED, JobState.FAILED)
        if not has_gone_on or problems:
            return problems + oracle.check_cancelled()
        if state is not JobState.FINISHED:
            return [f"the job has {state.value}: {cause}"]
        if self.scenario.mode is HandlerMode.NO_CHECKPOINTS:
            return oracle.check_finished(None)
        self.world.storage.become_reliable()
        try:
            newest = newest_checkpoint(self.world.storage, self.control.job.id)
            # A second job may have found everything done, then it has taken none.
            assert newest is not None or self._run.jobs > 1, "the log has no checkpoint"
            state_left = None if newest is None else FinalState(self.world.storage, newest)
            return oracle.check_finished(state_left)
        except CorruptSnapshotError as error:
            if self.world.damage.explains(error):
                return oracle.check_finished(None)
            return [f"the last checkpoint can't be read: {error}"]

    def _take_back(self, job_id: str, attempt: int, checkpoint_id: int | None) -> None:
        """Do what a user does who lets a job start from an older checkpoint; `None` for the newest one."""
        self.system.fence(job_id, attempt)
        if checkpoint_id is not None and self.scenario.is_exactly_once:
            hidden = self.system.take_back_to(checkpoint_id)
            self.world.trace.note(f"** {hidden} transactions are taken back to checkpoint {checkpoint_id}")

    def _check_restarts(self, state: JobState, cause: str) -> list[str]:
        """Whether each job has restarted, and given up, as its user wanted."""
        has_failed = state is JobState.FAILED
        *earlier, last = self._run.restarts()
        # A record of the log that was passed over may be the one that had counted restarts.
        are_counted = not self.world.damage.has_struck_log
        problems = [problem for each in (*earlier, last) for problem in each.problems() if are_counted]
        if self.world.damage.has_struck_log:
            problems += [p for each in self._run.submitted for p in records_passed_over(self.world, each)]
        reason = self._run.reason_of_the_end
        # Damage may be one failure too many: then no older checkpoint is tried.
        if has_failed and self.world.damage.explains(cause + reason) and not is_by_rule(reason):
            self.world.counts.happened(FaultKind.FAILED_BY_DAMAGE)
            problems += needless_failure(self.world, self.control.job)
        elif has_failed:
            found = last.problems_of_the_end(reason)
            problems += [f"{problem}; cause: {cause}" for problem in found]
            self.world.counts.happened(FaultKind.GAVE_UP, int(not found))
        return problems

    def _result(self, problems: list[str], state: JobState) -> SimulationResult:
        statuses = self._run.statuses()
        failures = Counter(record.failure for status in statuses for record in status.checkpoint_history)
        for reason, kind in _SEEN_IN_HISTORY.items():
            self.world.counts.happened(kind, failures[reason])
        return SimulationResult(
            self.scenario.seed,
            tuple(problems),
            self.world.counts.by_kind(),
            state,
            self.world.trace.moves,
            self.world.clock.monotonic(),
            sum(status.attempt for status in statuses),
            sum(0 if status.checkpoints is None else status.checkpoints.completed for status in statuses),
            self.system.statistics().committed,
            self.world.captured,
            self.world.restored,
            self.world.stored,
            self.world.spilled,
            self.scenario.barriers,
        )
