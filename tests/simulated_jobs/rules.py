"""Rules for every job, whatever it computes: damage, restarts, answers at its end, and its final state.

A JobMaster may die between the record of the end and its report. So the rule asks one more, which knows only
the log. It must say what every other one has said: the state, the savepoint of a stop, whether that was
drained, and the failure.

Whether a job has restarted as often as its user allows, and has given up when it had to.

The check knows the settings, and when the simulation saw attempts being deployed and stopped. It does not ask
the job's own counters. Nor does it count the attempts in the log: a JobMaster that gets no answer from the
storage begins another one, and neither may run. A rescale is deployed, too, and is no restart. How many
rescales took effect is known as an upper bound only: a JobMaster may die between its answer and the attempt.
So is the age that a job has for its own clock, when several JobMasters have counted it. A bound that is not
certain is not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import LogView
from penstock.runtime.config.restart import (
    NO_RESTARTS,
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartConfig,
)
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.job.job_ledger import EndedBefore, JobLedger
from penstock.runtime.job.job_state import JobState, SchedulerStatistics
from penstock.runtime.operators.source_operator import SPLITS
from penstock.runtime.operators.timers import PROCESSING_TIMERS
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import KeyGroupRange, StateHandle
from penstock.runtime.snapshot.metadata import decode_atoms, read_metadata, read_state
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.master import RestartLedger, SimulatedJob
from penstock.runtime.testing.simulation.run.simulated_run import (
    ENDED_BEFORE,
    MOST_CALM_MOVES,
    SimulatedRun,
    StandstillError,
)
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.watches import Damage
from penstock.runtime.testing.simulation.world.world import World
from penstock.runtime.time.durations import as_seconds
from simulated_jobs.operators import COUNTED, SEEN
from simulated_jobs.timed import DUE, Item

#: The beginnings of what a job says that gives up by its rule.
_BY_RULE = ("its settings allow no restart", "it has used its", "it has restarted", "it has failed")


def is_by_rule(reason: str) -> bool:
    """Whether a job says that it gives up because its user allows no more restarts.

    Example:
        >>> is_by_rule("it has used its 3 restarts"), is_by_rule("it would fail again")
        (True, False)
    """
    return reason.startswith(_BY_RULE)


@dataclass(frozen=True, slots=True)
class UsedRestarts:
    """The restarts of a job.

    Attributes:
        rule: What its user allows.
        rescales: Most of its deployments that may have been rescales.
        ledger: When attempts were deployed and stopped.
        failures: When something failed, in wall-clock seconds; also what failed before an attempt began.
        clocks_agree: Whether these times can be compared.
        drift: By which share of itself a second of the JobMaster may be wrong.
    """

    rule: RestartConfig
    rescales: int
    ledger: RestartLedger
    failures: tuple[float, ...] = ()
    clocks_agree: bool = True
    drift: float = 0.0

    def problems_of_the_end(self, reason: str) -> list[str]:
        """Why a job should not have failed that gives this reason.

        Example:
            >>> used = UsedRestarts(FixedDelay(attempts=3), 0, RestartLedger(), (1.0, 2.0, 3.0, 4.0))
            >>> used.problems_of_the_end("it has used its 3 restarts")
            []
        """
        if reason != ENDED_BEFORE and not is_by_rule(reason):
            return [f"the job has failed, and not by its restart strategy: {reason}"]
        limit = self._limit
        if isinstance(self.rule, FailureRate):
            return self._too_early(self.rule)
        if limit is None:
            return [f"it has given up ({reason}) although {self.rule} has no limit"]
        if self._failed < limit + 1:
            return [f"it has given up ({reason}) after {self._failed} failures, with {self.rule}"]
        return []

    def problems(self) -> list[str]:
        """Restarts of a job that should have failed."""
        limit, used = self._limit, len(self.ledger.deployed) - 1 - self.rescales
        if limit is not None and used > limit:
            return [f"it has restarted {used} times, with {self.rule}"]
        return self._too_often(self.rule) if isinstance(self.rule, FailureRate) else []

    @property
    def _limit(self) -> int | None:
        match self.rule:
            case NoRestart():
                return 0
            case FixedDelay(attempts=attempts) | ExponentialBackoff(attempts=attempts):
                return attempts
            case FailureRate():
                return None

    @property
    def _failed(self) -> int:
        """Number of failures; the end of a JobMaster is one, too."""
        return len(self.failures) + max(0, self.ledger.masters - 1)

    def _too_early(self, rule: FailureRate) -> list[str]:
        borne = rule.failures
        if self._failed <= borne:
            return [f"it has given up after {self._failed} failures, with {rule}"]
        if self.ledger.masters > 1 or not self.clocks_agree:
            return []
        since = self.failures[-1] - self.failures[-borne]
        if since > _seconds(rule.interval):
            return [f"it has given up although {borne} failures have taken {since:g} s, with {rule}"]
        return []

    def _too_often(self, rule: FailureRate) -> list[str]:
        ledger, borne = self.ledger, rule.failures
        if ledger.masters > 1 or self.rescales:
            return []
        for first in range(1, len(ledger.deployed) - borne):
            took = ledger.deployed[first + borne] - ledger.stopped[first]
            if took < _seconds(rule.interval) * (1 - 3 * self.drift):
                return [f"it has restarted {borne + 1} times within {took:g} s, with {rule}"]
        return []


def _seconds(duration: object) -> float:
    assert isinstance(duration, float), "a setting is in seconds once it was checked"
    return duration


#: Faults that damage the decision log.
_OF_THE_LOG: Final = (
    FaultKind.FLIPPED_SLOT,
    FaultKind.FLIPPED_HINT,
    FaultKind.SLOT_GONE,
    FaultKind.HINT_GONE,
)


def log_is_damaged(damage: Damage) -> bool:
    """Whether a fault has damaged a file of a decision log."""
    return any(kind in _OF_THE_LOG for kind in damage.values())


def records_passed_over(world: World, job: SimulatedJob) -> list[str]:
    """Damaged records of the log that a job went on behind although its user allows no older checkpoint."""
    view = None if _allows_older(job) else _log(world, job)
    if view is None:
        return []
    paths = SnapshotPaths(job.id)
    passed = [slot for slot in view.passed_slots if paths.log_slot(slot) in world.damage]
    return [f"the job has passed over the damaged records {passed} of its log"] if passed else []


def needless_failure(world: World, job: SimulatedJob) -> list[str]:
    """The checkpoints that a job could have started from that has failed because of damage, as problems.

    A record of the log that is gone may have been anything, so no setting allows it.
    """
    view = (
        _log(world, job) if _allows_older(job) and FaultKind.SLOT_GONE not in world.damage.values() else None
    )
    if view is None:
        return []
    storage, problems = world.storage.reliable(), []
    for record in view.completed:
        try:
            checkpoint = read_metadata(storage, record.metadata)
        except CorruptSnapshotError:
            continue
        place = checkpoint.location
        folder = "" if place is None else place.removeprefix(f"{storage.url}/") + "/"
        files = [record.metadata.path, *(folder + file.path for file in checkpoint.files())]
        if world.damage.keys().isdisjoint(files):
            problems.append(f"the job has failed, and could have started from {record.checkpoint_id}")
    return problems


def _allows_older(job: SimulatedJob) -> bool:
    return job.config.checkpointing is not None and job.config.checkpointing.allow_older


def _log(world: World, job: SimulatedJob) -> LogView | None:
    """The log without what is damaged; `None` when it can't be read."""
    storage = world.storage.reliable()
    try:
        return DecisionLogReader(storage, SnapshotPaths(job.id), allow_damaged=True).replay()
    except CorruptSnapshotError:
        return None  # the only compaction of the log is damaged, or a record is gone


