"""`AlignmentGroups`: how far the sources of each alignment group are, in the JobMaster.

`operators/source_alignment.py` says how the sources wait for each other, and why that never stops for good.
What is kept here is only what subtasks of the running attempt have reported. It is in no snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.graph.job_graph import OperatorSpec
from penstock.runtime.operators.sources.source_alignment import WatermarkReported, WatermarksAligned
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.time.watermark_alignment import WatermarkAlignment


class AlignmentGroups:
    """Answers the reports of sources.

    Args:
        operators: All operators of the job.

    Example:
        >>> from penstock import CollectionSource, WatermarkStrategy
        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_alignment("all", max_drift=0.00001)
        >>> sources = [OperatorSpec(x, x, None, CollectionSource([]), watermarks=strategy) for x in "ab"]
        >>> groups, a, b = AlignmentGroups(sources), SubtaskId("a", 0), SubtaskId("b", 0)
        >>> groups.reported("a", a, WatermarkReported(1, 100, counts=True))
        WatermarksAligned(number=1, allowed=110)
        >>> groups.reported("b", b, WatermarkReported(1, 20, counts=True)).allowed
        30
        >>> groups.reported("a", a, WatermarkReported(2, 100, counts=True)).allowed
        30
    """

    def __init__(self, operators: Iterable[OperatorSpec]) -> None:
        self._of: dict[str, WatermarkAlignment] = {}
        for spec in operators:
            alignment = None if spec.watermarks is None else spec.watermarks.alignment
            if alignment is not None:
                self._of[spec.id] = alignment
        self._groups: dict[str, dict[SubtaskId, WatermarkReported]] = {}

    def reported(
        self, operator_id: str, subtask: SubtaskId, report: WatermarkReported
    ) -> WatermarksAligned | None:
        """A subtask has reported; the answer, or `None` if its source is in no group."""
        alignment = self._of.get(operator_id)
        if alignment is None:
            return None
        group = self._groups.setdefault(alignment.group, {})
        known = group.get(subtask)
        if known is None or report.number > known.number:
            group[subtask] = report
        return WatermarksAligned(report.number, _allowed(group.values(), alignment.max_drift))

    def forget(self, subtask: SubtaskId) -> None:
        """A subtask is gone; nobody waits for it until it has reported again."""
        for group in self._groups.values():
            group.pop(subtask, None)

    def forget_all(self) -> None:
        """The attempt is over."""
        self._groups.clear()


def _allowed(reports: Iterable[WatermarkReported], max_drift: int) -> int | None:
    reached = [report.reached for report in reports if report.counts]
    if not reached:
        return END_OF_TIME
    known = [each for each in reached if each is not None]
    return min(known) + max_drift if len(known) == len(reached) else None
