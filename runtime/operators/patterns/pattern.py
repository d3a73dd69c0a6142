"""`Pattern`: the user's description of steps that records of a key match one after another.

Terms and rules are those of Flink's CEP. Each method returns a new pattern. `matcher.py` finds the records
that match.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Generic, Literal, NoReturn, TypeAlias, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.names import checked_keywords, checked_name, nearest_name
from penstock.runtime.operators.patterns.step import Contiguity, Step, leaves
from penstock.runtime.time.durations import Duration, micros_in

T = TypeVar("T")

#: A function of a record, or of a record and the records that the partial match has so far.
Condition: TypeAlias = Callable[[T], object] | Callable[[T, dict[str, list[T]]], object]


class SkipKind(Enum):
    """Kinds of `AfterMatchSkipStrategy`; the value is the name of the method that makes the strategy."""

    NO_SKIP = "no_skip"
    TO_NEXT = "skip_to_next"
    PAST_LAST_EVENT = "skip_past_last_event"
    TO_FIRST = "skip_to_first"
    TO_LAST = "skip_to_last"


@dataclass(frozen=True, slots=True)
class AfterMatchSkipStrategy:
    """Partial matches that are discarded when a match is emitted (Flink's `AfterMatchSkipStrategy`).

    Example:
        >>> AfterMatchSkipStrategy.skip_to_last("b")
        AfterMatchSkipStrategy.skip_to_last('b')
    """

    kind: SkipKind = SkipKind.NO_SKIP
    step: str | None = None

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Emit every possible match."""
        return AfterMatchSkipStrategy()

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Discard partial matches that began with the same record as the match."""
        return AfterMatchSkipStrategy(SkipKind.TO_NEXT)

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Discard partial matches that began with or before the last record of the match."""
        return AfterMatchSkipStrategy(SkipKind.PAST_LAST_EVENT)

    @staticmethod
    def skip_to_first(step: str) -> AfterMatchSkipStrategy:
        """Discard partial matches that began before the match's first record of a step.

        If the match has no record of the step, nothing is discarded.
        """
        return AfterMatchSkipStrategy(SkipKind.TO_FIRST, step)

    @staticmethod
    def skip_to_last(step: str) -> AfterMatchSkipStrategy:
        """Discard partial matches that began before the match's last record of a step.

        If the match has no record of the step, nothing is discarded.
        """
        return AfterMatchSkipStrategy(SkipKind.TO_LAST, step)

    def __repr__(self) -> str:
        of_step = "" if self.step is None else repr(self.step)
        return f"AfterMatchSkipStrategy.{self.kind.value}({of_step})"


def any_record(record: object) -> bool:
    return True


_NO_NEGATIVE: Final = "a negative step takes no quantifier: it says that no record matches"


@dataclass(frozen=True, slots=True)
class Pattern(Generic[T]):
    """Steps that records of one key match one after another, in time order.

    Begin with `Pattern.begin`, add steps, and give the pattern to `KeyedStream.pattern`. `next` requires that
    records follow each other directly. `followed_by` skips records that do not match. `followed_by_any` also
    skips records that match, so each of these records leads to a separate match. `not_next` and
    `not_followed_by` add steps that no record may match. All other methods change the last step, or the whole
    pattern.

    A condition `where` takes a record. It may have a second parameter: the partial match so far, a dict from
    the name of each step to the list of its records.

    Example:
        >>> from penstock.testing import OperatorHarness
        >>> risen = (
        ...     Pattern.begin("low", where=lambda price: price < 10)
        ...     .followed_by("high", where=lambda price, match: price > 2 * match["low"][0])
        ...     .within(60)
        ... )
        >>> def found(prices):
        ...     return prices.key_by(lambda price: 0).pattern(risen).select("risen", dict)
        >>> with OperatorHarness.of(found) as harness:
        ...     pushed = harness.push([19, 8, 20], timestamps=[3, 1, 2])
        ...     harness.push_watermark(5)
        [{'low': [8], 'high': [20]}]
    """

    steps: tuple[Step, ...]
    skip: AfterMatchSkipStrategy = field(default_factory=AfterMatchSkipStrategy)
    #: Limit of the time from a match's first to its last record, in microseconds, exclusive; `None` for none.
    limit: int | None = None

    @staticmethod
    @checked_keywords
    def begin(
        step: str | Pattern[T],
        where: Condition[T] | None = None,
        *,
        skip: AfterMatchSkipStrategy | None = None,
    ) -> Pattern[T]:
        """Begin a pattern with its first step.

        Args:
            step: Name of the step; matches have its records under this name. A pattern instead of a name is
                a group: methods such as `times` repeat all its steps.
            where: Condition of the step's records; by default any record matches.
            skip: Strategy for partial matches that a match discards; by default it discards none.

        Raises:
            ConfigurationError: An argument is invalid. The other methods raise this error, too.
        """
        if skip is not None and not isinstance(skip, AfterMatchSkipStrategy):
            _refuse("begin", f"skip= is an AfterMatchSkipStrategy, not {skip!r:.80}")
        empty: Pattern[T] = Pattern((), skip or AfterMatchSkipStrategy())
        return empty._with_step("begin", step, where, Contiguity.RELAXED)

    @checked_keywords
    def next(self, step: str | Pattern[T], where: Condition[T] | None = None) -> Pattern[T]:
        """Add a step or a group whose record directly follows the previous record."""
        return self._with_step("next", step, where, Contiguity.STRICT)

    @checked_keywords
    def followed_by(self, step: str | Pattern[T], where: Condition[T] | None = None) -> Pattern[T]:
        """Add a step or a group; records that do not match it may occur in between."""
        return self._with_step("followed_by", step, where, Contiguity.RELAXED)

    @checked_keywords
    def followed_by_any(self, step: str | Pattern[T], where: Condition[T] | None = None) -> Pattern[T]:
        """Add a step or a group that any records may precede.

        So each matching record leads to a separate match.
        """
        return self._with_step("followed_by_any", step, where, Contiguity.ANY)

    @checked_keywords
    def not_next(self, step: str, where: Condition[T] | None = None) -> Pattern[T]:
        """Add a negative step: a match is discarded if the record that directly follows matches the step.

        At the end of a pattern, the match is complete when a record follows that does not match.
        """
        return self._with_step("not_next", step, where, Contiguity.STRICT, is_negative=True)

    @checked_keywords
    def not_followed_by(self, step: str, where: Condition[T] | None = None) -> Pattern[T]:
        """Add a negative step: a match is discarded if any record before the next step's record matches.

        At the end of a pattern, the match is complete when its time limit is over, so `within` is required.
        """
        return self._with_step("not_followed_by", step, where, Contiguity.RELAXED, is_negative=True)

    @checked_keywords
    def times(self, at_least: int, at_most: int | None = None) -> Pattern[T]:
        """Let the last step take several records.

        Args:
            at_least: Minimum number of records; 0 makes the step optional.
            at_most: Maximum number of records; by default `at_least`.
        """
        most = at_least if at_most is None else at_most
        for number in (at_least, most):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                _refuse("times", f"give a whole number of at least 0, not {number!r:.80}")
        if most < max(at_least, 1):
            _refuse("times", f"at_most must be at least {max(at_least, 1)}, not {most}")
        step = self._unquantified("times")
        is_optional = step.is_optional or at_least == 0
        return self._with(replace(step, at_least=max(at_least, 1), at_most=most, is_optional=is_optional))

    @checked_keywords
    def times_or_more(self, at_least: int) -> Pattern[T]:
        """Let the last step take at least this number of records; limit it with `until` or `within`."""
        if isinstance(at_least, bool) or not isinstance(at_least, int) or at_least < 1:
            _refuse("times_or_more", f"give a whole number of at least 1, not {at_least!r:.80}")
        return self._with(replace(self._unquantified("times_or_more"), at_least=at_least, at_most=None))

    def one_or_more(self) -> Pattern[T]:
        """Let the last step take at least one record; limit it with `until` or `within`."""
        return self._with(replace(self._unquantified("one_or_more"), at_most=None))

    def optional(self) -> Pattern[T]:
        """Make the last step optional: a match may have no record of it."""
        step = self._positive("optional")
        return self._with(replace(step, is_optional=True))

    def greedy(self) -> Pattern[T]:
        """Let the last step take as many records as possible.

        No later step takes or skips a record that this step can take.
        """
        step = self._quantified("greedy")
        self._check_no_group("greedy")
        if step.inner is Contiguity.ANY:
            _refuse("greedy", f"step {step.name!r} allows combinations, so it can't be greedy")
        return self._with(replace(step, is_greedy=True))

    def consecutive(self) -> Pattern[T]:
        """Require that the records of the last step follow each other directly."""
        return self._with_inner("consecutive", Contiguity.STRICT)

    def allow_combinations(self) -> Pattern[T]:
        """Allow any records between the records of the last step, including records that match it."""
        step = self._quantified("allow_combinations")
        if step.is_greedy:
            _refuse("allow_combinations", f"step {step.name!r} is greedy, so it can't allow combinations")
        return self._with_inner("allow_combinations", Contiguity.ANY)

    @checked_keywords
    def until(self, condition: Condition[T]) -> Pattern[T]:
        """End the last step at a record that meets a condition: it takes neither this nor a later record."""
        step = self._quantified("until")
        self._check_no_group("until")
        if step.at_most is not None:
            _refuse("until", f"step {step.name!r} has a maximum; until is for one_or_more or times_or_more")
        if step.until is not None:
            _refuse("until", f"step {step.name!r} already has an until condition")
        return self._with(replace(step, until=_checked_condition("until", condition)))

    @checked_keywords
    def within(self, duration: Duration, since: Literal["first", "previous"] = "first") -> Pattern[T]:
        """Set a time limit for matches; a partial match that exceeds it times out.

        The limit is exclusive: a record at exactly the limit is too late.

        Args:
            duration: A `timedelta`, or seconds of event time.
            since: `"first"` limits the time from the first to the last record of a match, at whichever step
                `within` is called. The smallest of several limits applies. `"previous"` limits the time
                between a record of the last step and the record before it in the match. If the last step is
                negative, it must then end the pattern, and no record may match it until the limit.
        """
        micros = micros_in("duration", duration)
        if since == "first":
            return replace(self, limit=micros if self.limit is None else min(micros, self.limit))
        if since != "previous":
            _refuse("within", f'since= is "first" or "previous", not {since!r:.80}')
        self._check_no_group("within")
        gap = self.steps[-1].gap
        return self._with(replace(self.steps[-1], gap=micros if gap is None else min(micros, gap)))

    def checked(self) -> Pattern[T]:
        """Return the pattern itself; refuse an incomplete pattern.

        Raises:
            ConfigurationError: The pattern ends with `not_followed_by` and has no time limit, or its skip
                strategy names a step that the pattern does not have.
        """
        last = self.steps[-1]
        has_limit = self.limit is not None or last.gap is not None
        if last.is_negative and last.contiguity is not Contiguity.STRICT and not has_limit:
            msg = (
                f"the pattern ends with not_followed_by({last.name!r}), so nothing says when a match is "
                "complete: add within(duration)"
            )
            raise ConfigurationError(msg)
        names = [step.name for step in leaves(self.steps) if not step.is_negative]
        wanted = self.skip.step
        if wanted is not None and wanted not in names:
            msg = f"{self.skip!r}: the pattern has no step {wanted!r}{nearest_name(wanted, names)}"
            raise ConfigurationError(msg)
        return self

    def _with_step(
        self, call: str, step: object, where: object, contiguity: Contiguity, *, is_negative: bool = False
    ) -> Pattern[T]:
        if isinstance(step, Pattern) and not is_negative:
            added, limit = self._group(call, step, where, contiguity), step.limit
        else:
            condition = any_record if where is None else _checked_condition(call, where)
            name, limit = checked_name(f"Pattern.{call}", step), None
            added = Step(name, condition, contiguity, is_negative)
        known = {leaf.name for leaf in leaves(self.steps)}
        for leaf in leaves((added,)):
            if leaf.name in known:
                _refuse(call, f"the pattern already has a step {leaf.name!r}; each needs a name of its own")
        if is_negative:
            self._check_negative(call)
        else:
            self._check_gaps(call)
        limits = [known_limit for known_limit in (self.limit, limit) if known_limit is not None]
        return replace(self, steps=(*self.steps, added), limit=min(limits, default=None))

    def _group(self, call: str, group: Pattern[Any], where: object, contiguity: Contiguity) -> Step:
        if where is not None:
            _refuse(call, "a group takes no condition: its steps have their own")
        if group.skip.kind is not SkipKind.NO_SKIP:
            _refuse(call, "a group has a skip strategy; pass it to `begin` of the whole pattern")
        if group.steps[-1].is_negative:
            _refuse(call, f"a group can't end with the negative step {group.steps[-1].name!r}")
        if all(step.is_optional for step in group.steps):
            _refuse(call, f"each step of the group ({group}) is optional; make the group optional instead")
        return Step(f"({group})", any_record, contiguity, members=group.steps)

    def _check_negative(self, call: str) -> None:
        before = self.steps[-1]
        if before.members:
            _refuse(call, f"a negative step can't follow the group {before.name}, only a single step")
        if before.is_optional:
            _refuse(call, f"a negative step can't follow the optional step {before.name!r}")

    def _check_gaps(self, call: str) -> None:
        """Refuse a positive step after a negative step with a gap, because the gap would limit no record."""
        for step in reversed(self.steps):
            if not step.is_negative:
                return
            if step.gap is not None:
                _refuse(
                    call,
                    f'the negative step {step.name!r} has within(..., since="previous"), so it must end the '
                    f"pattern; call within after {call} to limit the time between two records",
                )

    def _check_no_group(self, call: str) -> None:
        if self.steps[-1].members:
            _refuse(call, f"{self.steps[-1].name} is a group; call {call} for a step of it")

    def _with(self, last: Step) -> Pattern[T]:
        return replace(self, steps=(*self.steps[:-1], last))

    def _with_inner(self, call: str, inner: Contiguity) -> Pattern[T]:
        step = self._quantified(call)
        if step.inner not in (Contiguity.RELAXED, inner):
            _refuse(call, f"step {step.name!r} can't be consecutive and also allow combinations")
        return self._with(replace(step, inner=inner))

    def _positive(self, call: str) -> Step:
        step = self.steps[-1]
        if step.is_negative:
            _refuse(call, f"step {step.name!r}: {_NO_NEGATIVE}")
        return step

    def _unquantified(self, call: str) -> Step:
        step = self._positive(call)
        if step.is_quantified:
            _refuse(call, f"step {step.name!r} already has a quantifier")
        return step

    def _quantified(self, call: str) -> Step:
        step = self._positive(call)
        if not step.is_quantified:
            _refuse(call, f"step {step.name!r} takes one record; call times or one_or_more first")
        return step

    def __str__(self) -> str:
        first, *others = self.steps
        parts = [str(first)]
        for step in others:
            parts.append(str(step) if step.is_negative else f"{step.contiguity.value} {step}")
        return " ".join(parts)


def takes_match(condition: Callable[..., object]) -> bool:
    """Return whether a condition also takes the partial match, in a second parameter without a default.

    Example:
        >>> takes_match(lambda record: True), takes_match(lambda record, match: True), takes_match(bool)
        (False, True, False)
    """
    return len(_required(condition)) == 2


def _required(condition: Callable[..., object]) -> list[str]:
    try:
        parameters = inspect.signature(condition).parameters.values()
    except (TypeError, ValueError):  # a function that is written in C may have no signature
        return ["record"]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


def _checked_condition(call: str, condition: object) -> Callable[..., object]:
    if not callable(condition):
        _refuse(call, f"a condition is a function of a record, not {condition!r:.80}")
    if len(_required(condition)) > 2:
        _refuse(call, "a condition takes a record, or a record and the dict of the match so far")
    return condition


def _refuse(call: str, what: str) -> NoReturn:
    msg = f"Pattern.{call}: {what}"
    raise ConfigurationError(msg)
