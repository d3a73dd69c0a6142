"""`Heartbeat`: whether a process that gives no answer hangs, is busy, or only was not heard for a moment.

Ray reports a process that dies. It reports nothing of one that lives and does nothing. A signal may have
stopped it, or its memory may be on a disk that does not answer. So the answers must be followed. Silence
alone proves nothing, because C code may hold the interpreter's lock. One regular expression did that for
25 s, and its process answered no call. Killing it would kill it again in every attempt. (Flink's
`HeartbeatManager` has only the silence, and therefore waits 50 s. Kafka Streams sends its heartbeats from a
thread of its own, which in Python waits for the same lock.)

Processor time distinguishes the two. A busy process uses it, and a hung one does not. A stopped process can't
measure its own, so another process on the same node reads it from the kernel.

- After `suspect_after` seconds of silence the processor time is read, again and again.
- After `named_after` seconds the process is reported to people (`SILENT`). By default that is after 4 s, when
  it has missed two questions. A look comes every 0.5 s then, so people know within 5 s of its last answer.
- After `timeout` seconds it hangs (`HUNG`) if its processor time stood still for `still_for` seconds: the
  same value was read twice, so far apart. The kernel counts hundredths of a second. A process that gets less
  than one in two seconds is not merely starved: an answer takes a thousandth.
- A process whose processor time advances, or can't be read, is left alone until `overdue_after` (`OVERDUE`).

Ray's own threads hardly count. They used four to six hundredths in 12 to 14 s, with pauses of two to four
seconds. That was measured with Ray 2.60, in idle actors and in others whose event loop was blocked. So a
process in a deadlock is `HUNG`, too, at the timeout or some seconds later. That is meant. But an event loop
that waits for something outside looks the same. So none may do that: see `ClusterCalls` in `actors/master`.

The kernel also says whether a signal has stopped a process. That is not read. A frozen container, memory that
can't be read and a deadlock don't show there, and stopped processes stand still as well.

The watching process may be frozen itself, and finds much time gone when it continues. As in `Lease`, the time
between two looks counts for at most twice the time that was planned. So answers that wait are taken first.

What it must never do: call a process hung on an old reading. The second reading must have been asked for in
this silence, and less than `still_for` seconds ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

#: Seconds for which processor time must stand still at least. The kernel counts it in hundredths.
_SHORTEST_STILLNESS: Final = 1.0


class Pulse(Enum):
    """The state of a process.

    Attributes:
        ANSWERS: It has answered a short while ago.
        SILENT: It does not answer, and people know.
        HUNG: It has not answered for the timeout, and its processor time stands still: it is killed.
        OVERDUE: It has not answered for as long as a lease lasts, whatever it does: it is killed.
    """

    ANSWERS = "answers"
    SILENT = "silent"
    HUNG = "hung"
    OVERDUE = "overdue"

    @property
    def is_over(self) -> bool:
        return self in (Pulse.HUNG, Pulse.OVERDUE)


@dataclass(frozen=True, slots=True)
class HeartbeatLimits:
    """Limits of a silence, in seconds.

    Attributes:
        interval: Between two looks at a process that is a suspect.
        suspect_after: The processor time is read from here on.
        timeout: A process whose processor time stands still is killed.
        still_for: So long the processor time must have stood still.

    Example:
        >>> limits = HeartbeatLimits.of(heartbeat_timeout=8.0, overdue_after=60.0)
        >>> limits.interval, limits.suspect_after, limits.named_after, limits.still_for
        (0.5, 3.0, 4.0, 2.0)
    """

    interval: float
    calm_interval: float
    suspect_after: float
    named_after: float
    timeout: float
    still_for: float
    overdue_after: float

    @classmethod
    def of(cls, heartbeat_timeout: float, overdue_after: float) -> HeartbeatLimits:
        """The limits of a job; all but the last are shares of its `heartbeat_timeout`."""
        return cls(
            interval=heartbeat_timeout / 16,
            calm_interval=heartbeat_timeout / 8,
            suspect_after=heartbeat_timeout * 3 / 8,
            named_after=heartbeat_timeout / 2,
            timeout=heartbeat_timeout,
            still_for=max(heartbeat_timeout / 4, _SHORTEST_STILLNESS),
            overdue_after=overdue_after,
        )


@dataclass(frozen=True, slots=True)
class Silence:
    """A process does not answer.

    Attributes:
        uses_processor: Whether its processor time advances; `None` when that is not known.

    Example:
        >>> str(Silence(6.2, True))
        'no answer for 6 s, its processor time advances'
    """

    seconds: float
    uses_processor: bool | None

    def __str__(self) -> str:
        match self.uses_processor:
            case None:
                time = "is not known"
            case True:
                time = "advances"
            case False:
                time = "stands still"
        return f"no answer for {self.seconds:.0f} s, its processor time {time}"


class Heartbeat:
    """Follows the answers of one process; see the module's docstring.

    Args:
        now: Monotonic seconds; the process counts as heard.

    Example:
        >>> beat = Heartbeat(HeartbeatLimits.of(8.0, 60.0), now=0.0)
        >>> for tick in range(1, 17):
        ...     pulse = beat.look(now=tick / 2, pause=0.5)
        ...     if beat.wants_reading:
        ...         beat.ask()
        ...         beat.read(1.25)
        >>> pulse, str(beat.silence)
        (<Pulse.HUNG: 'hung'>, 'no answer for 8 s, its processor time stands still')
    """

    def __init__(self, limits: HeartbeatLimits, now: float) -> None:
        self._limits = limits
        self._looked_at = now
        self._silent = 0.0
        self._asked_at: float | None = None
        #: The value that was read last; the silence at which it was first read, and at which last asked for.
        self._used: float | None = None
        self._still_from = self._still_until = 0.0
        self._has_advanced = False

    @property
    def silence(self) -> Silence:
        """The current silence of the process."""
        stands_still = self._still_until - self._still_from >= self._limits.still_for / 2
        return Silence(self._silent, False if stands_still else True if self._has_advanced else None)

    @property
    def is_suspect(self) -> bool:
        """Whether the process has been silent for long enough to be looked at more closely."""
        return self._silent >= self._limits.suspect_after

    @property
    def wants_reading(self) -> bool:
        """Whether the processor time should be read now."""
        return self.is_suspect and self._asked_at is None

    def heard(self, now: float) -> None:
        self._silent, self._looked_at = 0.0, now
        self._asked_at = self._used = None
        self._still_from = self._still_until = 0.0
        self._has_advanced = False

    def ask(self) -> None:
        """Note that a reading of the processor time has begun."""
        self._asked_at = self._silent

    def read(self, used: float | None) -> None:
        """Take a reading of the processor time in seconds; `None` when it failed."""
        asked_at, self._asked_at = self._asked_at, None
        if asked_at is None or used is None:
            return
        if used == self._used:
            self._still_until = asked_at
            return
        self._has_advanced = self._used is not None
        self._used = used
        self._still_from = self._still_until = self._silent

    def look(self, now: float, pause: float) -> Pulse:
        """The state of the process; `pause` is the planned time since the last look, in seconds."""
        self._silent += min(now - self._looked_at, 2 * pause)
        self._looked_at = now
        if self._silent >= self._limits.overdue_after:
            return Pulse.OVERDUE
        if self._silent >= self._limits.timeout and self._stands_still:
            return Pulse.HUNG
        return Pulse.SILENT if self._silent >= self._limits.named_after else Pulse.ANSWERS

    @property
    def _stands_still(self) -> bool:
        is_old = self._silent - self._still_until >= self._limits.still_for
        return not is_old and self._still_until - self._still_from >= self._limits.still_for
