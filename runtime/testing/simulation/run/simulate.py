"""`simulate`: runs a user's job with a thousand different failures and interleavings.

Runs without failures come first, each in a different interleaving. Their output is the expected one; if
outputs differ, the job depends on an order that is not guaranteed. Then come the runs with failures, which
must leave the same output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar, get_args, overload

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.names import checked_keywords
from penstock.runtime.testing.simulation.run.report import (
    Difference,
    FailedRun,
    Finding,
    SimulationReport,
    difference,
)
from penstock.runtime.testing.simulation.run.user_run import (
    Course,
    Fault,
    Stop,
    UserRun,
    UserSimulation,
    checked_faults,
)
from penstock.runtime.testing.simulation.world.external import ExternalWorld

W = TypeVar("W")

E = TypeVar("E", bound=ExternalWorld)

R = TypeVar("R")

#: Default seeds of a simulation.
SEEDS: Final = range(1000)


@overload
def simulate(
    build: Callable[[], StreamEnvironment],
    *,
    output: Callable[[], R],
    seeds: Iterable[int] = ...,
    equal: Callable[[R, R], bool] | None = ...,
    interleavings: int = ...,
    rescale: bool = ...,
    faults: Iterable[Fault] = ...,
    most_moves: int = ...,
    check: bool = ...,
) -> SimulationReport: ...


@overload
def simulate(
    build: Callable[[E], StreamEnvironment],
    *,
    world: E,
    output: Callable[[E], R],
    stop: Stop | None = ...,
    seeds: Iterable[int] = ...,
    equal: Callable[[R, R], bool] | None = ...,
    interleavings: int = ...,
    rescale: bool = ...,
    faults: Iterable[str] = ...,
    most_moves: int = ...,
    check: bool = ...,
) -> SimulationReport: ...


@overload
def simulate(
    build: Callable[[], tuple[StreamEnvironment, W]],
    *,
    output: Callable[[W], R],
    seeds: Iterable[int] = ...,
    equal: Callable[[R, R], bool] | None = ...,
    interleavings: int = ...,
    rescale: bool = ...,
    faults: Iterable[Fault] = ...,
    most_moves: int = ...,
    check: bool = ...,
) -> SimulationReport: ...


@checked_keywords
def simulate(
    build: Callable[..., Any],
    *,
    output: Callable[..., Any],
    world: ExternalWorld | None = None,
    stop: Stop | None = None,
    seeds: Iterable[int] = SEEDS,
    equal: Callable[[Any, Any], bool] | None = None,
    interleavings: int = 10,
    rescale: bool = True,
    faults: Iterable[str] = (),
    most_moves: int = 60_000,
    check: bool = True,
) -> SimulationReport:
    """Run a job many times with different failures and interleavings, and compare the outputs of its sinks.

    Args:
        build: Makes a new graph for each run: an environment, or `(environment, world)`. The sinks write to
            the world, which outlives every process of the job. Its `cleanup()`, if any, is called after the
            run.
        output: Reads the output of the sinks; called with the world when `build` returned one.
        world: A model of external systems, such as `KafkaWorld`. Each run has a copy of its own, with which
            `build` and `output` are called. In runs with failures its calls may be slow, be refused or hang,
            and answers may be lost.
        stop: How a job whose sources have no end is stopped: with `"savepoint"`, or with `"drain"`, which
            ends event time first. The job is stopped when completed checkpoints cover all input of `world`.
        seeds: Seeds of the runs with failures, one run each.
        equal: Returns whether two outputs are equal; by default outputs are compared as multisets of rows.
        interleavings: Number of runs without failures, at least one; these runs come first.
        rescale: Whether runs with failures may also change the parallelism of operators.
        faults: Additional faults by name, such as `"zombies"`. `docs/testing.md` lists them. With
            `"damaged_files"` and `"lost_files"` a job may also fail, if its error names the file. With
            `allow_older` its sinks may then repeat rows; no row may be missing.
        most_moves: Maximum steps and messages of a job after its last failure.
        check: Whether a run that goes wrong raises an error; otherwise it is only in the report.

    Raises:
        SimulationFailedError: A run went wrong; this `AssertionError` says how to reproduce it.
        GraphError: The graph can't be built, or can't be sent to other processes.
        ConfigurationError: The job takes no checkpoints, a connector refuses its settings, a fault is
            unknown, or `stop` is given without a world.

    Example:
        >>> from penstock import Checkpointing, CollectSink, StreamEnvironment
        >>> from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
        >>> def build():
        ...     results = InMemoryCollector()
        ...     env = StreamEnvironment(parallelism=2, checkpointing=Checkpointing(every=10))
        ...     numbers = env.from_collection("numbers", range(20))
        ...     numbers.map(lambda n: n * n).sink("out", CollectSink(results))
        ...     return env, results
        >>> simulate(build, output=lambda results: results.rows(), seeds=range(5)).passed
        True
    """
    if stop is not None and (stop not in get_args(Stop) or world is None):
        msg = f"stop={stop!r} is not allowed: give 'drain' or 'savepoint', and the world= that the job reads"
        raise ConfigurationError(msg)
    course = Course(
        0,
        with_failures=False,
        rescale=rescale,
        most_moves=most_moves,
        faults=checked_faults(faults, () if world is None else world.faults),
        external=world,
        stop=stop,
    )
    simulation = _Simulation(build, output, equal, course)
    report = simulation.report(interleavings, seeds)
    if check:
        report.raise_if_failed()
    return report


class _Simulation:
    """Executes the runs.

    Args:
        course: The common settings of all runs.
    """

    def __init__(
        self,
        build: Callable[[], Any],
        output: Callable[..., Any],
        equal: Callable[[Any, Any], bool] | None,
        course: Course,
    ) -> None:
        self._build = build
        self._output = output
        self._equal = equal
        self._course = course
        self._expected: Any = None
        self._failures: Counter[str] = Counter()
        self._checkpoints = self._restarts = 0

    def report(self, interleavings: int, seeds: Iterable[int]) -> SimulationReport:
        """Execute runs until one goes wrong or all have passed."""
        uncontrolled = UserSimulation(self._build, self._output, self._course).uncontrolled()
        calm, struck, failed = 0, 0, None
        for seed in range(max(1, interleavings)):
            calm += 1
            failed = self._try(replace(self._course, seed=seed), is_first=seed == 0)
            if failed is not None:
                break
        for seed in seeds if failed is None else ():
            struck += 1
            failed = self._try(replace(self._course, seed=seed, with_failures=True))
            if failed is not None:
                break
        return SimulationReport(
            calm, struck, dict(self._failures), self._checkpoints, self._restarts, uncontrolled, failed
        )

    def _try(self, course: Course, *, is_first: bool = False) -> FailedRun | None:
        """Execute one run; return its failure, if any."""
        run = UserSimulation(self._build, self._output, course).run()
        self._failures.update(_named(run))
        self._checkpoints += run.completed
        self._restarts += max(0, run.attempts - 1)
        if is_first and not run.problem:
            self._expected = run.output
            self._course = replace(self._course, usual_moves=run.moves)
            return None
        if run.damage:
            return None
        found = None if run.problem else self._differs(run)
        if found is None and not run.problem:
            return None
        return self._replayed(course, run, found)

    def _replayed(self, course: Course, run: UserRun, found: Difference | None) -> FailedRun:
        trace: list[str] = []
        again = UserSimulation(self._build, self._output, course, trace.append).run()
        if run.problem:
            finding, same = Finding.DID_NOT_FINISH, bool(again.problem)
        else:
            finding = Finding.LOST_OR_REPEATED if course.with_failures else Finding.DEPENDS_ON_ORDER
            same = not again.problem and difference(run.output, again.output) is None
        is_repeatable = same and again.moves == run.moves
        return FailedRun(course.seed, finding, found, run.problem, _named(run), tuple(trace), is_repeatable)

    def _differs(self, run: UserRun) -> Difference | None:
        found = difference(self._expected, run.output)
        if self._equal is None:
            return None if run.may_repeat and found is not None and not found.is_loss else found
        if self._equal(self._expected, run.output):
            return None
        return found or Difference(detail="equal(expected, actual) is false, although the rows are the same")


def _named(run: UserRun) -> dict[str, int]:
    return {kind.value: count for kind, count in run.happened.items()} | dict(run.external)
