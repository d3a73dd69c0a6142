"""The draws of a seed, the clocks of all processes, and the agenda of what may happen next.

In half of the runs all processes share the clock of the world. In the others each process has its own clock:
one clock runs faster than another, and their wall clocks differ. A fault may set a wall clock forward or back
by up to an hour. Monotonic time never jumps.

A *happening* is the smallest unit of a run: one step of a subtask, one arriving frame, one returned credit,
one background task. Some happenings can't happen before a given time. Among the due happenings, the agenda
first draws a kind, by weight and number, and then a happening of this kind. So one seed may starve the
network, hold credits back, or delay uploads for a long time, and another seed does the opposite. An orderly
agenda takes the oldest happening of a kind first. The higher its disorder, the more often it takes another
happening.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, count
from typing import Final, NamedTuple, TypeVar

import numpy as np

from penstock.runtime.state.stable_hash import MASK64, mix64, mix64_array
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.time.durations import Duration, as_seconds

#: Count of numbers that are generated one by one at the beginning of a stream; many streams are short.
_SINGLE: Final = 16
#: Size of the block that follows; a number in a block costs a tenth of a number that is made alone.
_BLOCK: Final = 256
#: Size of the later blocks of a long stream; they halve the cost of a number.
_LARGE_BLOCK: Final = 2048

_OFFSETS: Final = np.arange(_LARGE_BLOCK, dtype=np.uint64)


def _numbers_of(seed: int) -> Callable[[], int]:
    """Return a function that generates the 64-bit numbers of a seed (SplitMix64)."""
    first = mix64(seed)
    end = first + _SINGLE
    singles, blocks = map(mix64, range(first, end)), chain.from_iterable(_blocks(end))
    return chain(singles, blocks).__next__


def _blocks(first: int) -> Iterator[list[int]]:
    yield _block(first, _BLOCK)
    for following in count(first + _BLOCK, _LARGE_BLOCK):
        yield _block(following, _LARGE_BLOCK)


def _block(first: int, size: int) -> list[int]:
    numbers: list[int] = mix64_array(_OFFSETS[:size] + np.uint64(first & MASK64)).tolist()
    return numbers


T = TypeVar("T")

_FINE: Final = 1 << 30


class Draws:
    """A stream of choices; the same seed gives the same choices.

    Example:
        >>> draws = Draws(7)
        >>> [draws.between(1, 5) for _ in range(6)]
        [2, 3, 3, 3, 4, 2]
    """

    __slots__ = ("_next", "_seed", "below")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._next = number = _numbers_of(seed)
        #: Chooses one of this many possibilities, counted from 0.
        self.below: Callable[[int], int] = lambda possibilities: number() % possibilities

    def between(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        return self._next() % _FINE < probability * _FINE

    def real(self, low: float, high: float) -> float:
        return low + (high - low) * (self._next() % _FINE) / _FINE

    def pick(self, possibilities: Sequence[T]) -> T:
        return possibilities[self.below(len(possibilities))]

    def stream(self, number: int) -> Draws:
        """Another stream; its choices don't depend on the number of draws from this stream."""
        return Draws(mix64(self._seed ^ mix64(number + 1)))


#: Rounding must not let a timer fire before its time.
_TINY = 1e-9


