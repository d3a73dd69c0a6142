"""`Scenario`: all that a seed picks before the run begins, and `draw_scenario`, which picks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY
from penstock.runtime.config.checkpointing import Alignment, Checkpointing, KeepAfter
from penstock.runtime.config.job_config import ALIGNMENT_MEMORY, AdvancedConfig, EndOfPartitionMode, JobConfig
from penstock.runtime.config.restart import (
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartConfig,
)
from penstock.runtime.testing.simulation.run.target import Plan
from penstock.runtime.testing.simulation.world.agenda import Conditions, Draws, draw_conditions
from penstock.runtime.testing.simulation.world.faults import (
    MOMENTS,
    FaultKind,
    Moment,
    PlannedFault,
    draw_faults,
)
from penstock.runtime.time.durations import as_seconds
from simulated_jobs.columns import AGGREGATE, SOURCE, draw_columns
from simulated_jobs.connected import draw_connected
from simulated_jobs.draw_job import (
    draw_axis_faults,
    draw_second_job,
    draw_shape,
    draw_sources,
    draw_windows,
)
from simulated_jobs.drawn_faults import draw_damage, draw_family_faults
from simulated_jobs.handover import SecondJob
from simulated_jobs.shape import Shape
from simulated_jobs.timed import SOURCE as TIMED_SOURCE
from simulated_jobs.timed import TIMED, draw_timed


class HandlerMode(Enum):
    """The handling of barriers."""

    ALIGNED = "aligned"
    STORED = "stored"
    AT_LEAST_ONCE = "at_least_once"
    UNALIGNED = "unaligned"
    ALIGNED_TIMEOUT = "aligned_timeout"
    NO_CHECKPOINTS = "no_checkpoints"


#: How many of the seeds with aligned checkpoints store what blocked channels bring.
_STORING: Final = 0.5

#: How many of the seeds compact their log after a few records.
_COMPACTING: Final = 0.3

#: How many of the seeds may restart a few times only.
_LIMITED: Final = 0.15

#: The streams of the part that lives by time, and of the part with two inputs.
_TIMED_STREAM: Final = 40
_CONNECTED_STREAM: Final = 41

#: What seeds pick from, as often as it stands here.
MODES: Final = (
    *(HandlerMode.ALIGNED,) * 6,
    *(HandlerMode.UNALIGNED,) * 6,
    *(HandlerMode.ALIGNED_TIMEOUT,) * 6,
    *(HandlerMode.AT_LEAST_ONCE,) * 3,
    HandlerMode.NO_CHECKPOINTS,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything about a run but the order of its happenings, which the seed decides on the way.

    Attributes:
        mode: How barriers are dealt with.
        shape: The graph.
        config: The job's settings.
        conditions: What the world is like.
        faults: What will go wrong, if its moment comes.
        second: A second job that starts when the first was stopped or cancelled; `None` for none.
        rescale_to: The parallelism that its user asks for, by operator id; drawn on the way when left out.
        compact_every: Number of records after which the decision log is compacted.
        inline_limit: Most bytes of a state that stay in metadata; `None` for the usual limit.
    """

    seed: int
    mode: HandlerMode
    shape: Shape
    config: JobConfig
    conditions: Conditions
    faults: tuple[PlannedFault, ...]
    second: SecondJob | None = None
    rescale_to: Mapping[str, int] | None = None
    compact_every: int = COMPACT_EVERY
    inline_limit: int | None = None

    @property
    def is_exactly_once(self) -> bool:
        """Whether nothing may count twice."""
        return self.mode is not HandlerMode.AT_LEAST_ONCE

    @property
    def barriers(self) -> str:
        """The mode, and what the end of a channel means to a checkpoint that runs."""
        return f"{self.mode.value}, end_of_partition={self.config.end_of_partition}"

    @property
    def plan(self) -> Plan:
        """The faults that strike the job from outside."""
        shape = self.shape
        uploading = {v.head.id for v in shape.vertices if any(operator.is_padded for operator in v.operators)}
        rescalable = tuple(vertex.head.id for vertex in shape.vertices if not vertex.has_broadcast)
        rescalable += () if shape.columns is None else (SOURCE, AGGREGATE)
        rescalable += () if shape.timed is None else (TIMED_SOURCE, TIMED)
        rescalable += () if shape.connected is None else shape.connected.rescalable
        return Plan(self.faults, frozenset(uploading), rescalable, self.rescale_to)

    def describe(self) -> list[str]:
        """In words, for the trace."""
        config, checkpointing = self.config, self.config.checkpointing
        lines = [f"seed {self.seed}: {self.barriers}"]
        lines += [f"  vertex {position}: {vertex}" for position, vertex in enumerate(self.shape.vertices)]
        lines += [] if self.shape.columns is None else [f"  {self.shape.columns}"]
        lines += [] if self.shape.timed is None else [f"  {self.shape.timed}"]
        lines += [] if self.shape.connected is None else [f"  {self.shape.connected}"]
        lines.append(
            f"  credits {config.advanced.credits}, rows in a buffer {config.advanced.buffer_rows}, "
            f"buffer timeout {as_seconds(config.buffer_timeout):g} s"
        )
        lines.append(f"  {config.restart}")
        lines.append(f"  the log is compacted after {self.compact_every} records")
        if checkpointing is not None:
            lines += ["  older checkpoints are allowed"] if checkpointing.allow_older else []
            lines.append(
                f"  a checkpoint every {as_seconds(checkpointing.every):g} s, "
                f"timeout {as_seconds(checkpointing.timeout):g} s, {checkpointing.max_concurrent} at a time"
            )
            if self.mode is HandlerMode.STORED:
                limit = checkpointing.max_alignment_bytes
                lines.append(f"  {config.advanced.alignment_memory} B of alignments in memory, limit {limit}")
        lines += [f"  planned: {fault}" for fault in self.faults]
        return lines if self.second is None else [*lines, f"  then {self.second}"]


