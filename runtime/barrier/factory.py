"""Chooses the barrier handler of a subtask.

* at least once: `CheckpointBarrierTracker`. Unaligned checkpoints are refused.
* exactly once, aligned: `CheckpointBarrierAligner`; behind a `StoringInputGate` if input is stored.
* exactly once, unaligned: `AlternatingBarrierHandler`. It uses an aligner for savepoints, and for checkpoints
  that must be aligned before a rescale. For all other checkpoints it uses a `CheckpointBarrierUnaligner` or
  an `AlignedWithTimeoutBarrierHandler`.

A subtask with one channel gets `SingleChannelBarrierHandler`, except with unaligned checkpoints: a barrier
overtakes data in a single channel, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner, SingleChannelBarrierHandler
from penstock.runtime.barrier.alternating import AlternatingBarrierHandler
from penstock.runtime.barrier.checkpointed_input_gate import (
    CheckpointedInputGate,
    StoredChannels,
    StoringInputGate,
)
from penstock.runtime.barrier.handler import (
    ChannelBlocking,
    CheckpointBarrierHandler,
)
from penstock.runtime.barrier.tracker import CheckpointBarrierTracker
from penstock.runtime.barrier.unaligner import AlignedWithTimeoutBarrierHandler, CheckpointBarrierUnaligner
from penstock.runtime.config.checkpointing import Alignment, Checkpointing, CheckpointingMode
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.execution_graph import InputChannelSpec
from penstock.runtime.network.buffer_storage import BufferStorage
from penstock.runtime.network.channel_state import ChannelStateWriter
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.ports import Clock, TimerService

T = TypeVar("T")


class HandlerKind(Enum):
    #: One channel, exactly once.
    SINGLE_CHANNEL_ALIGNER = "single_channel_aligner"
    #: One channel, at least once.
    SINGLE_CHANNEL_TRACKER = "single_channel_tracker"
    ALIGNER = "aligner"
    TRACKER = "tracker"
    #: An aligner whose gate stores the elements of blocked channels.
    STORING = "storing"
    #: Savepoints aligned, checkpoints unaligned, except those that a rescale needs aligned.
    ALTERNATING = "alternating"
    #: Savepoints aligned, checkpoints aligned until a timeout.
    ALTERNATING_WITH_TIMEOUT = "alternating_with_timeout"


@dataclass(frozen=True, slots=True)
class BarrierSettings:
    """Settings that choose the handler; with `stores`, alignments store the input of blocked channels."""

    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    unaligned: bool = False
    has_aligned_timeout: bool = False
    stores: bool = False
    semantics: Semantics = Semantics.current()

    @classmethod
    def of_job(
        cls,
        checkpointing: Checkpointing | None,
        semantics: Semantics,
    ) -> BarrierSettings:
        """The settings of a job; without checkpointing no barrier ever arrives."""
        if checkpointing is None:
            return cls(semantics=semantics)
        return cls(
            CheckpointingMode(checkpointing.mode),
            checkpointing.unaligned,
            checkpointing.aligned_timeout is not None,
            checkpointing.alignment is Alignment.STORE,
            semantics,
        )


def select_handler(settings: BarrierSettings, channels: int) -> HandlerKind:
    """Choose the handler.

    Raises:
        ConfigurationError: The settings contradict each other.

    Example:
        >>> select_handler(BarrierSettings(unaligned=True), channels=3).name
        'ALTERNATING'
    """
    if settings.mode is CheckpointingMode.AT_LEAST_ONCE:
        if settings.unaligned:
            msg = (
                "unaligned checkpoints need mode='exactly_once': mode='at_least_once' blocks no channel, so "
                "a barrier need not overtake data"
            )
            raise ConfigurationError(msg)
        return HandlerKind.SINGLE_CHANNEL_TRACKER if channels == 1 else HandlerKind.TRACKER
    if settings.unaligned:
        if settings.stores:
            msg = (
                "alignment='store' needs aligned checkpoints: an unaligned one captures the data in front of "
                "its barriers instead"
            )
            raise ConfigurationError(msg)
        with_timeout = settings.has_aligned_timeout
        return HandlerKind.ALTERNATING_WITH_TIMEOUT if with_timeout else HandlerKind.ALTERNATING
    if channels == 1:
        return HandlerKind.SINGLE_CHANNEL_ALIGNER
    return HandlerKind.STORING if settings.stores else HandlerKind.ALIGNER


@dataclass(frozen=True, slots=True)
class InFlightCapture:
    """Parts that unaligned checkpoints need; on `aligned_channels` no barrier overtakes data."""

    writer: ChannelStateWriter
    timers: TimerService
    aligned_channels: frozenset[int] = frozenset()


def channels_to_align(inputs: Iterable[InputChannelSpec]) -> frozenset[int]:
    """Input channels on which no barrier overtakes data."""
    return frozenset(spec.index for spec in inputs if not spec.supports_unaligned)


def create_input_gate(
    settings: BarrierSettings,
    gate: InputGate,
    clock: Clock,
    capture: InFlightCapture | None = None,
    storage: Callable[[], BufferStorage] | None = None,
) -> CheckpointedInputGate:
    """Make the input of one subtask with its handler; the caller sets the listener afterwards."""
    channels, semantics = len(gate), settings.semantics
    kind = select_handler(settings, channels)
    if kind is HandlerKind.STORING:
        blocked = StoredChannels()
        aligner = CheckpointBarrierAligner(channels, blocked, clock, semantics)
        return StoringInputGate(gate, aligner, blocked, _required(storage, "storage", kind)())
    if kind not in (HandlerKind.ALTERNATING, HandlerKind.ALTERNATING_WITH_TIMEOUT):
        return CheckpointedInputGate(
            gate, create_barrier_handler(settings.mode, channels, gate, clock, semantics)
        )
    unaligner = _unaligner(kind, gate, clock, semantics, _required(capture, "capture", kind))
    aligner = CheckpointBarrierAligner(channels, gate, clock, semantics)
    return CheckpointedInputGate(gate, AlternatingBarrierHandler(channels, clock, aligner, unaligner))


def create_barrier_handler(
    mode: CheckpointingMode,
    channels: int,
    inputs: ChannelBlocking,
    clock: Clock,
    semantics: Semantics = Semantics.current(),
) -> CheckpointBarrierHandler:
    """Make a handler that does not watch arrivals; the caller sets the listener afterwards."""
    aligns = mode is CheckpointingMode.EXACTLY_ONCE
    if channels == 1:
        return SingleChannelBarrierHandler(clock, ignores_old=aligns)
    if aligns:
        return CheckpointBarrierAligner(channels, inputs, clock, semantics)
    return CheckpointBarrierTracker(channels, clock, semantics)


def _unaligner(
    kind: HandlerKind, gate: InputGate, clock: Clock, semantics: Semantics, capture: InFlightCapture
) -> CheckpointBarrierUnaligner:
    channels, aligned = len(gate), capture.aligned_channels
    if kind is HandlerKind.ALTERNATING:
        return CheckpointBarrierUnaligner(channels, gate, capture.writer, clock, semantics, aligned)
    return AlignedWithTimeoutBarrierHandler(
        channels, gate, capture.writer, clock, capture.timers, semantics, aligned
    )


def _required(value: T | None, name: str, kind: HandlerKind) -> T:
    if value is None:
        msg = f"{name} is needed for the barrier handler {kind.value!r}"
        raise ValueError(msg)
    return value
