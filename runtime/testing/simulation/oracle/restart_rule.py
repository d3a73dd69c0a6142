"""Whether a job has restarted as often as its user allows, and has given up when it had to.

The check knows the settings, and when the simulation saw attempts being deployed and stopped. It does not ask
the job's own counters. Nor does it count the attempts in the log: a JobMaster that gets no answer from the
storage begins another one, and neither may run. A rescale is deployed, too, and is no restart. How many
rescales took effect is known as an upper bound only: a JobMaster may die between its answer and the attempt.
So is the age that a job has for its own clock, when several JobMasters have counted it. A bound that is not
certain is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.runtime.config.restart import (
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartConfig,
)
from penstock.runtime.testing.simulation.cluster.restarts import RestartLedger

#: The beginnings of what a job says that gives up by its rule.
_BY_RULE = ("it may not restart", "it has used its", "it has restarted", "it has failed")


#: What a JobMaster says that finds the end in the log: the one that knew the reason has died.
ENDED_BEFORE: Final = "it had ended before"


def is_by_rule(reason: str) -> bool:
    """Whether a job says that it gives up because its user allows no more restarts.

    Example:
        >>> is_by_rule("it has used its 3 restarts"), is_by_rule("it would fail again")
        (True, False)
    """
    return reason.startswith(_BY_RULE)


@dataclass(frozen=True, slots=True)
class UsedRestarts:
    """How a job has restarted.

    Attributes:
        rule: What its user allows.
        rescales: Most of its deployments that may have been rescales.
        ledger: When attempts were deployed and stopped.
        failures: When something failed, in wall-clock seconds; also what failed before an attempt began.
        clocks_agree: Whether these times can be compared.
        drift: By which share of itself a second of the JobMaster may be wrong.
    """

    rule: RestartConfig
    rescales: int
    ledger: RestartLedger
    failures: tuple[float, ...] = ()
    clocks_agree: bool = True
    drift: float = 0.0

    def problems_of_the_end(self, reason: str) -> list[str]:
        """Why a job should not have failed that gives this reason.

        Example:
            >>> used = UsedRestarts(FixedDelay(attempts=3), 0, RestartLedger(), (1.0, 2.0, 3.0, 4.0))
            >>> used.problems_of_the_end("it has used its 3 restarts")
            []
        """
        if reason != ENDED_BEFORE and not is_by_rule(reason):
            return [f"the job has failed, and not by its restart strategy: {reason}"]
        limit = self._limit
        if isinstance(self.rule, FailureRate):
            return self._too_early(self.rule)
        if limit is None:
            return [f"it has given up ({reason}) although {self.rule} has no limit"]
        if self._failed < limit + 1:
            return [f"it has given up ({reason}) after {self._failed} failures, with {self.rule}"]
        return []

    def problems(self) -> list[str]:
        """Where it has restarted although it should have failed."""
        limit, used = self._limit, len(self.ledger.deployed) - 1 - self.rescales
        if limit is not None and used > limit:
            return [f"it has restarted {used} times, with {self.rule}"]
        return self._too_often(self.rule) if isinstance(self.rule, FailureRate) else []

    @property
    def _limit(self) -> int | None:
        match self.rule:
            case NoRestart():
                return 0
            case FixedDelay(attempts=attempts) | ExponentialBackoff(attempts=attempts):
                return attempts
            case FailureRate():
                return None

    @property
    def _failed(self) -> int:
        """How often something failed; the end of a JobMaster is a failure, too."""
        return len(self.failures) + max(0, self.ledger.masters - 1)

    def _too_early(self, rule: FailureRate) -> list[str]:
        borne = rule.failures
        if self._failed <= borne:
            return [f"it has given up after {self._failed} failures, with {rule}"]
        if self.ledger.masters > 1 or not self.clocks_agree:
            return []
        since = self.failures[-1] - self.failures[-borne]
        if since > _seconds(rule.interval):
            return [f"it has given up although {borne} failures have taken {since:g} s, with {rule}"]
        return []

    def _too_often(self, rule: FailureRate) -> list[str]:
        ledger, borne = self.ledger, rule.failures
        if ledger.masters > 1 or self.rescales:
            return []
        for first in range(1, len(ledger.deployed) - borne):
            took = ledger.deployed[first + borne] - ledger.stopped[first]
            if took < _seconds(rule.interval) * (1 - 3 * self.drift):
                return [f"it has restarted {borne + 1} times within {took:g} s, with {rule}"]
        return []


def _seconds(duration: object) -> float:
    assert isinstance(duration, float), "a setting is in seconds once it was checked"
    return duration