def newest_checkpoint(storage: SnapshotStorage, job_id: str) -> CompletedCheckpoint | None:
    """The newest checkpoint that stands in a job's log; `None` when there is none.

    Raises:
        CorruptSnapshotError: It is damaged or missing.
    """
    newest = DecisionLog(storage, SnapshotPaths(job_id)).replay().newest
    return None if newest is None else read_metadata(storage, newest.metadata)


class FinalState:
    """The state in the last checkpoint.

    Args:
        storage: Where it is.

    Raises:
        CorruptSnapshotError: Something of it is damaged or missing.
    """

    def __init__(self, storage: SnapshotStorage, checkpoint: CompletedCheckpoint) -> None:
        self._storage = storage
        self._codec = ValueCodec()
        self._checkpoint = checkpoint

    def keyed(self, operator: str, number: int) -> dict[Any, tuple[int, int]]:
        """Number and digest of each key of a keyed operator."""
        entries = self._backend(operator).table(SEEN).entries
        return {key: (seen[0], seen[1]) for key, seen in entries.items()}

    def waiting_items(self, operator: str) -> Counter[Item]:
        """The records that wait for timers in the part that lives by time."""
        due = self._backend(operator).table(DUE, nested=True).entries
        return Counter(item for moments in due.values() for items in moments.values() for item in items)

    def timer_problems(self, operator: str) -> list[str]:
        """Violations of timers of processing time: each is that of records which wait for it."""
        backend = self._backend(operator)
        due = backend.table(DUE, nested=True).entries
        timers = backend.table(PROCESSING_TIMERS, nested=True).entries
        return [
            f"{operator}, key {key}: timers at {sorted(timers.get(key, ()))} instead of {sorted(moments)}"
            for key, moments in due.items()
            if timers.get(key, {}).keys() != moments.keys()
        ]

    def counted(self, operator: str) -> int:
        """Number of records that the subtasks of a step have counted."""
        return sum(self._values(operator, COUNTED))

    def unread(self, operator: str) -> list[Any]:
        """Splits of a source that are not finished, with its readers or with its coordinator."""
        state = self._checkpoint.operators.get(operator)
        if state is None or state.coordinator is None:
            return self._values(operator, SPLITS)
        _, unassigned = self._codec.loads(self.read(state.coordinator))
        return self._values(operator, SPLITS) + list(unassigned)

    def read(self, handle: StateHandle) -> bytes:
        """The bytes behind a handle."""
        return read_state(self._storage, handle)

    def _backend(self, operator: str) -> HeapKeyedStateBackend:
        """The keyed state of an operator, of all its subtasks; empty for one that has none."""
        state = self._checkpoint.operators.get(operator)
        if state is None:
            return HeapKeyedStateBackend(BackendSetup("op", 1, KeyGroupRange(0, 0), self._codec))
        groups = KeyGroupRange(0, state.max_parallelism - 1)
        backend = HeapKeyedStateBackend(BackendSetup("op", state.max_parallelism, groups, self._codec))
        backend.restore([handle for s in state.subtasks.values() for handle in s.keyed], self)
        return backend

    def _values(self, operator: str, name: str) -> list[Any]:
        state = self._checkpoint.operators.get(operator)
        if state is None:
            return []
        return [
            self._codec.loads(atom)
            for subtask in state.subtasks.values()
            for handle in subtask.operator
            if handle.name == name
            for atom in decode_atoms(self.read(handle.state), operator)
        ]


