"""`ExternalWorld`: a model of the systems outside a simulated job, such as a broker, a database or a service.

Every run has a copy of its own of the model. All simulated processes of the run share that copy, and it
outlives them. So it must hold everything that the real system would hold, and nothing that a client holds.

The seed of a run determines the fate of each call. A call is answered, is slow, is refused or hangs, or
its answer is lost. A process may die before a call and before its answer. There is one thread. So a slow call
lets the time of the whole world pass, and a call that hangs takes its whole timeout. No call fails after the
faults have stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.ports import Clock
from penstock.runtime.testing.simulation.world.agenda import Draws, Happening
from penstock.runtime.time.durations import Duration, seconds_in

if TYPE_CHECKING:
    from penstock.runtime.testing.simulation.world.world import World

T = TypeVar("T")


class Fate(Enum):
    """The outcome of one call to an external system."""

    ANSWERED = "answered"
    SLOW = "call slow"
    REFUSED = "call refused"
    ANSWER_LOST = "call done, answer lost"
    HANGS = "call hangs, never done"
    HANGS_DONE = "call hangs, done"

    @property
    def is_done(self) -> bool:
        """Whether the call takes effect."""
        return self not in (Fate.REFUSED, Fate.HANGS)


#: Minimum number of calls between two that hang: a client that tries a few times gets an answer.
_BETWEEN_HANGS: Final = 50

#: What can happen to a call, besides an answer.
_FAULTS: Final = tuple(fate for fate in Fate if fate is not Fate.ANSWERED)


@dataclass(frozen=True, slots=True)
class _CallConditions:
    """The conditions of calls in one run.

    Attributes:
        faults: Probability that something happens to a call.
        kinds: What may happen then, all equally likely.
        slowness: Maximum seconds of a slow call.
    """

    faults: float
    kinds: tuple[Fate, ...]
    slowness: float

    @classmethod
    def draw(cls, draws: Draws) -> _CallConditions:
        kinds = tuple(kind for kind in _FAULTS if draws.chance(0.6))
        faults = draws.pick((0.0, 0.02, 0.1, 0.25))
        return cls(faults if kinds else 0.0, kinds, draws.pick((0.01, 0.1, 2.0)))


class WorldContext:
    """Time, chance and faults of one run, for an `ExternalWorld`.

    Attributes:
        clock: The time of the world. The clocks of processes may differ from it.
        draws: Choices that the seed of the run determines.
        happened: Number of faults of each kind, which the report shows.
    """

    def __init__(self, world: World, draws: Draws, *, with_failures: bool) -> None:
        self.clock: Clock = world.clock
        self.draws = draws
        self.happened: Counter[str] = Counter()
        self._world = world
        self._calls = _CallConditions.draw(draws.stream(1))
        self._with_failures = with_failures
        self._away_until = 0.0
        self._may_hang_in = draws.stream(2).below(10)

    @property
    def is_calm(self) -> bool:
        """Whether no fault may occur: in a run without failures, and after the last fault of a run."""
        return self._world.is_calm or not self._with_failures

    def struck(self, fault: str) -> None:
        """Count a fault that has really happened; the errors that follow from it are not bugs."""
        self.happened[fault] += 1
        self._world.external_faults += 1
        self.note("!!", fault)

    def go_away(self, duration: Duration) -> None:
        """Refuse every `call` for a while, at most until the world is calm."""
        self._away_until = self.clock.monotonic() + seconds_in("duration", duration)

    @property
    def is_away(self) -> bool:
        """Whether every `call` is refused now."""
        return not self.is_calm and self.clock.monotonic() < self._away_until

    def note(self, *parts: object) -> None:
        """Write a line of the trace."""
        self._world.trace.note(*parts)

    def after(self, delay: Duration, act: Callable[[], None], what: str) -> None:
        """Do something later in the time of the world, in a move of its own."""
        at = self.clock.monotonic() + seconds_in("delay", delay)
        self._world.agenda.add(Happening.OPERATION, act, what, at=at)

    def spend(self, duration: Duration) -> None:
        """Let time pass within a call."""
        self._world.clock.advance(seconds_in("duration", duration))

    def in_thread(self, act: Callable[[], None], what: str, *, after: Duration = 0.0) -> None:
        """Run `act` in another thread of the calling process, in a move of its own.

        If the process dies before this move, `act` never runs. In a JobMaster, and outside of a simulation,
        `act` runs at once.
        """
        thread, delay = self._world.thread, seconds_in("after", after)
        if thread is None:
            act()
            return
        at = None if not delay else self.clock.monotonic() + delay
        self._world.agenda.add(Happening.WORK, lambda: thread(act, what), what, at=at)

    def reached(self) -> None:
        """Mark a place between two effects, at which the calling process may die."""
        self._world.before_effect()

    def fate(self) -> Fate:
        """Draw what happens to one call. The caller makes it happen, and counts it with `struck`."""
        calls = self._calls
        self._may_hang_in -= 1
        if self.is_away:
            return Fate.REFUSED
        if self.is_calm or not calls.faults or not self.draws.chance(calls.faults):
            return Fate.ANSWERED
        fate = self.draws.pick(calls.kinds)
        if fate in (Fate.HANGS, Fate.HANGS_DONE):
            if self._may_hang_in > 0:
                return Fate.ANSWERED
            self._may_hang_in = _BETWEEN_HANGS
        return fate

    def slowness(self) -> float:
        """Draw the seconds of a slow call."""
        return self.draws.real(0.0, self._calls.slowness)

    def call(self, effect: Callable[[], T], *, timeout: Duration = 30.0) -> T:
        """Make a call; the seed says whether `effect` happens, and what the caller sees.

        Args:
            timeout: Time after which the client gives up.

        Raises:
            ConnectionRefusedError: The call was refused and had no effect.
            ConnectionResetError: The call had its effect, and the answer is lost.
            TimeoutError: There was no answer in time; the call may have had its effect.
        """
        longest = seconds_in("timeout", timeout)
        self.reached()
        fate = self.fate()
        if fate is not Fate.ANSWERED:
            self.struck(fate.value)
        if fate is Fate.REFUSED:
            msg = "simulated: the call is refused"
            raise ConnectionRefusedError(msg)
        if fate is Fate.SLOW:
            self.spend(min(self.slowness(), longest))
        if not fate.is_done:
            self._give_up(longest)
        answer = effect()
        self.reached()
        if fate is Fate.ANSWER_LOST:
            msg = "simulated: the connection is lost before the answer"
            raise ConnectionResetError(msg)
        if fate is Fate.HANGS_DONE:
            self._give_up(longest)
        return answer

    def _give_up(self, timeout: float) -> None:
        self.spend(timeout)
        msg = f"simulated: no answer within {timeout:g} s"
        raise TimeoutError(msg)


class ExternalWorld:
    """Base class of models of external systems, for `simulate(build, world=...)`.

    `simulate` copies the given model for each run (`copy.deepcopy`). `build` and `output` get that copy. The
    methods that your connector calls should wrap their effects in `self.run.call`.

    Attributes:
        faults: Names that `simulate(faults=...)` takes in addition to its own; `strike` makes them happen.
        run: Time, chance and faults of the run; set by `begin`.

    Example:
        >>> class Table(ExternalWorld):
        ...     def __init__(self):
        ...         self.rows = {}
        ...
        ...     def upsert(self, key, row):
        ...         self.run.call(lambda: self.rows.update({key: row}), timeout=5.0)
        >>> Table().faults
        ()
    """

    faults: ClassVar[Collection[str]] = ()
    run: WorldContext

    def begin(self, run: WorldContext) -> None:
        """Begin a run. `simulate` calls this before `build`, on a new copy."""
        self.run = run

    def strike(self, fault: str) -> None:
        """Make a named fault happen, and count it with `run.struck`; never called in a calm world."""
        msg = f"{type(self).__name__} names the fault {fault!r} but has no strike() for it"
        raise NotImplementedError(msg)

    def calm_down(self) -> None:
        """End all faults that last: from now on every call is answered."""

    def explains(self, cause: str) -> bool:
        """Whether a job may fail with this cause, because the world has really lost something.

        The output of such a run is not compared.
        """
        return False

    def has_been_read(self) -> bool:
        """Whether a completed checkpoint of the job covers all records that this world has and will get.

        Once this returns true, `simulate(stop=...)` stops a job whose sources have no end.
        """
        msg = f"simulate(stop=...) needs has_been_read() of {type(self).__name__}, which says when to stop"
        raise ConfigurationError(msg)

    def end(self) -> None:
        """Release what `begin` acquired; called once, after `output`."""
