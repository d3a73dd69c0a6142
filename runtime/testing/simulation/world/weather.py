"""`Weather`: what the world of a run is like until it calms down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.draws import Draws

#: Weights of an orderly world.
CALM: Final[Mapping[Happening, int]] = dict.fromkeys(Happening, 4)


@dataclass(frozen=True, slots=True)
class Weather:
    """What the world is like until it calms down.

    Attributes:
        weights: How readily each kind of happening happens.
        disorder: Probability with which it is not the oldest of its kind.
        tick: Most seconds that a move takes.
        latency: Most seconds that a frame or a message is on its way.
        repeats: Probability with which a frame or a message arrives twice.
        stragglers: Probability with which a report takes very long.
        slow_channels: Share of the channels that are slow.
        slowness: Most seconds that a frame is on its way there.
        seconds_per_record: What users' code takes for a record.
        lasts: Moves until the faults stop.
        clock_drift: By which share of itself a second of a process may be longer or shorter than another's.
    """

    weights: Mapping[Happening, int]
    disorder: float
    tick: float
    latency: float
    repeats: float
    stragglers: float
    slow_channels: float
    slowness: float
    seconds_per_record: float
    lasts: int
    clock_drift: float = 0.0


def draw_weather(draws: Draws) -> Weather:
    """Draw it."""
    weights = {kind: draws.pick((1, 4, 4, 4, 16)) for kind in Happening}
    return Weather(
        weights=weights,
        disorder=draws.pick((0.0, 0.1, 0.5, 1.0)),
        tick=draws.pick((0.00005, 0.0005, 0.001)),
        latency=draws.pick((0.0, 0.0, 0.001, 0.01)),
        repeats=draws.pick((0.0, 0.02, 0.2)),
        stragglers=draws.pick((0.0, 0.0, 0.05, 0.2)),
        slow_channels=draws.pick((0.0, 0.0, 0.1, 0.5)),
        slowness=draws.pick((0.005, 0.05)),
        seconds_per_record=draws.pick((0.0, 0.0, 0.0, 0.001, 0.01)),
        lasts=draws.pick((400, 1500, 1500, 3000)),
        clock_drift=draws.pick((0.0, 0.0, 0.0, 0.0001, 0.05, 0.3)),
    )