def used_restarts(run: SimulatedRun) -> list[UsedRestarts]:
    """The restarts of each job of a run."""
    return [_restarting(run.world, control) for control in run.controls]


def _restarting(world: World, control: ControlPlane) -> UsedRestarts:
    counts, statuses = world.counts.by_kind(), control.masters.statuses()
    failures = sorted(
        transition.at
        for status in statuses
        for transition in status.transitions
        if transition.target is JobState.FAILING
        or (transition.target is JobState.RESTARTING and transition.source is not JobState.FAILING)
    )
    return UsedRestarts(
        control.job.config.restart or NoRestart(),
        counts.get(FaultKind.RESCALED, 0),
        control.restarts,
        tuple(failures),
        clocks_agree=not world.clocks.differ and FaultKind.CLOCK_SET not in counts,
        drift=world.conditions.clock_drift,
    )


def problems_of_the_ends(run: SimulatedRun) -> list[str]:
    """Whether each job's log has the answers that its JobMasters have given."""
    if log_is_damaged(run.world.damage):
        return []
    storage = run.world.storage
    storage.become_reliable()
    return [
        problem
        for control in run.controls
        if control.job.config.checkpointing is not None
        for problem in end_problems(storage, control.job, control.masters.statuses())
    ]


def let_processes_end(run: SimulatedRun, most_moves: int = MOST_CALM_MOVES) -> None:
    """Move until no process of any job lives: what nothing needs any more leaves by itself.

    Raises:
        StandstillError: One does not.
        Exception: Something failed that was not injected: a bug.
    """
    world = run.world
    if not world.is_calm:
        world.calm_down()
    longest = 3 * max(as_seconds(control.job.config.advanced.lease_timeout) for control in run.controls)
    since, first_move = world.clock.monotonic(), world.trace.moves
    while left := [process for control in run.controls for process in control.alive]:
        lasts, moves = world.clock.monotonic() - since, world.trace.moves - first_move
        if lasts > longest or moves > most_moves or not run.move():
            names = ", ".join(map(str, left))
            msg = f"processes live {lasts:g} s, {moves} moves after the end of their job: {names}"
            raise StandstillError(msg)


def end_problems(
    storage: SnapshotStorage, job: SimulatedJob, statuses: Sequence[SchedulerStatistics]
) -> list[str]:
    """Violations in the answers of an ended job; none for one whose end could not be recorded.

    Args:
        storage: It answers.
        statuses: What each of its JobMasters knows, or knew last.
    """
    view = DecisionLog(storage, SnapshotPaths(job.id)).replay()
    if view.ended is None:
        return []
    found = JobLedger(job.id, storage, job.config.checkpointing).begin_attempt(0.0, NO_RESTARTS)
    if not isinstance(found, EndedBefore):
        return [f"{job.id} has ended, and another JobMaster begins an attempt"]
    problems = []
    with suppress(CorruptSnapshotError):  # no job can start from a damaged savepoint, so it is none
        newest = newest_checkpoint(storage, job.id)
        is_stopped = newest is not None and newest.kind is SnapshotKind.SYNC_SAVEPOINT
        if is_stopped is not (found.savepoint is not None):
            problems.append(
                f"{job.id} has the savepoint {found.savepoint} of a stop in the record of its end"
            )
    if found.state is JobState.FAILED and found.failure is None:
        problems.append(f"{job.id} has failed, and the record of its end does not say of what")
    for status in statuses:
        if not status.state.is_terminal or status.is_fenced or status.attempt != found.attempt:
            continue
        told, has = (
            (status.state, status.stopped_with, status.drained),
            (
                found.state,
                found.savepoint,
                found.drained,
            ),
        )
        if told != has:
            problems.append(f"a JobMaster of {job.id} has said {told}; its log has {has}")
    return problems
