"""`Scenario`: how a pipeline is run: in which mode of checkpoints, on which state backend, through what."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final

from deep import DEEP
from pipelines.harness.pipeline import Pipeline

from penstock import RocksDB

#: Every mode of checkpoints, as settings of `Checkpointing`.
MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "aligned": {},
    "stored": {"alignment": "store"},
    "unaligned": {"unaligned": True},
    "with-timeout": {"unaligned": True, "aligned_timeout": 0.01},
    "two-at-a-time": {"max_concurrent": 2},
    "at-least-once": {"mode": "at_least_once"},
}

#: The mode that repeats records after a failure, so nothing exact is expected then.
AT_LEAST_ONCE: Final = "at-least-once"

#: Every state backend, as settings of `StreamEnvironment`.
BACKENDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "heap": {},
    "rocksdb": {"state_backend": RocksDB(memory=8 * 1024 * 1024)},
}

#: The backend of a continued job that changes it.
OTHER_BACKEND: Final = {"heap": "rocksdb", "rocksdb": "heap"}

#: The parallelism of a job at first, and of its continuation at another parallelism.
PARALLELISM: Final = 2
OTHER_PARALLELISM: Final = (1, 3)


class Course(Enum):
    """Events of the job's life."""

    PLAIN = "plain"
    #: Processes die, writes fail, the job is rescaled while it runs.
    FAILURES = "failures"
    #: Stopped midway with a savepoint, and started again from there.
    STOPPED = "stopped"
    #: The same, and event time comes to its end before the stop.
    DRAINED = "drained"
    #: Stopped midway, and started again at another parallelism.
    RESCALED = "rescaled"
    #: Stopped midway, and started again on the other state backend.
    MOVED = "moved"

    @property
    def is_restored(self) -> bool:
        """Whether the job is stopped and continued."""
        return self in (Course.STOPPED, Course.DRAINED, Course.RESCALED, Course.MOVED)


@dataclass(frozen=True)
class Scenario:
    """Settings of a pipeline's run.

    Attributes:
        mode: One of `MODES`.
        backend: One of `BACKENDS`.
        seed: Decides everything else: the input, the order of events, failures, the moment of a stop.
    """

    course: Course
    mode: str
    backend: str
    seed: int

    @property
    def backend_again(self) -> str:
        """The backend of the continued job."""
        return OTHER_BACKEND[self.backend] if self.course is Course.MOVED else self.backend

    def arguments(self) -> str:
        """The same as arguments of the command that runs it."""
        settings = f"--course {self.course.value} --mode {self.mode} --backend {self.backend}"
        return f"{settings} --seed {self.seed}"

    def __str__(self) -> str:
        return f"{self.course.value}, {self.mode}, {self.backend}, seed {self.seed}"


def is_possible(pipeline: Pipeline, course: Course, mode: str) -> bool:
    """Whether something exact is known of it."""
    if mode == AT_LEAST_ONCE:  # even a stop may be tried again, from an older checkpoint
        return course is Course.PLAIN
    if course is Course.DRAINED:
        return pipeline.can_be_drained
    if course is Course.MOVED:
        return not pipeline.is_in_columns
    return course is not Course.RESCALED or can_rescale(pipeline, mode)


def can_rescale(pipeline: Pipeline, mode: str) -> bool:
    """Whether another parallelism gives the same results in this mode."""
    may_be_in_flight = pipeline.is_rescalable_in_flight or not MODES[mode].get("unaligned", False)
    return pipeline.is_rescalable and may_be_in_flight


def backends_of(pipeline: Pipeline) -> list[str]:
    """The state backends that can hold its state."""
    return ["heap"] if pipeline.is_in_columns else list(BACKENDS)


#: Runs of a sample.
SOME: Final = 1 if DEEP == 1 else len(MODES)


def some(pipeline: Pipeline, seed: int) -> Iterator[Scenario]:
    """A sample: runs of different courses and modes, one in four on disk, which takes three times as long."""
    draws = random.Random(f"{pipeline.name} {seed}")
    modes, backends, courses = list(MODES), backends_of(pipeline), list(Course)
    for each in (modes, courses):
        draws.shuffle(each)
    for course, mode in islice(zip(courses, modes, strict=True), SOME):
        wanted = next(it for it in (course, Course.STOPPED, Course.PLAIN) if is_possible(pipeline, it, mode))
        backend = backends[-1] if draws.random() < 0.25 else backends[0]
        yield Scenario(wanted, mode, backend, draws.randrange(1 << 32))


def every(pipeline: Pipeline, seed: int) -> Iterator[Scenario]:
    """Every course in every mode on every backend."""
    draws = random.Random(f"{pipeline.name} {seed}")
    for course in Course:
        for mode in MODES:
            for backend in backends_of(pipeline):
                if is_possible(pipeline, course, mode):
                    yield Scenario(course, mode, backend, draws.randrange(1 << 32))
