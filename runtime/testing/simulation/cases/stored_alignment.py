"""Kills in the middle of stored alignments, in the simulation.

A job under back pressure with slow channels: barriers come late on them, and what comes on the other channels
meanwhile is stored. A little of it is in memory, the rest on disk. Processes die when an alignment has just
begun to store. In some seeds a limit gives checkpoints up, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.runtime.testing.simulation.cases.back_pressure import pressing_config, pressing_weather
from penstock.runtime.testing.simulation.cases.stress import stress_shape
from penstock.runtime.testing.simulation.jobs.scenario import HandlerMode, Scenario
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

#: How many processes die.
KILLS: Final = 5


def stored_alignment_scenario(seed: int, parallelism: int = 2) -> Scenario:
    """One job.

    Args:
        seed: Decides who dies and when, the memory, the limit, and the order of what happens.
        parallelism: Of every vertex.
    """
    draws = Draws(seed)
    config = pressing_config(every=0.02, unaligned=False, stored_in_memory=draws.pick((0, 600, 1_500)))
    assert config.checkpointing is not None, "the job takes checkpoints"
    limited = replace(config.checkpointing, max_alignment_bytes=draws.pick((None, None, 60)))
    faults = tuple(
        PlannedFault(FaultKind.CRASH, Moment.STORING, 2 + 3 * kill, delay=draws.between(0, 4))
        for kill in range(KILLS)
    )
    weather = pressing_weather(parallelism, tick=0.0001, slow_channels=0.3, slowness=0.01)
    return Scenario(
        seed,
        HandlerMode.STORED,
        stress_shape(parallelism),
        replace(config, checkpointing=limited),
        weather,
        faults,
    )
