"""`SourceAlignment`: keeps one source subtask from running far ahead of the others of its group.

Where sources are joined or windowed together, event time is that of the slowest. What a fast source reads
meanwhile waits in state. So the sources of a group wait for each other.

Each subtask reports its watermark to the JobMaster from time to time (`WatermarkReported`). The answer says
how far it may read: up to the lowest watermark of the group plus its own drift (`WatermarksAligned`). A
subtask that is further ahead reads nothing until another answer lets it. Flink's coordinators announce by a
timer. Here the report is the question, so the JobMaster needs no timer, and a lost answer is made good by the
next report.

It never stops for good:

* The slowest of a group is within its own drift, so it reads. A paused subtask goes on reporting.
* A subtask that is idle or has ended says so, and counts no more. So does one that is gone: the JobMaster
  forgets what it had reported. Whoever has not reported yet does not count either.
* A subtask without a watermark holds the others up, as it holds event time up, and is never paused itself.
  If it has nothing to read, idleness lets the others go on.
* Barriers don't wait: a source takes them between two polls, whether it polls or not.

A pause is no state. After a restart a subtask reads until the first answer, which comes within milliseconds.
How far a source is ahead is therefore no promise. It may be ahead by what it reads between a report and its
answer, or while another subtask is being restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.time.watermark_alignment import WatermarkAlignment


@dataclass(frozen=True, slots=True)
class WatermarkReported:
    """How far a source subtask is; asks how far it may read.

    Attributes:
        number: Counts the reports of this subtask and attempt from 1. Reports may overtake each other.
        reached: Its watermark in microseconds; `None` before the first one.
        counts: Whether the others wait for it: it is neither idle nor at its end.
    """

    number: int
    reached: int | None
    counts: bool


@dataclass(frozen=True, slots=True)
class WatermarksAligned:
    """How far a source subtask may read.

    Attributes:
        number: That of the report that this answers.
        allowed: The highest watermark with which it may read; `None` as long as somebody has no watermark.
    """

    number: int
    allowed: int | None


class SourceAlignment:
    """The part of one subtask; see the module's text.

    Args:
        send: Carries a report to the JobMaster.

    Example:
        >>> sent = []
        >>> alignment = SourceAlignment(WatermarkAlignment("all", 10, 0.5), sent.append)
        >>> alignment.tick(0.0, 5, counts=True)
        >>> alignment.aligned(WatermarksAligned(1, 15))
        >>> alignment.is_ahead(15), alignment.is_ahead(16), alignment.due_at
        (False, True, 0.5)
    """

    def __init__(self, settings: WatermarkAlignment, send: Callable[[WatermarkReported], None]) -> None:
        self._interval = settings.interval
        self._send = send
        self._number = 0
        self._answered = 0
        self._has_limit = False
        self._allowed: int | None = None
        self._reported: int | None = None
        self.due_at = 0.0

    def is_ahead(self, reached: int | None) -> bool:
        """Whether a split or subtask with this watermark has to wait."""
        if reached is None or not self._has_limit:
            return False
        return self._allowed is None or reached > self._allowed

    def tick(self, now: float, reached: int | None, *, counts: bool) -> None:
        """Report if it is time.

        Args:
            now: Seconds on the clock of `InputTime`.
            reached: The subtask's watermark.
            counts: Whether the others wait for it.
        """
        if now >= self.due_at:
            self.due_at = now + self._interval
            self.report(reached, counts=counts)

    def advanced(self, reached: int | None) -> None:
        """The subtask has read; where it has to wait now, it asks at once."""
        if self.is_ahead(reached) and reached != self._reported:
            self.report(reached, counts=True)

    def report(self, reached: int | None, *, counts: bool) -> None:
        """Report now."""
        self._number += 1
        self._reported = reached
        self._send(WatermarkReported(self._number, reached, counts))

    def aligned(self, answer: WatermarksAligned) -> None:
        """An answer has come; an older one than the last does nothing."""
        if answer.number > self._answered:
            self._answered = answer.number
            self._has_limit = True
            self._allowed = answer.allowed