def draw_scenario(seed: int) -> Scenario:
    """Pick everything.

    Example:
        >>> draw_scenario(5) == draw_scenario(5)
        True
    """
    draws = Draws(seed)
    mode, alignment = draws.stream(0).pick(MODES), draws.stream(8)
    if mode is HandlerMode.ALIGNED and alignment.chance(_STORING):
        mode = HandlerMode.STORED
    conditions, config = draw_conditions(draws.stream(3)), _config(draws.stream(2), mode, draws.stream(13))
    if mode is HandlerMode.STORED:
        config = _storing(config, alignment)
    axes, checkpoints = draws.stream(6), mode is not HandlerMode.NO_CHECKPOINTS
    shape = draw_sources(axes, draw_shape(draws.stream(1)), hooks=checkpoints)
    connected = draw_connected(draws.stream(_CONNECTED_STREAM))
    whole = replace(shape, connected=connected)
    if connected is None:  # else the part with two inputs stands in their place, so that runs stay short
        whole = replace(draw_windows(draws.stream(7), shape), columns=draw_columns(draws.stream(18)))
    timed = draws.stream(_TIMED_STREAM)
    if not checkpoints:
        whole = replace(whole, timed=draw_timed(timed, waits=False))
        return Scenario(seed, mode, whole, config, conditions, ())
    second, ends = draw_second_job(axes, shape)
    if second is not None:
        config = _keeping_more(config)
    failures = draws.stream(4)
    faults = draw_faults(failures, conditions.lasts) + _draw_cancel(failures)
    faults += draw_axis_faults(axes, shape) + ends + draw_family_faults(draws, conditions.lasts)
    if mode is HandlerMode.STORED:
        faults += _draw_crashes_while_stored(alignment)
    compact_every, crashes = _draw_compactions(draws.stream(14), conditions.lasts)
    stored, inline_limit = draws.stream(15), None
    compacts = compact_every < COMPACT_EVERY
    damage = draw_damage(stored, in_flight=_is_unaligned(mode), compacts=compacts)
    if damage:
        config, inline_limit = _with_damage(config, stored)
    is_clock_set = any(fault.kind is FaultKind.CLOCK_SET for fault in faults)
    whole = replace(whole, timed=draw_timed(timed, waits=not is_clock_set))
    return Scenario(
        seed,
        mode,
        whole,
        config,
        conditions,
        faults + crashes + damage,
        second,
        compact_every=compact_every,
        inline_limit=inline_limit,
    )


def checkpointing_of(draws: Draws, mode: HandlerMode) -> Checkpointing | None:
    """The checkpoints of the job."""
    if mode is HandlerMode.NO_CHECKPOINTS:
        return None
    unaligned = _is_unaligned(mode)
    return Checkpointing(
        every=draws.pick((0.003, 0.01, 0.03, 0.1)),
        storage="memory:",
        mode="at_least_once" if mode is HandlerMode.AT_LEAST_ONCE else "exactly_once",
        timeout=draws.pick((0.1, 0.3, 1.0, 10.0)),
        min_pause=draws.pick((0.0, 0.0, 0.005)),
        max_concurrent=1 if unaligned else draws.pick((1, 1, 2, 3)),
        retain=draws.pick((1, 1, 2, 3)),
        keep_after=KeepAfter.ALWAYS,
        tolerable_failures=draws.pick((None, None, 0, 2)),
        unaligned=unaligned,
        aligned_timeout=draws.pick((0.001, 0.01, 0.05)) if mode is HandlerMode.ALIGNED_TIMEOUT else None,
    )


