"""`Simulation`: runs one seed from its first move to the oracle's word; `summarise` adds up many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.master import FIRST_JOB, SimulatedJob
from penstock.runtime.testing.simulation.run.simulated_run import RunFigures, SimulatedRun
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World
from simulated_jobs.handover import Handover
from simulated_jobs.observer import SimulatedObserver
from simulated_jobs.operators import RunHooks
from simulated_jobs.oracle import Oracle
from simulated_jobs.records import ExternalSystem
from simulated_jobs.rules import (
    FinalState,
    is_by_rule,
    let_processes_end,
    log_is_damaged,
    needless_failure,
    newest_checkpoint,
    problems_of_the_ends,
    records_passed_over,
    used_restarts,
)
from simulated_jobs.scenario import HandlerMode, Scenario, draw_scenario
from simulated_jobs.split_source import JobPorts

#: Failures of checkpoints that nothing injects by name: they follow from what happens.
_SEEN_IN_HISTORY: Final = {
    CheckpointFailureReason.CHECKPOINT_EXPIRED: FaultKind.CHECKPOINT_EXPIRED,
    CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED: FaultKind.ALIGNMENT_LIMIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult(RunFigures):
    """The outcome of a run.

    Attributes:
        problems: What is wrong; empty when nothing is.
        state: How the job ended; `None` when it did not.
        transactions: Transactions committed.
        captured: Parts of checkpoints that were acknowledged with data in flight.
        restored: Subtasks that began with data in flight.
        stored: Parts of checkpoints whose alignment stored elements.
        spilled: Those of them whose alignment needed the disk.
        barriers: The mode, and what the end of a channel means to a checkpoint that runs.
    """

    seed: int
    problems: tuple[str, ...]
    state: JobState | None = None
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
        >>> from simulated_jobs.scenario import draw_scenario
        >>> Simulation(draw_scenario(1)).run().passed
        True
    """

    def __init__(self, scenario: Scenario, write: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed, scenario.conditions, write)
        self.system = ExternalSystem()
        observer = self.world.observer = SimulatedObserver(self.world)
        ports = JobPorts(RunHooks(self.world), self.system, observer.valves, observer.make_hook)
        self._program = scenario.shape.build(ports)
        first = SimulatedJob(
            FIRST_JOB,
            build_execution_graph(self._program),
            scenario.config,
            compact_every=scenario.compact_every,
            inline_limit=scenario.inline_limit,
        )
        self._run = SimulatedRun(self.world, first, scenario.plan, take_back=self._take_back)
        self._is_whole = True

    @property
    def control(self) -> ControlPlane:
        """The processes and JobMasters of the job that runs."""
        return self._run.control

    def run(self) -> SimulationResult:
        """Run to the end and ask the oracle.

        Raises:
            StandstillError: A job does not end.
            Exception: Something failed that was not injected: a bug of the runtime, or of the simulation.
        """
        for line in self.scenario.describe() if self.world.trace.is_on else ():
            self.world.trace.note(line)
        second = Handover(self.world, self.system, self.control.job, self.scenario.second)
        state, cause = self._run.run_to_end(lambda state: second.second(state, self._program))
        self._is_whole = not second.is_damaged
        let_processes_end(self._run)
        left = sum(disk.open_files for disk in self.world.spill_disks)
        assert not left, "a process that is gone has left spill files open"
        return self._result(self._check(state, cause), state)

    def _check(self, state: JobState, cause: str) -> list[str]:
        oracle = Oracle(self.scenario, self.system, self.world.restores)
        problems = self._check_restarts(state, cause) + problems_of_the_ends(self._run)
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
            assert newest is not None or len(self._run.controls) > 1, "the log has no checkpoint"
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
        *earlier, last = used_restarts(self._run)
        # A record of the log that was passed over may be the one that had counted restarts.
        log_is_whole = not log_is_damaged(self.world.damage)
        problems = [problem for each in (*earlier, last) for problem in each.problems() if log_is_whole]
        if not log_is_whole:
            problems += [p for each in self._run.controls for p in records_passed_over(self.world, each.job)]
        reason = self._run.reason_of_the_end
        # Damage may be one failure too many: then no older checkpoint is tried.
        if has_failed and self._run.is_explained_by_damage(cause) and not is_by_rule(reason):
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
            **asdict(self._run.figures()),
            seed=self.scenario.seed,
            problems=tuple(problems),
            state=state,
            transactions=self.system.statistics().committed,
            captured=self.world.captured,
            restored=self.world.restored,
            stored=self.world.stored,
            spilled=self.world.spilled,
            barriers=self.scenario.barriers,
        )


