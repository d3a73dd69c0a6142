"""`Agenda`: everything that may happen next, and the choice among it under the run's conditions (`Weather`).

A *happening* is the smallest unit of a run: one step of a subtask, one arriving frame, one returned credit,
one background task. Some can't happen before a given time. Among those that are due, the agenda draws first a
kind, by weight, then one of that kind. So one seed may starve the network, hold credits back, or delay
uploads for ever, and another does the opposite. An orderly agenda takes the oldest of a kind first. The
higher its disorder, the more often it takes another one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from typing import Final, NamedTuple

from penstock.runtime.testing.simulation.world.draws import Draws

#: Maximum ready happenings of a kind that count towards its probability.
_CROWD: Final = 8


class Happening(IntEnum):
    """The kinds of happenings."""

    STEP = 0
    FRAME = 1
    CREDIT = 2
    MESSAGE = 3
    REPORT = 4
    WORK = 5
    OPERATION = 6
    TIMER = 7


class Entry(NamedTuple):
    """One thing on the agenda."""

    what: tuple[object, ...]
    act: Callable[[], None]


class Agenda:
    """Holds the possible happenings; see the module's text.

    Args:
        disorder: Probability of taking another happening than the oldest of its kind.

    Example:
        >>> agenda = Agenda(Draws(1), dict.fromkeys(Happening, 1), disorder=0.0)
        >>> agenda.add(Happening.STEP, lambda: None, "later", at=5.0)
        >>> agenda.take(now=0.0) is None, agenda.next_time
        (True, 5.0)
        >>> agenda.take(now=5.0).what
        ('later',)
    """

    def __init__(self, draws: Draws, weights: Mapping[Happening, int], disorder: float) -> None:
        self._draws = draws
        self._disorder = disorder
        self._ready: list[list[Entry]] = [[] for _ in Happening]
        self.set_weights(weights)
        self._later: list[tuple[float, int, Happening, Entry]] = []
        #: Cumulative weights of the kinds that have a ready happening, for the choice of a kind.
        self._ends: list[tuple[int, list[Entry]]] = []
        self._numbers = count()

    def add(self, kind: Happening, act: Callable[[], None], *what: object, at: float | None = None) -> None:
        """Add a happening.

        Args:
            at: Monotonic time before which it can't happen; at once when omitted.
        """
        entry = Entry(what, act)
        if at is None:
            self._ready[kind].append(entry)
        else:
            heapq.heappush(self._later, (at, next(self._numbers), kind, entry))

    @property
    def next_time(self) -> float | None:
        """Time of the next event that can't happen yet."""
        return self._later[0][0] if self._later else None

    def has_ready(self, now: float) -> bool:
        return any(self._ready) or bool(self._later and self._later[0][0] <= now)

    def set_weights(self, weights: Mapping[Happening, int]) -> None:
        """Set the weights of the kinds; a kind of weight 0 waits for all others."""
        #: Ready happenings of each kind, with the kind's weight.
        self._queues = [(self._ready[kind], weights[kind]) for kind in Happening]

    def calm_down(self, weights: Mapping[Happening, int]) -> None:
        self.set_weights(weights)
        self._disorder = 0.0

    def take(self, now: float) -> Entry | None:
        """The next happening; `None` when nothing can happen yet."""
        later = self._later
        while later and later[0][0] <= now:
            _, _, kind, entry = heapq.heappop(later)
            self._ready[kind].append(entry)
        queue = self._choose_queue()
        if queue is None:
            return None
        waiting = len(queue)
        if waiting == 1 or not self._draws.chance(self._disorder):
            return queue.pop(0)
        return queue.pop(self._draws.below(waiting))

    def waiting(self) -> dict[str, int]:
        """The number of events of each kind, also those whose time has not come."""
        counts = [len(entries) for entries in self._ready]
        for _, _, kind, _ in self._later:
            counts[kind] += 1
        return {kind.name.lower(): counts[kind] for kind in Happening if counts[kind]}

    def _choose_queue(self) -> list[Entry] | None:
        total, ends = 0, self._ends
        ends.clear()
        for queue, weight in self._queues:
            if queue:
                waiting = len(queue)
                total += weight * (waiting if waiting < _CROWD else _CROWD)
                ends.append((total, queue))
        if len(ends) < 2:
            return ends[0][1] if ends else None
        drawn = self._draws.below(total)
        position = 0
        while drawn >= ends[position][0]:
            position += 1
        return ends[position][1]


#: Weights of an orderly world.
CALM: Final[Mapping[Happening, int]] = dict.fromkeys(Happening, 4)


@dataclass(frozen=True, slots=True)
class Weather:
    """The state of the world until it calms down.

    Attributes:
        disorder: Probability of taking another happening than the oldest of its kind.
        tick: Maximum seconds of a move.
        latency: Maximum delay of a frame or a message, in seconds.
        repeats: Probability with which a frame or a message arrives twice.
        slowness: Maximum extra delay of a frame on a slow channel, in seconds.
        lasts: Moves until the faults stop.
        clock_drift: Maximum relative difference between the clocks of two processes.
    """

    weights: Mapping[Happening, int]
    disorder: float
    tick: float
    latency: float
    repeats: float
    stragglers: float
    slow_channels: float
    slowness: float
    seconds_per_record: float
    lasts: int
    clock_drift: float = 0.0


def draw_weather(draws: Draws) -> Weather:
    weights = {kind: draws.pick((1, 4, 4, 4, 16)) for kind in Happening}
    return Weather(
        weights=weights,
        disorder=draws.pick((0.0, 0.1, 0.5, 1.0)),
        tick=draws.pick((0.00005, 0.0005, 0.001)),
        latency=draws.pick((0.0, 0.0, 0.001, 0.01)),
        repeats=draws.pick((0.0, 0.02, 0.2)),
        stragglers=draws.pick((0.0, 0.0, 0.05, 0.2)),
        slow_channels=draws.pick((0.0, 0.0, 0.1, 0.5)),
        slowness=draws.pick((0.005, 0.05)),
        seconds_per_record=draws.pick((0.0, 0.0, 0.0, 0.001, 0.01)),
        lasts=draws.pick((400, 1500, 1500, 3000)),
        clock_drift=draws.pick((0.0, 0.0, 0.0, 0.0001, 0.05, 0.3)),
    )
