"""A process that can't run keeps what reaches it, and its clock may differ from the others'."""

from __future__ import annotations

from penstock.runtime.testing.simulation.cluster.process_resources import ProcessTimers, Suspension
from penstock.runtime.testing.simulation.world.agenda import Draws, Happening, LocalClock, draw_conditions
from penstock.runtime.testing.simulation.world.world import World


def new_world() -> World:
    return World(1, draw_conditions(Draws(1)), None)


def run_all(world: World) -> None:
    """Do everything on the agenda, in its time."""
    while True:
        entry = world.agenda.take(world.clock.monotonic())
        if entry is not None:
            entry.act()
        elif world.agenda.next_time is None:
            return
        else:
            world.clock.advance_to(world.agenda.next_time)


def test_what_reaches_a_frozen_process_is_taken_when_it_wakes_up() -> None:
    world = new_world()
    suspension, taken = Suspension(world), list[str]()

    def take() -> None:
        if not suspension.holds(Happening.FRAME, take, "a frame"):
            taken.append("frame")

    suspension.freeze()
    take()
    run_all(world)
    assert taken == []
    suspension.wake()
    run_all(world)
    assert taken == ["frame"]


def test_timers_of_a_frozen_process_fire_when_it_wakes_up() -> None:
    world = new_world()
    suspension, fired = Suspension(world), list[float]()
    timers = ProcessTimers(world, world.clock, suspension, "a process")
    timers.call_later(1.0, lambda: fired.append(world.clock.monotonic()))
    suspension.freeze()
    world.agenda.add(Happening.OPERATION, suspension.wake, "it wakes up", at=5.0)
    run_all(world)
    assert fired == [5.0]


def test_timers_follow_the_clock_of_their_process() -> None:
    world = new_world()
    slow = LocalClock(world.clock, rate=0.5)
    fired: list[float] = []
    timers = ProcessTimers(world, slow, Suspension(world), "a process")
    timers.call_later(1.0, lambda: fired.append(round(world.clock.monotonic(), 6)))
    timers.call_later(3.0, lambda: fired.append(round(world.clock.monotonic(), 6)))
    run_all(world)
    assert fired == [2.0, 6.0]


def test_nothing_fires_when_the_process_is_gone() -> None:
    world = new_world()
    fired: list[str] = []
    timers = ProcessTimers(world, world.clock, Suspension(world), "a process")
    timers.call_later(1.0, lambda: fired.append("fired"))
    timers.close()
    run_all(world)
    assert fired == []
