"""`Outside`: makes the worlds of a test, and decides the fate of their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.testing.connectors.worlds import CleansUp, DecidesFates
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.run.simulate import simulate
from penstock.runtime.testing.simulation.world.agenda import Draws, draw_conditions
from penstock.runtime.testing.simulation.world.external import ExternalWorld, Fate, WorldContext
from penstock.runtime.testing.simulation.world.world import World

W = TypeVar("W")


class ScriptedCalls(WorldContext):
    """The context of an `ExternalWorld` in a test that decides about its calls itself."""

    def __init__(self) -> None:
        world = World(0, draw_conditions(Draws(0)), None, clock=ManualClock())
        super().__init__(world, Draws(0), with_failures=False)
        self._next: Fate | None = None

    def next_fate(self, fate: Fate | None) -> None:
        self._next = fate

    def fate(self) -> Fate:
        fate, self._next = self._next, None
        return fate or Fate.ANSWERED


class Outside(Generic[W]):
    """Makes worlds, each in a new folder, and releases them at the end of the test."""

    def __init__(self, make: Callable[[Path], W], below: Path) -> None:
        self._make = make
        self._below = below
        self._numbers = count()
        self._ends: list[Callable[[], object]] = []

    def untouched(self) -> W:
        """Make a world for a simulation, which begins and releases it."""
        folder = self._below / f"world-{next(self._numbers)}"
        folder.mkdir()
        return self._make(folder)

    def new(self, prepare: Callable[[W], object] = lambda world: None) -> W:
        """Make a world, prepare it and begin its run."""
        world: Any = self.untouched()
        if isinstance(world, CleansUp):
            self._ends.append(world.cleanup)
        prepare(world)
        if isinstance(world, ExternalWorld):
            world.begin(ScriptedCalls())
            self._ends.append(world.end)
        return world  # type: ignore[no-any-return]

    def release(self) -> None:
        """Release all worlds that were begun."""
        while self._ends:
            self._ends.pop()()


def fates_of(world: object) -> DecidesFates:
    """The part of a world that decides about its calls; skips the test if it has none."""
    calls = world.run if isinstance(world, ExternalWorld) else world
    if isinstance(calls, DecidesFates):
        return calls
    name = type(world).__name__
    pytest.skip(f"{name} has no next_fate and is not an ExternalWorld: calls that go wrong are not tested")


def arm(calls: DecidesFates, fate: Fate) -> bool:
    """Set the fate of the next request; return `False` if the world does not support this fate."""
    try:
        calls.next_fate(fate)
    except NotImplementedError:
        return False
    return True


def simulate_in(
    make: Callable[[], Any],
    build: Callable[[Any], StreamEnvironment],
    output: Callable[[Any], Any],
    *,
    prepare: Callable[[Any], object] = lambda world: None,
    faults: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Simulate a job, each run in a world of its own that `make` makes.

    An `ExternalWorld` adds its own faults, and those of its calls.

    Args:
        prepare: Called with each world before its run begins.

    Raises:
        SimulationFailedError: A run went wrong.
    """

    def prepared() -> Any:
        world = make()
        prepare(world)
        return world

    model = prepared()
    if isinstance(model, ExternalWorld):
        faults = [*faults, *model.faults]
        simulate(build, world=model, output=output, faults=faults, **settings)
        return

    def build_in_world() -> tuple[StreamEnvironment, Any]:
        world = prepared()
        return build(world), world

    run: Any = simulate  # its overloads accept no `**settings`
    run(build_in_world, output=output, faults=faults, **settings)
