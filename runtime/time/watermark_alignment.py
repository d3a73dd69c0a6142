"""`WatermarkAlignment`: how far a source may run ahead of the others of its group, as users say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Membership of a source in a group; see `WatermarkStrategy.with_alignment`.

    Attributes:
        group: Name of the group.
        max_drift: Microseconds of event time by which a source may be ahead of the group's slowest.
        interval: Seconds between two reports of a subtask.
    """

    group: str
    max_drift: int
    interval: float