class LocalClock(ManualClock):
    """The clock of one process.

    Args:
        rate: Seconds of this clock per second of the world's clock.
        ahead: Seconds by which its wall clock is ahead.

    Example:
        >>> world = ManualClock(start=100.0)
        >>> slow = LocalClock(world, rate=0.5)
        >>> world.advance(10.0)
        >>> slow.monotonic(), slow.now(), round(slow.in_world(6.0), 3)
        (5.0, 105.0, 12.0)
    """

    def __init__(self, world: ManualClock, rate: float = 1.0, ahead: float = 0.0) -> None:
        super().__init__()
        self._world = world
        self._rate = rate
        self._begun = world.monotonic()
        self._ahead = ahead + world.now() - self.monotonic()

    def now(self) -> float:
        return self._ahead + self.monotonic()

    def monotonic(self) -> float:
        return (self._world.monotonic() - self._begun) * self._rate

    def advance(self, duration: Duration) -> None:
        self._world.advance(as_seconds(duration) / self._rate)

    def advance_to(self, monotonic: float) -> None:
        self._world.advance_to(self.in_world(monotonic))

    def set_wall_clock(self, now: float) -> None:
        self._ahead = now - self.monotonic()

    def in_world(self, monotonic: float) -> float:
        """Time of the world's clock when this clock shows `monotonic`."""
        return self._begun + monotonic / self._rate + _TINY


#: Maximum initial error of a wall clock in seconds. After a restore a processing-time timer may wait twice as
#: long. In a much longer wait, checkpoints every few milliseconds would use up the moves of the job.
_WRONG: Final = 6.0


class Clocks:
    """Makes the clocks of processes, with rates that err by up to `drift`; 0 for one shared clock."""

    def __init__(self, world: ManualClock, draws: Draws, drift: float) -> None:
        self._world = world
        self._draws = draws
        self._drift = drift
        self._made: list[LocalClock] = []

    @property
    def differ(self) -> bool:
        return self._drift > 0.0

    def new(self) -> ManualClock:
        if not self.differ:
            return self._world
        draws = self._draws
        rate = 1.0 + draws.real(-self._drift, self._drift)
        clock = LocalClock(self._world, rate, draws.pick((0.0, draws.real(-_WRONG, _WRONG))))
        self._made.append(clock)
        return clock

    def in_world(self, clock: ManualClock, monotonic: float) -> float:
        return clock.in_world(monotonic) if isinstance(clock, LocalClock) else monotonic

    def set_wall_clocks(self, by: float) -> None:
        """Set the wall clock of one process, or the shared one."""
        clock = self._draws.pick(self._made) if self._made else self._world
        clock.set_wall_clock(clock.now() + by)


#: Maximum number of ready happenings of a kind that count towards its probability.
_CROWD: Final = 8


class Happening(IntEnum):
    STEP = 0
    FRAME = 1
    CREDIT = 2
    MESSAGE = 3
    REPORT = 4
    WORK = 5
    OPERATION = 6
    TIMER = 7


class Entry(NamedTuple):
    what: tuple[object, ...]
    act: Callable[[], None]


class Agenda:
    """Holds the possible happenings; see the module's docstring.

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
        """Add a happening that can't happen before the monotonic time `at`; `None` means now."""
        entry = Entry(what, act)
        if at is None:
            self._ready[kind].append(entry)
        else:
            heapq.heappush(self._later, (at, next(self._numbers), kind, entry))

    @property
    def next_time(self) -> float | None:
        """Time of the next happening that is not yet due."""
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
        """Remove and return the next happening; `None` when nothing can happen yet."""
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
        """The number of happenings of each kind, including those whose time has not come."""
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


#: Weights of the kinds in a calm world.
CALM: Final[Mapping[Happening, int]] = dict.fromkeys(Happening, 4)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a run until the world calms down.

    Attributes:
        weights: Weight of each kind of happening.
        disorder: Probability that a random happening of a kind is taken instead of the oldest one.
        tick: Maximum seconds of a move.
        latency: Maximum delay of a frame or a message, in seconds.
        repeats: Probability that a frame or a report arrives twice, or that a control message or its answer
            is lost.
        stragglers: Probability that a report is delayed by up to a second.
        slow_channels: Probability that a channel is slow.
        slowness: Maximum extra delay of a frame on a slow channel, in seconds.
        lasts: Moves until the faults stop.
        clock_drift: Maximum relative error of a process's clock.
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


def draw_conditions(draws: Draws) -> Conditions:
    weights = {kind: draws.pick((1, 4, 4, 4, 16)) for kind in Happening}
    return Conditions(
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
