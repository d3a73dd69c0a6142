"""Kills processes of a job at places that a seed chooses, and counts them by place and victim.

A place is something that the job's report shows, not a time. It shows a checkpoint that runs or has
completed, records that an operator has taken, and a restart that has begun.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.backpressure import running, taken_by
from jobs.driving import wait_until

from penstock.cluster import JobReport, RayJobHandle, SubtaskProcess
from penstock.testing import kill_process

MASTER = "JobMaster"


@dataclass(frozen=True)
class Place:
    """The place of the next kill.

    Attributes:
        name: In the count.
        waits: Makes the condition that the report must meet, from the report of now.
    """

    name: str
    waits: Callable[[JobReport], Callable[[JobReport], bool]]


def in_a_checkpoint(now: JobReport) -> Callable[[JobReport], bool]:
    return lambda report: running(report) is not None


def behind_a_checkpoint(now: JobReport) -> Callable[[JobReport], bool]:
    completed = now.statistics.completed_checkpoints
    return lambda report: report.statistics.completed_checkpoints > completed


def in_a_savepoint(now: JobReport) -> Callable[[JobReport], bool]:
    """A new one runs, or was too quick to be seen running; a job that it stops may have ended, too."""
    before = savepoints_of(now)
    return lambda report: savepoints_of(report) - before != set() or report.status.is_terminal


def savepoints_of(report: JobReport) -> set[tuple[int, int]]:
    """Attempt and id of each savepoint that the report tells of."""
    return {(r.attempt, r.checkpoint_id) for r in report.checkpoint_history if r.kind.is_savepoint}


def between_records(taker: str, records: int) -> Callable[[JobReport], Callable[[JobReport], bool]]:
    """An operator has taken so many; or checkpoints go by without them, because there are no more to read."""

    def waits(now: JobReport) -> Callable[[JobReport], bool]:
        completed = now.statistics.completed_checkpoints
        return lambda report: (
            taken_by(report, taker) >= records or report.statistics.completed_checkpoints > completed + 3
        )

    return waits


def at_once(now: JobReport) -> Callable[[JobReport], bool]:
    return lambda report: True


class Kills:
    """Kills one process after the other.

    Args:
        seed: Chooses places and victims.
        takers: Operators of whose records some places speak.
        vertices: Whose processes may die; all, and the JobMaster, when left out.
    """

    def __init__(self, seed: int, takers: Sequence[str], vertices: Sequence[str] | None = None) -> None:
        self._chance = random.Random(seed)
        self._takers = takers
        self._vertices = vertices
        self._counts: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Processes that died."""
        return self._counts.total()

    def strike(self, job: RayJobHandle, *places: Place, since: JobReport | None = None) -> str:
        """Wait for a place and kill a process there; return its name, or "" when the job has ended before.

        Args:
            places: To choose from; any when left out. A job may end only at a place that expects it.
            since: The report from which on something has to happen; by default that of now.
        """
        while True:
            place = self._chance.choice(places or self._places())
            condition = place.waits(since or job.report())
            report = wait_until(
                job,
                f"a victim {place.name}",
                lambda r, condition=condition: condition(r) and self._is_mortal(r),  # type: ignore[misc]
            )
            if report.status.is_terminal:
                return ""
            victim = self._chance.choice(self._mortal(report))
            process = report.master if victim == MASTER else _process(report, victim)
            assert process is not None
            with contextlib.suppress(ProcessLookupError):
                kill_process(process)
                self._counts[f"{victim} {place.name}"] += 1
                return victim

    def __str__(self) -> str:
        each = ", ".join(f"{what} {count}" for what, count in sorted(self._counts.items()))
        return f"{self.count} kills: {each}"

    def _places(self) -> list[Place]:
        taker, records = self._chance.choice(self._takers), self._chance.randint(1, 60)
        flowing = Place("between records", between_records(taker, records))
        restarting = [Place("in a restart", at_once)] if self._counts else []
        checkpoints = [IN_A_CHECKPOINT] * 2 + [Place("behind a checkpoint", behind_a_checkpoint)]
        return [flowing, *checkpoints, *restarting]

    def _is_mortal(self, report: JobReport) -> bool:
        return report.status.is_terminal or self._mortal(report) != []

    def _mortal(self, report: JobReport) -> list[str]:
        names = [str(p.subtask) for p in report.processes]
        if self._vertices is not None:
            return sorted(name for name in names if name.partition("[")[0] in self._vertices)
        return sorted([*names, MASTER]) if report.master is not None and names else []


IN_A_CHECKPOINT = Place("in a checkpoint", in_a_checkpoint)
IN_A_SAVEPOINT = Place("in a savepoint", in_a_savepoint)


def _process(report: JobReport, subtask: str) -> SubtaskProcess:
    return next(p for p in report.processes if str(p.subtask) == subtask)
