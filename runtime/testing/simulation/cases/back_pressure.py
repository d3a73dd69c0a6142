"""Conditions and settings of jobs under back pressure, for hand-written scenarios.

Users' code is slow, buffers are small and credits few, so that every channel is full most of the time.
Calls arrive out of order, some of them twice. A job restarts without limit, keeps its checkpoints, and
tolerates every failure: the scenario places the failures.
"""

from __future__ import annotations

from penstock.runtime.config.checkpointing import ALIGNMENT_MEMORY, Alignment, Checkpointing, KeepAfter
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.weather import Weather


def pressing_weather(parallelism: int, *, tick: float, slow_channels: float, slowness: float) -> Weather:
    """Weather in which a record takes ten ticks, however many subtasks share the one clock.

    Args:
        parallelism: The largest of any vertex; the more subtasks, the shorter their moves.
        tick: Most seconds of a move at parallelism 1.
        slow_channels: Share of the channels that are slow.
        slowness: Seconds that a frame takes longer on them.
    """
    return Weather(
        weights=dict.fromkeys(Happening, 4),
        disorder=0.3,
        tick=tick / parallelism,
        latency=0.0005,
        repeats=0.02,
        stragglers=0.0,
        slow_channels=slow_channels,
        slowness=slowness,
        seconds_per_record=10 * tick / parallelism,
        lasts=1_000_000,
    )


def pressing_config(
    *,
    every: float,
    unaligned: bool,
    aligned_timeout: float | None = None,
    stored_in_memory: int | None = None,
) -> JobConfig:
    """Settings with which little fits into a channel.

    Args:
        every: Seconds between two checkpoints.
        unaligned: Whether barriers overtake records.
        aligned_timeout: Seconds after which they begin to, if not at once.
        stored_in_memory: Bytes of a stored alignment that stay in memory; `None` for alignments that hold.
    """
    stores = stored_in_memory is not None
    return JobConfig(
        checkpointing=Checkpointing(
            every=every,
            storage="memory:",
            unaligned=unaligned,
            aligned_timeout=aligned_timeout,
            alignment=Alignment.STORE if stores else Alignment.HOLD,
            alignment_memory=ALIGNMENT_MEMORY if stored_in_memory is None else stored_in_memory,
            keep_after=KeepAfter.ALWAYS,
            tolerable_failures=None,
        ),
        restart=FixedDelay(attempts=100, delay=0.001),
        buffer_rows=2,
        buffer_timeout=0.001,
        credits=2,
        gap_timeout=1000.0,
    )
