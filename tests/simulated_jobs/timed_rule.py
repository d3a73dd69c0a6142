"""The expected output of the part of a job that lives by time (`jobs/timed.py`).

Each record is in one row of the output, or still waits for its timer in the last checkpoint. Sessions are
those that a walk over all records finds. A timer of event time has fired, or was deleted, as its record says.
No timer fires that was deleted. A value that expires is seen exactly as long as it lives.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from simulated_jobs.records import ExternalSystem
from simulated_jobs.rules import FinalState
from simulated_jobs.timed import (
    BLOCK,
    SINK,
    TIMED,
    UNIT,
    Item,
    Row,
    TimedKind,
    TimedShape,
)

#: What a row with this name does not stand for: a rule is broken.
_NEVER: Final = "fired for nothing"


class TimedRule:
    """Checks the output of one such part.

    Args:
        exactly_once: Whether nothing may count twice.
        is_whole: Whether nothing may fire or expire before its time, as a drain does.
        clocks_disagree: Whether wall clocks are set, or processes have different ones. Then a value may
            have lived longer by the clock of the process that wrote it than by that of the next one.
    """

    def __init__(
        self,
        shape: TimedShape,
        system: ExternalSystem,
        *,
        exactly_once: bool,
        is_whole: bool,
        clocks_disagree: bool,
    ) -> None:
        self._shape = shape
        written: list[Any] = system.rows(SINK)  # rows of other parts than the records of the others
        self._rows: list[Row] = [row for row, _ in written]
        self._exactly_once = exactly_once
        self._is_whole = is_whole
        self._clocks_disagree = clocks_disagree

    def problems(self, *, complete: bool, state: FinalState | None, may_lack: bool) -> list[str]:
        """Violations.

        Args:
            complete: Whether the job has come to its end.
            state: The last checkpoint; `None` where it is not known.
            may_lack: Whether state of finished subtasks was left behind.
        """
        left = Counter[Item]()
        if state is not None and self._shape.kind is TimedKind.PROCESSING_TIMERS:
            left = state.waiting_items(TIMED)
        is_known = state is not None or self._shape.kind is not TimedKind.PROCESSING_TIMERS
        found = Counter(item for row in self._rows for item in row[1]) + left
        missing = sorted(set(self._shape.items) - found.keys())
        twice = sorted(item for item, times in found.items() if times > 1)
        problems = [f"{TIMED} has {item}, which nobody sent" for item in found.keys() - {*self._shape.items}]
        if missing and complete and is_known and not may_lack:
            problems.append(f"{TIMED} lost {len(missing)} records: {missing[:5]}")
        if not self._exactly_once:
            return problems
        if twice:
            problems.append(f"{TIMED} has records twice: {twice[:5]}")
        problems += [f"{TIMED}: a timer that was deleted has fired" for row in self._rows if row[0] == _NEVER]
        if state is not None and not may_lack and self._shape.kind is TimedKind.PROCESSING_TIMERS:
            problems += state.timer_problems(TIMED)
        return problems + self._problems_of_kind()

    def _problems_of_kind(self) -> list[str]:
        if self._shape.kind is TimedKind.TTL:
            return self._expired_too_early_or_late()
        if not self._is_whole:
            return []
        if self._shape.kind is TimedKind.SESSIONS:
            right = sessions(self._shape)
            return [f"{TIMED}: {row} is no session" for row in self._rows if row not in right]
        if self._shape.kind is TimedKind.EVENT_TIMERS:
            expected = fates(self._shape)
            told = [(item, row[0]) for row in self._rows for item in row[1]]
            return [f"{TIMED}: the timer of {i} has {what}" for i, what in told if expected.get(i) != what]
        return []

    def _expired_too_early_or_late(self) -> list[str]:
        if self._clocks_disagree and self._shape.ttl:
            return []
        ttl = round(self._shape.ttl * 1_000_000) or self._shape.span * UNIT
        problems = []
        for what, items, now, number, written, seen in self._rows:
            right = number if number and written + ttl > now else None
            # A sender that drains holds event time back no longer: it goes by the others, who are ahead.
            is_drained = seen is None and not self._is_whole and not self._shape.ttl
            if what != "seen" or (seen != right and not is_drained):
                lived = f"{now - written} of {ttl} microseconds"
                problems.append(f"{TIMED}, {items}: {seen} was seen instead of {right} after {lived}")
        return problems


def sessions(shape: TimedShape) -> list[Row]:
    """All sessions: records of a key less than a gap apart."""
    found: list[Row] = []
    for key in range(shape.keys):
        items = sorted((i for i in shape.items if shape.key_of(i) == key), key=lambda item: item[1])
        session: list[Item] = []
        for item in [*items, (0, 1 << 40)]:
            if session and item[1] - session[-1][1] >= shape.span:
                end = session[-1][1] + shape.span
                found.append(("session", tuple(sorted(session)), key, session[0][1], end))
                session = []
            session.append(item)
    return found


def fates(shape: TimedShape) -> dict[Item, str]:
    """The fate of each record's timer."""
    items = {*shape.items}
    found = {}
    for split, index in shape.items:
        place = index % BLOCK
        is_deleted = place == 0 and (split, index + BLOCK - 1) in items
        found[split, index] = "passed" if place == BLOCK - 1 else "deleted" if is_deleted else "fired"
    return found