#: How a failing seed is run again.
REPLAY: Final = "python tests/simulate.py --seed {seed} --trace"

#: The deaths of processes.
_KILLS: Final = (
    FaultKind.CRASH,
    FaultKind.CRASH_IN_STEP,
    FaultKind.CRASH_IN_UPLOAD,
    FaultKind.CRASH_AFTER_END,
    FaultKind.MASTER_CRASH,
)

#: So much of an error's text stands in a summary.
_MOST_TEXT: Final = 2000


def run_seed(seed: int, write: Callable[[str], None] | None = None) -> SimulationResult:
    """Run one seed; an error that was not injected is a problem of the result.

    Args:
        write: Takes the lines of the trace; `None` for no trace.

    Example:
        >>> run_seed(3).passed
        True
    """
    simulation = Simulation(draw_scenario(seed), write)
    try:
        return simulation.run()
    except Exception as error:  # a bug of any kind is the run's result
        problem = f"{type(error).__name__}: {error}"
        if error.__cause__ is not None:
            problem += f"\n  because of {type(error.__cause__).__name__}: {error.__cause__}"
        counts = simulation.world.counts.by_kind()
        return SimulationResult(
            seed=seed, problems=(problem,), happened=counts, moves=simulation.world.trace.moves
        )


@dataclass(slots=True)
class Summary:
    """The outcome of many runs.

    Attributes:
        passed: Seeds without a problem.
        failed: The other ones.
        moves: Moves of all runs.
        captured: Parts of checkpoints that were acknowledged with data in flight.
        restored: Subtasks that began with data in flight.
        stored: Parts of checkpoints whose alignment stored elements.
        spilled: Those of them whose alignment needed the disk.
        counts: Failures that really happened.
        kills: Processes that died, by mode and meaning of the end of a channel.
    """

    passed: int = 0
    failed: list[int] = field(default_factory=list)
    moves: int = 0
    captured: int = 0
    restored: int = 0
    stored: int = 0
    spilled: int = 0
    counts: Counter[FaultKind] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)

    def add(self, result: SimulationResult) -> None:
        """Take one run in."""
        if result.passed:
            self.passed += 1
        else:
            self.failed.append(result.seed)
        self.moves += result.moves
        self.captured += result.captured
        self.restored += result.restored
        self.stored += result.stored
        self.spilled += result.spilled
        self.counts.update(result.happened)
        if result.barriers:
            self.kills[result.barriers] += sum(result.happened.get(kind, 0) for kind in _KILLS)

    @property
    def missing_kinds(self) -> list[FaultKind]:
        """Kinds of failures that never happened; these jobs have no external world."""
        return [kind for kind in FaultKind if not self.counts[kind] and kind is not FaultKind.EXTERNAL]

    def lines(self) -> list[str]:
        """In words, for the end of a run."""
        counts = ", ".join(f"{k.value} {self.counts[k]}" for k in FaultKind if self.counts[k]) or "none"
        return [
            f"{self.moves} moves; subtasks that put data in flight into a checkpoint: {self.captured}, "
            f"that began with such data: {self.restored}; whose alignment stored elements: {self.stored}, "
            f"on disk: {self.spilled}",
            f"failures injected that really happened: {self.counts.total()} ({counts})",
            f"processes killed: {self.kills.total()}",
            *(f"  {settings}: {kills}" for settings, kills in sorted(self.kills.items())),
            f"{self.passed} passed, {len(self.failed)} failed",
        ]


def describe_failure(result: SimulationResult) -> list[str]:
    """The failure of a seed, and the command that repeats it."""
    problems = [f"  {problem[:_MOST_TEXT]}" for problem in result.problems]
    return [
        f"seed {result.seed} FAILED after {result.moves} moves:",
        *problems,
        f"  see it again: {REPLAY.format(seed=result.seed)}",
    ]


def summarise(results: Iterable[SimulationResult], write: Callable[[str], None]) -> Summary:
    """The totals of several runs."""
    summary = Summary()
    for result in results:
        summary.add(result)
        if not result.passed:
            for line in describe_failure(result):
                write(line)
    return summary