def _restart(draws: Draws, delay: float) -> RestartConfig:
    """Limit of a job's restarts: mostly as many as it needs, so that it gets to its end."""
    if not draws.chance(_LIMITED):
        unlimited: tuple[RestartConfig, ...] = (FixedDelay(10_000, delay), ExponentialBackoff(0.01, 0.5))
        return draws.pick(unlimited)
    few = draws.between(1, 5)
    limited: tuple[RestartConfig, ...] = (
        NoRestart(),
        FixedDelay(few, delay),
        FailureRate(few, draws.pick((0.05, 0.5, 5.0)), delay),
        FailureRate(1, draws.pick((0.05, 0.5, 5.0)), delay),
        ExponentialBackoff(0.01, 0.5, attempts=few),
    )
    return draws.pick(limited)


def _config(draws: Draws, mode: HandlerMode, restarts: Draws) -> JobConfig:
    may_abort = mode is not HandlerMode.AT_LEAST_ONCE
    policy: EndOfPartitionMode = "aborts" if draws.chance(0.3) and may_abort else "counts_as_barrier"
    return JobConfig(
        checkpointing=checkpointing_of(draws, mode),
        restart=_restart(restarts, draws.pick((0.0, 0.01, 0.5))),
        buffer_timeout=draws.pick((0.0, 0.001, 0.01, 0.1)),
        advanced=AdvancedConfig(
            buffer_rows=draws.pick((1, 1, 2, 3, 5, 8, 20)),
            credits=draws.pick((1, 1, 2, 2, 3, 5, 8)),
            slice_duration=draws.pick((0.0005, 0.01)),
            gap_timeout=1000.0,
        ),
        failover="full" if draws.chance(0.3) else "region",
        end_of_partition=policy,
    )


def _storing(config: JobConfig, draws: Draws) -> JobConfig:
    """Alignments store: in memory, or in a little memory and then on disk, or all of it on disk."""
    assert config.checkpointing is not None, "only a job with checkpoints aligns"
    memory = draws.pick((0, 0, 600, 2_000, ALIGNMENT_MEMORY))
    limit = draws.pick((None, None, None, 0, 50, 200))
    storing = replace(config.checkpointing, alignment=Alignment.STORE, max_alignment_bytes=limit)
    advanced = replace(config.advanced, alignment_memory=memory)
    return replace(config, checkpointing=storing, advanced=advanced)


def _draw_crashes_while_stored(draws: Draws) -> tuple[PlannedFault, ...]:
    """Processes die when an alignment has just begun to store."""
    crashes = draws.pick((0, 1, 2))
    return tuple(
        PlannedFault(FaultKind.CRASH, Moment.STORING, 1 + 2 * crash, draws.below(4))
        for crash in range(crashes)
    )


def _draw_compactions(draws: Draws, lasts: int) -> tuple[int, tuple[PlannedFault, ...]]:
    """After how many records the log is compacted, and perhaps JobMasters that die meanwhile."""
    if not draws.chance(_COMPACTING):
        return COMPACT_EVERY, ()
    crashes = tuple(
        PlannedFault(FaultKind.CRASH_IN_COMPACTION, Moment.MOVE, draws.below(lasts // 4))
        for _ in range(draws.pick((0, 1, 2, 4)))
    )
    return draws.pick((2, 2, 3, 5, 10)), crashes


def _is_unaligned(mode: HandlerMode) -> bool:
    return mode in (HandlerMode.UNALIGNED, HandlerMode.ALIGNED_TIMEOUT)


def _with_damage(config: JobConfig, draws: Draws) -> tuple[JobConfig, int | None]:
    """Settings of a job whose files are damaged: many checkpoints and files, older ones perhaps allowed."""
    inline_limit = draws.pick((None, 0, 0, 0))
    if draws.chance(0.5):
        config = _keeping_more(config)
    assert config.checkpointing is not None, "only checkpoints can be damaged"
    allow_older = config.checkpointing.retain > 1 and draws.chance(0.8)
    often = replace(config.checkpointing, every=0.003, min_pause=0.0, timeout=10.0, allow_older=allow_older)
    return replace(config, checkpointing=often), inline_limit


def _keeping_more(config: JobConfig) -> JobConfig:
    """So that there is an older checkpoint to start from."""
    assert config.checkpointing is not None, "without checkpoints no second job starts"
    retain = max(2, config.checkpointing.retain)
    return replace(config, checkpointing=replace(config.checkpointing, retain=retain))


def _draw_cancel(draws: Draws) -> tuple[PlannedFault, ...]:
    if not draws.chance(0.06):
        return ()
    return (PlannedFault(FaultKind.JOB_CANCELLED, draws.pick(MOMENTS[4:]), draws.between(1, 6)),)
