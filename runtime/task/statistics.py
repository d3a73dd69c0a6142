"""Counters of a subtask; metrics, the live line and tests read the same object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.runtime.barrier.handler import BarrierHandlerStatistics
from penstock.runtime.checkpoint.subtask.statistics import SubtaskCheckpointStatistics
from penstock.runtime.network.buffer_storage import BufferStorageStatistics
from penstock.runtime.operators.protocols import OperatorStatistics


@dataclass(frozen=True, slots=True)
class OutputFill:
    """How full the channels of one edge are, at one sender.

    Attributes:
        target: Id of the vertex that receives.
        operator: Operator whose output is sent.
        side_output: Name of the side output that is sent; `None` for the main output.
        input_index: Input of the target.
        copy: Number of the edge among equal ones.
        credits: Buffers that may be outstanding on each channel.
        first_receiver: Index of the subtask that the first channel leads to; the others follow in order.
        outstanding: Buffers that the receiver has not consumed, by channel.
        queued: Elements that wait for a credit, by channel.

    Example:
        >>> OutputFill("count", "words", None, 0, 0, 8, 0, (8, 4), (3, 0)).fill
        0.75
    """

    target: str
    operator: str
    side_output: str | None
    input_index: int
    copy: int
    credits: int
    first_receiver: int
    outstanding: tuple[int, ...]
    queued: tuple[int, ...]

    @property
    def fill(self) -> float:
        """Share of the credits of all channels that is in use, from 0 to 1."""
        return sum(self.outstanding) / (self.credits * len(self.outstanding)) if self.outstanding else 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OutputFill:
        """What `asdict` gave."""
        outstanding, queued = tuple(data["outstanding"]), tuple(data["queued"])
        return cls(**{**data, "outstanding": outstanding, "queued": queued})


@dataclass(frozen=True, slots=True)
class SubtaskStatistics:
    """Counters of one subtask since its attempt began.

    Attributes:
        records_in: Records taken from the source or from channels.
        records_out: Records handed to channels.
        bytes_out: Encoded bytes sent.
        buffers_out: Buffers sent.
        busy_seconds: Time spent working.
        backpressured_seconds: Time in which an output had no credit.
        slice_overruns: Slices that a user's function made much too long.
        pickled_values: Values that only pickle could carry.
        operators: Counters by operator id.
        checkpoints: Counters of the subtask's checkpoints.
        reordered_elements: Elements that arrived before an earlier one of their channel.
        barriers: Counters of its barrier handler; `None` for a source.
        stored: Counters of what alignments stored; `None` when they hold blocked channels.
        current_watermark: The last watermark that has passed all of its operators, in microseconds since the
            epoch; `None` before the first one.
        is_idle: Whether its receivers do not wait for its watermarks.
        is_paused: Whether it waits for other sources of its alignment group.
        bytes_in: Encoded bytes of the records that arrived on its channels; 0 for a source.
        at: When this was counted: monotonic seconds of its process.
        outputs: How full its channels are, by edge.
    """

    records_in: int
    records_out: int
    bytes_out: int
    buffers_out: int
    busy_seconds: float
    backpressured_seconds: float
    slice_overruns: int
    pickled_values: int
    operators: Mapping[str, OperatorStatistics] = field(default_factory=dict)
    checkpoints: SubtaskCheckpointStatistics | None = None
    reordered_elements: int = 0
    barriers: BarrierHandlerStatistics | None = None
    stored: BufferStorageStatistics | None = None
    current_watermark: int | None = None
    is_idle: bool = False
    is_paused: bool = False
    bytes_in: int = 0
    at: float = 0.0
    outputs: tuple[OutputFill, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON carries."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SubtaskStatistics:
        """The counters that `to_dict` gave.

        Example:
            >>> counters = SubtaskStatistics(10, 9, 80, 1, 0.5, 0.0, 0, 0, {"map": OperatorStatistics(10, 9)})
            >>> SubtaskStatistics.from_dict(counters.to_dict()) == counters
            True
        """
        operators = {
            operator: OperatorStatistics.from_dict(counters)
            for operator, counters in data["operators"].items()
        }
        checkpoints, barriers, stored = data["checkpoints"], data.get("barriers"), data.get("stored")
        return cls(
            **{
                **data,
                "operators": operators,
                "checkpoints": None if checkpoints is None else SubtaskCheckpointStatistics(**checkpoints),
                "barriers": None if barriers is None else BarrierHandlerStatistics(**barriers),
                "stored": None if stored is None else BufferStorageStatistics(**stored),
                "outputs": tuple(map(OutputFill.from_dict, data.get("outputs", ()))),  # new in 0.2
            }
        )
