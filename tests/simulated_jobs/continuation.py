"""A stop of a user's job with a savepoint, and a second job that starts from it.

The second program is built for the world of the first, so the output of both is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import snapshot_url
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.simulation.cluster.master import FIRST_JOB, SECOND_JOB, SimulatedJob
from penstock.runtime.testing.simulation.run.target import Plan
from penstock.runtime.testing.simulation.run.user_job import UserJob
from penstock.runtime.testing.simulation.run.user_run import Course, UserSimulation
from penstock.runtime.testing.simulation.world.agenda import Conditions, Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault


@dataclass(frozen=True, slots=True)
class Continuation:
    """A stop with a savepoint, and a second job that starts from it, unless the first job ends earlier.

    Attributes:
        build: Builds the second program, for the world that the first one writes to.
        drain: Whether event time advances to its end before the stop.
        after: The move at which the user asks for the stop.
    """

    build: Callable[[Any], StreamEnvironment]
    drain: bool
    after: int


class ContinuedSimulation(UserSimulation):
    """A run with a `Continuation`."""

    def __init__(
        self,
        build: Callable[[], Any],
        output: Callable[..., Any],
        course: Course,
        continuation: Continuation,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self._output = output
        self._continuation = continuation
        super().__init__(build, output, course, write)

    def next_job(self, state: JobState) -> SimulatedJob | None:
        if state is not JobState.FINISHED or not (url := self._savepoint()):
            return None
        self.world.trace.note(f"== a second job starts from {url} ==")
        world, build = self.job.world, self._continuation.build
        second = UserJob(lambda: (build(world), world), self._output, chaining=self.chaining)
        second.graph = replace(second.graph, restore_from=url)
        return self.submitted(SECOND_JOB, second, 12)

    def _savepoint(self) -> str | None:
        """The savepoint that the first job was stopped with; `None` if it ended before."""
        storage = self.world.storage.reliable()
        completed = DecisionLogReader(storage, SnapshotPaths(FIRST_JOB)).replay().completed
        if not completed or completed[-1].kind is not SnapshotKind.SYNC_SAVEPOINT:
            return None
        return snapshot_url(read_metadata(storage, completed[-1].metadata), storage.url)

    def conditions(self, draws: Draws) -> Conditions:
        conditions = super().conditions(draws)
        if self.course.with_failures:
            return conditions
        return replace(conditions, lasts=max(conditions.lasts, self._continuation.after + 1))

    def planned(self, conditions: Conditions) -> Plan:
        plan, continuation = super().planned(conditions), self._continuation
        kind = FaultKind.DRAINED if continuation.drain else FaultKind.STOPPED
        stop = PlannedFault(kind, Moment.MOVE, min(continuation.after, conditions.lasts - 1))
        return replace(plan, faults=(stop, *plan.faults), insists=True)
