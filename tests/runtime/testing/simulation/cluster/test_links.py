"""A network that is cut, healed, and has an island that counts as dead."""

from __future__ import annotations

from penstock.runtime.testing.simulation.cluster.network import Links, Reach
from penstock.runtime.testing.simulation.world.agenda import Draws, Happening, draw_conditions
from penstock.runtime.testing.simulation.world.world import World


def new_links() -> tuple[World, Links]:
    world = World(1, draw_conditions(Draws(1)), None)
    return world, Links(world)


def call(links: Links, caller: str, called: str, heard: list[str]) -> None:
    links.carry(
        Happening.MESSAGE, caller, called, lambda: heard.append("arrived"), lambda: heard.append("lost")
    )


def test_call_across_a_cut_arrives_when_it_is_healed() -> None:
    world, links = new_links()
    heard: list[str] = []
    links.cut(["a"])
    call(links, "a", "b", heard)
    call(links, "b", "c", heard)
    assert heard == ["arrived"], "b and c are on one side"
    links.heal()
    entry = world.agenda.take(0.0)
    assert entry is not None
    entry.act()
    assert heard == ["arrived", "arrived"]


def test_calls_to_an_island_that_counts_as_dead_fail_for_ever() -> None:
    world, links = new_links()
    heard: list[str] = []
    links.cut(["a"])
    call(links, "b", "a", heard)
    links.declare_gone(["a"])
    entry = world.agenda.take(0.0)
    assert entry is not None
    entry.act()
    links.heal()
    call(links, "b", "a", heard)
    assert heard == ["lost", "lost"]
    assert links.reach("a", "b") is Reach.OPEN, "what the zombie says arrives"


def test_those_on_an_island_reach_each_other() -> None:
    _, links = new_links()
    links.cut(["a", "b"])
    links.declare_gone(["a", "b"])
    assert links.reach("a", "b") is Reach.OPEN
    assert links.reach("a", "c") is Reach.WAITS
    assert links.reach("c", "a") is Reach.GONE


def test_process_that_is_started_on_an_island_is_on_it() -> None:
    _, links = new_links()
    links.cut(["JobMaster 1"])
    links.starts("JobMaster 1", "process 7")
    assert links.cut_off == ["JobMaster 1", "process 7"]
