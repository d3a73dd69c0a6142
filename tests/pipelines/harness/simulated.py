"""Runs a pipeline in the simulation, and compares what has come out of it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pipelines.harness.pipeline import Pipeline, Rows
from pipelines.harness.scenario import (
    AT_LEAST_ONCE,
    BACKENDS,
    MODES,
    OTHER_PARALLELISM,
    PARALLELISM,
    Course,
    Scenario,
    can_rescale,
)
from simulated_jobs.continuation import Continuation, ContinuedSimulation

from penstock import Checkpointing, CollectSink, StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.testing.simulation.run.report import difference
from penstock.runtime.testing.simulation.run.user_run import Course as Run
from penstock.runtime.testing.simulation.run.user_run import UserRun, UserSimulation

#: How a scenario is run again.
REPLAY: Final = "{program} {name} {arguments}"

#: Powers of ten between which a job is stopped, in moves. A short one is through after a few hundred.
_STOPS: Final = (1.6, 2.6)


class Results:
    """The output of a job: rows in collectors by name, and files in a folder."""

    def __init__(self) -> None:
        self.collectors: dict[str, InMemoryCollector] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="pipeline-")
        self.folder = Path(self._folder.name)

    def sink(self, name: str) -> CollectSink:
        """Collects an output; what two jobs write to the same one comes together."""
        return CollectSink(self.collectors.setdefault(name, InMemoryCollector()))

    def cleanup(self) -> None:
        """Delete the folder."""
        self._folder.cleanup()


def run(
    pipeline: Pipeline, scenario: Scenario, write: Callable[[str], None] | None = None, usual_moves: int = 600
) -> UserRun:
    """Run a pipeline once.

    Args:
        scenario: Its mode, its backend, and what happens.
        write: Takes the lines of a trace; `None` for no trace.
        usual_moves: Moves of this job when nothing happens to it.

    Raises:
        AssertionError: Something else has come out; the message has the command that shows it again.
    """
    draws = random.Random(scenario.seed)
    records = pipeline.make_input(scenario.seed)

    def made(results: Results, parallelism: int, *, again: bool) -> StreamEnvironment:
        checkpointing = Checkpointing(every=1, tolerable_failures=None, **MODES[scenario.mode])
        backend = BACKENDS[scenario.backend_again if again else scenario.backend]
        env = StreamEnvironment(
            pipeline.name, parallelism=parallelism, checkpointing=checkpointing, **backend
        )
        for name, stream in pipeline.add_to(env, records, results.folder, again=again).items():
            stream.sink(f"{name}-sink", results.sink(name))
        return env

    def build() -> tuple[StreamEnvironment, Results]:
        results = Results()
        return made(results, PARALLELISM, again=False), results

    def output(results: Results) -> Rows:
        collected = {name: collector.rows() for name, collector in results.collectors.items()}
        return {**collected, **pipeline.read(results.folder)}

    with_failures = draws.random() < 0.5 and scenario.mode != AT_LEAST_ONCE
    parallelism = draws.choice(OTHER_PARALLELISM) if scenario.course is Course.RESCALED else PARALLELISM
    continuation = None
    if scenario.course.is_restored:
        continuation = Continuation(
            lambda results: made(results, parallelism, again=True),
            drain=scenario.course is Course.DRAINED,
            after=int(10 ** draws.uniform(*_STOPS)),
        )
    course = Run(
        scenario.seed,
        with_failures=scenario.course is Course.FAILURES or (continuation is not None and with_failures),
        rescale=can_rescale(pipeline, scenario.mode),
        usual_moves=usual_moves,
    )
    command = REPLAY.format(program=pipeline.program, name=pipeline.name, arguments=scenario.arguments())
    try:
        if continuation is None:
            done = UserSimulation(build, output, course, write).run()
        else:
            done = ContinuedSimulation(build, output, course, continuation, write).run()
    except AssertionError as error:  # `read` has looked at what the job has written
        lines = [f"{pipeline.name}: {scenario}", str(error), f"see it again: {command} [--trace]"]
        raise AssertionError("\n  ".join(lines)) from error
    problems = [done.problem] if done.problem else _differences(pipeline, scenario, records, done.output)
    if problems:
        happened = ", ".join(f"{kind.value} {count}" for kind, count in done.happened.items())
        lines = [f"{pipeline.name}: {scenario}", *problems, f"what happened: {happened or 'nothing'}"]
        raise AssertionError("\n  ".join([*lines, f"see it again: {command} [--trace]"]))
    return done


def _differences(pipeline: Pipeline, scenario: Scenario, records: Any, actual: Rows) -> list[str]:
    wanted, actual = pipeline.expected(records), pipeline.comparable(actual)
    if scenario.course is Course.DRAINED:
        wanted, actual = pipeline.whole(wanted), pipeline.whole(actual)
    found = []
    for name in {**wanted, **actual}:
        differs = difference(wanted.get(name, ()), actual.get(name, ()))
        found += [] if differs is None else [f"{name}: {line}" for line in differs.lines()]
    return found
