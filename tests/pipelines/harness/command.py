"""Runs one pipeline in the simulation: `python tests/pipelines word_count --course failures --seed 7`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection

from pipelines.harness.pipeline import Pipeline, load
from pipelines.harness.pipeline import names as all_names
from pipelines.harness.scenario import BACKENDS, MODES, Course, Scenario
from pipelines.harness.simulated import run


def main(
    names: Collection[str] | None = None,
    load: Callable[[str], Pipeline] = load,
    program: str = "python tests/pipelines",
) -> int:
    """Run the pipeline that the command line names.

    Args:
        names: The pipelines to choose from; by default those of the folder.
        load: Makes a pipeline of its name.
        program: The command, for its help.
    """
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("pipeline", choices=all_names() if names is None else names, metavar="pipeline")
    parser.add_argument("--course", choices=[each.value for each in Course], default=Course.FAILURES.value)
    parser.add_argument("--mode", choices=list(MODES), default="aligned")
    parser.add_argument("--backend", choices=list(BACKENDS), default="heap")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    options = parser.parse_args()
    scenario = Scenario(Course(options.course), options.mode, options.backend, options.seed)
    try:
        done = run(load(options.pipeline), scenario, print if options.trace else None)
    except AssertionError as error:
        print(error)
        return 1
    print(f"{options.pipeline}: {scenario}: as expected after {done.moves} moves, {done.attempts} attempts, ")
    print(f"{done.completed} checkpoints; went on from a savepoint: {'yes' if done.jobs > 1 else 'no'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
