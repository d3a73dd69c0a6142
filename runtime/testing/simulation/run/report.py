"""`SimulationReport`: the runs of a simulation, what happened in them, and how two outputs differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from penstock.runtime.names import NearestEnumMembers, NearestMembers
from penstock.runtime.testing.simulation.run.uncontrolled import Uncontrolled

#: Maximum rows of a difference that are shown.
_MOST_SHOWN: Final = 8

#: Maximum characters of a row that are shown.
_MOST_TEXT: Final = 120


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between the outputs of two runs.

    Attributes:
        missing: Missing rows; a row that is missing twice is listed twice.
        unexpected: Surplus rows, each as often as it is surplus.
        detail: A description, if rows don't show the difference.
    """

    missing: tuple[Any, ...] = ()
    unexpected: tuple[Any, ...] = ()
    detail: str = ""

    @property
    def is_loss(self) -> bool:
        """Whether rows are missing; also true for a difference that only `detail` describes."""
        return bool(self.missing or self.detail)

    def lines(self) -> list[str]:
        """The detail, the missing rows and the unexpected rows; a line for each."""
        lines = [self.detail] if self.detail else []
        for what, rows in (("missing", self.missing), ("unexpected", self.unexpected)):
            if rows:
                more = f", and {len(rows) - _MOST_SHOWN} more" if len(rows) > _MOST_SHOWN else ""
                shown = ", ".join(_short(row) for row in rows[:_MOST_SHOWN])
                lines.append(f"{what}: {shown}{more}")
        return lines


def difference(expected: Any, actual: Any) -> Difference | None:
    """The difference between two outputs; `None` when they are equal.

    Lists, tuples and other collections are compared without regard to order; mappings and anything else as
    they are.

    Example:
        >>> difference([1, 2, 2], [2, 1, 3])
        Difference(missing=(2,), unexpected=(3,), detail='')
        >>> difference([{"a": 1}], [{"a": 1}]) is None
        True
    """
    if _has_rows(expected) and _has_rows(actual):
        return _rows_differ(expected, actual)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return _rows_differ(expected.items(), actual.items())
    if expected == actual:
        return None
    return Difference(detail=f"expected {_short(expected)}, got {_short(actual)}")


def _rows_differ(expected: Iterable[Any], actual: Iterable[Any]) -> Difference | None:
    wanted, found = list(expected), list(actual)
    missing, unexpected = _without(wanted, found), _without(found, wanted)
    return Difference(tuple(missing), tuple(unexpected)) if missing or unexpected else None


def _without(rows: list[Any], others: list[Any]) -> list[Any]:
    """The rows that `others` lacks, each as often as it is missing."""
    left = Counter(map(_frozen, others))
    kept = []
    for row in rows:
        frozen = _frozen(row)
        if left[frozen]:
            left[frozen] -= 1
        else:
            kept.append(row)
    return kept


def _has_rows(output: Any) -> bool:
    return isinstance(output, Iterable) and not isinstance(output, str | bytes | Mapping)


