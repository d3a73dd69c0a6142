"""`Agenda`: everything that may happen next, and which of it does.

A *happening* is the smallest thing that is told apart: one frame arrives, one credit comes back, one message
is taken, one piece of background work is done. Each has a time before which it can't happen. Of those whose
time has come the draws choose: first a kind, by weight, then one of that kind. So a seed may starve the
network, hold credits back, or let uploads take for ever, and another one does the opposite.

In an orderly agenda the oldest of a kind goes first; the less orderly, the more often it is any other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import count

from penstock.runtime.testing.simulation.draws import Draws


class Happening(Enum):
    """The kinds of happenings."""

    STEP = "step"
    FRAME = "frame"
    CREDIT = "credit"
    MESSAGE = "message"
    REPORT = "report"
    WORK = "work"
    OPERATION = "operation"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing on the agenda.

    Attributes:
        what: For the trace.
        act: Makes it happen.
    """

    what: tuple[object, ...]
    act: Callable[[], None]


class Agenda:
    """Holds what may happen; see the module's text.

    Args:
        draws: Chooses.
        weights: How readily each kind happens.
        disorder: Probability with which it is not the oldest of its kind.
    """

    def __init__(self, draws: Draws, weights: Mapping[Happening, int], disorder: float) -> None:
        self._draws = draws
        self._weights = weights
        self._disorder = disorder
        self._ready: dict[Happening, list[Entry]] = {kind: [] for kind in Happening}
        self._later: list[tuple[float, int, Happening, Entry]] = []
        self._numbers = count()

    def add(self, kind: Happening, act: Callable[[], None], *what: object, at: float | None = None) -> None:
        """Let something happen.

        Args:
            kind: Its kind.
            act: Makes it happen.
            what: Describes it.
            at: Monotonic time before which it does not; at once when left out.
        """
        entry = Entry(what, act)
        if at is None:
            self._ready[kind].append(entry)
        else:
            heapq.heappush(self._later, (at, next(self._numbers), kind, entry))

    def promote(self, now: float) -> None:
        """Time has passed."""
        later = self._later
        while later and later[0][0] <= now:
            _, _, kind, entry = heapq.heappop(later)
            self._ready[kind].append(entry)

    @property
    def next_time(self) -> float | None:
        """When the next thing may happen that can't happen yet."""
        return self._later[0][0] if self._later else None

    def calm_down(self, weights: Mapping[Happening, int]) -> None:
        """From now on everything goes its orderly way: what was held back comes at once."""
        self._weights = weights
        self._disorder = 0.0
        if self._later:
            self.promote(self._later[-1][0])
            self.promote(max(entry[0] for entry in self._later) if self._later else 0.0)

    def choose_kind(self, others: Mapping[Happening, int]) -> Happening | None:
        """The kind of the next happening; `None` when nothing is ready.

        Args:
            others: How many happenings of further kinds are ready elsewhere.
        """
        weighed = []
        total = 0
        for kind, entries in self._ready.items():
            ready = len(entries) or others.get(kind, 0)
            if ready:
                total += self._weights[kind] * min(ready, 8)
                weighed.append((total, kind))
        if not weighed:
            return None
        drawn = self._draws.below(total)
        return next(kind for limit, kind in weighed if drawn < limit)

    def take(self, kind: Happening) -> Entry:
        """The next happening of a kind."""
        return self._ready[kind].pop(self.position(len(self._ready[kind])))

    def position(self, possibilities: int) -> int:
        """The oldest one, or any one."""
        if possibilities == 1 or not self._draws.chance(self._disorder):
            return 0
        return self._draws.below(possibilities)

    def waiting(self) -> Mapping[Happening, int]:
        """How many of each kind there are, also those whose time has not come."""
        counts = {kind: len(entries) for kind, entries in self._ready.items()}
        for _, _, kind, _ in self._later:
            counts[kind] += 1
        return {kind: number for kind, number in counts.items() if number}
