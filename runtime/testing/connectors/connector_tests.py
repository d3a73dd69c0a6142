"""`ConnectorTests`: the common base class of the tests of sources and of sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.testing.connectors.outside import Outside, simulate_in

W = TypeVar("W")


class ConnectorTests(Generic[W]):
    """The settings of a class of tests, its worlds and records, and the simulation of a whole job.

    Attributes:
        seeds: Seeds of the simulated jobs with failures; used with aligned and with unaligned checkpoints.
        faults: Additional faults of the simulated jobs.
        steps: Steps of a job after which it dies; leave out some for a slow real system.
        simulated: Whether whole jobs are simulated. Set it to false for a real system that is too slow.
    """

    seeds: ClassVar[Sequence[int]] = range(20)
    faults: ClassVar[Sequence[str]] = ("zombies", "network_cuts")
    steps: ClassVar[Sequence[str]]
    simulated: ClassVar[bool] = True

    def make_world(self, folder: Path) -> W:
        """Make a new, empty world; a simulation makes one for each run.

        Args:
            folder: A new folder, for a world with files.
        """
        msg = (
            f"{type(self).__name__} must define make_world(folder), which returns the world of the connector"
        )
        raise NotImplementedError(msg)

    def make_model(self) -> Callable[[], Any] | None:
        """Return a function that makes a model of the world, in which whole jobs are simulated.

        By default they are simulated in worlds of `make_world`. A model for tests of a real system is an
        `ExternalWorld` with the same methods.
        """
        return None

    def record(self, number: int) -> Any:
        """Return a record that differs from all others; the world and its connector must not change it."""
        return {"number": number}

    def records(self, count: int, first: int = 0) -> list[Any]:
        """Records with consecutive numbers."""
        return [self.record(number) for number in range(first, first + count)]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test of a job that dies once for each step in `steps`."""
        if "step" in metafunc.fixturenames:
            metafunc.parametrize("step", self.steps)

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Iterator[Outside[W]]:
        """Makes worlds."""
        outside = Outside(self.make_world, tmp_path)
        yield outside
        outside.release()

    def simulate(
        self,
        outside: Outside[W],
        build: Callable[[Any], StreamEnvironment],
        output: Callable[[Any], Any],
        **settings: Any,
    ) -> None:
        """Simulate a job with the settings of this class, each run in a world of its own."""
        settings = {"seeds": self.seeds, "faults": self.faults, "interleavings": 2, **settings}
        simulate_in(self.make_model() or outside.untouched, build, output, **settings)