def _frozen(value: Any) -> Hashable:
    """A hashable equivalent of a value; its `repr` if there is none."""
    if isinstance(value, Mapping):
        return "mapping", frozenset((_frozen(key), _frozen(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(map(_frozen, value))
    if isinstance(value, set | frozenset):
        return "set", frozenset(map(_frozen, value))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value).__name__, value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


#: Number of last lines of a trace in a message.
_LAST_LINES: Final = 25

#: Markers in a trace for failures and for the job's reactions.
_EVENTS: Final = ("!!", "**", "==")


class Finding(Enum, metaclass=NearestEnumMembers):
    """The kind of mistake that was found."""

    LOST_OR_REPEATED = "the output differs from that of runs without failures"
    DEPENDS_ON_ORDER = "the output differs between runs without any failure"
    DID_NOT_FINISH = "the job did not finish"


class SimulationFailedError(AssertionError):
    """A simulated job went wrong; the message has the failure and the way to reproduce it.

    Attributes:
        report: Outcome of all runs.
    """

    def __init__(self, report: SimulationReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The first run that went wrong.

    Attributes:
        finding: The kind of mistake.
        difference: The difference in its output; `None` when the job did not finish.
        problem: The reason that the job did not finish; empty when it did.
        failures: Failures that really happened in the run, by kind.
        trace: Every line of its replay.
        is_repeatable: Whether the replay had the same course; otherwise the job has uncontrolled inputs.
    """

    seed: int
    finding: Finding
    difference: Difference | None = None
    problem: str = ""
    failures: Mapping[str, int] = field(default_factory=dict)
    trace: tuple[str, ...] = ()
    is_repeatable: bool = True


@dataclass(frozen=True, slots=True)
class SimulationReport(NearestMembers):
    """The outcome of a simulation.

    Attributes:
        interleavings: Runs without failures.
        seeds: Runs with failures, up to the first run that went wrong.
        failures: Failures that really happened in all runs, by kind.
        checkpoints: Checkpoints completed in all runs.
        restarts: Restarts in all runs.
        uncontrolled: Inputs of users' code that differ from run to run.
        failed: The first run that went wrong; `None` if all runs went well.
    """

    interleavings: int
    seeds: int
    failures: Mapping[str, int] = field(default_factory=dict)
    checkpoints: int = 0
    restarts: int = 0
    uncontrolled: tuple[Uncontrolled, ...] = ()
    failed: FailedRun | None = None

    @property
    def passed(self) -> bool:
        """Whether every run went well."""
        return self.failed is None

    @property
    def failing_seed(self) -> int | None:
        """The seed of the first run that went wrong."""
        return None if self.failed is None else self.failed.seed

    @property
    def difference(self) -> Difference | None:
        """The difference in the output of the first run that went wrong."""
        return None if self.failed is None else self.failed.difference

    @property
    def trace(self) -> tuple[str, ...]:
        """Every line of the replay of the first run that went wrong."""
        return () if self.failed is None else self.failed.trace

    def raise_if_failed(self) -> None:
        """Fail the test when a run went wrong.

        Raises:
            SimulationFailedError: A run went wrong; an `AssertionError`.
        """
        if self.failed is not None:
            raise SimulationFailedError(self)

    def __str__(self) -> str:
        lines = [] if self.failed is None else _describe(self.failed)
        lines.append(
            f"runs without failures: {self.interleavings}, runs with failures: {self.seeds}, "
            f"checkpoints: {self.checkpoints}, restarts: {self.restarts}"
        )
        lines.append("failures that really happened: " + _counted(self.failures))
        lines += [f"not under control: {use}" for use in self.uncontrolled]
        return "\n".join(lines)


def _describe(failed: FailedRun) -> list[str]:
    lines = [f"seed {failed.seed}: {failed.finding.value}"]
    if failed.problem:
        lines.append(f"  {failed.problem}")
    if failed.difference is not None:
        lines += [f"  {line}" for line in failed.difference.lines()]
    lines.append(f"failures in this run: {_counted(failed.failures)}")
    events = [line for line in failed.trace if line.split(maxsplit=3)[2:3] and line.split()[2] in _EVENTS]
    lines += ["the failures, and the reactions of the job:", *(f"  {line}" for line in events[-_LAST_LINES:])]
    lines += ["the last lines of the trace:", *(f"  {line}" for line in failed.trace[-_LAST_LINES:])]
    if failed.finding is Finding.DEPENDS_ON_ORDER:
        lines.append(
            "if such differences are intended, say which outputs are equal: simulate(..., equal=...)"
        )
    if not failed.is_repeatable:
        lines.append("the replay took a different course: something in the job differs from run to run")
    lines.append(f"see it again: simulate(build, output=output, seeds=[{failed.seed}])")
    return lines


def _counted(failures: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in failures.items()) or "none"
