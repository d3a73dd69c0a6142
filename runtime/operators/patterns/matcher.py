"""`Matcher`: finds the matches of a pattern in the records of one key, which come in the order of time.

Matches are those of Flink's CEP.

**Partial matches.** A partial match is the records that each step has taken, and its *targets*: the steps
that may take the next record. A step that has taken a record and has room is a target. Once it has enough
records the next step is a target, too. So are further steps while the steps before them are optional. `END`
follows the last step if the pattern ends with a negative step. Otherwise a match is complete at once.

**Record.** Each target of each partial match is asked on its own. If the target's condition holds, a new
partial match takes the record. The old one stays with the targets that may still wait. A strict target never
waits, as nothing may come in between. A relaxed target waits if the record does not match. Any other target
always waits. A partial match without targets is gone. So no two partial matches are equal, and no match is
found twice.

- A record that a greedy step can take ends all later targets of the partial match.
- A record that matches `until` ends the target of its step.
- A record that matches a negative step discards the partial match, with all that has grown out of it by this
  record. The exception is a match that the record itself completes: this record does not lie before the end
  of the match. `not_followed_by` holds from the first record of the step in front of it, `not_next` for the
  record directly after that step.
- Each record also begins new partial matches.

**Time.** A target ends `gap` after the newest record of its partial match, and every target ends `limit`
after the first. `expire` removes them. It is called at each such moment, before the records of the moment. A
partial match that loses its last target times out. If the target is `END` after `not_followed_by`, the match
is complete instead.

**Skipping.** With a skip strategy a match is held until no partial match is left that began earlier. Then it
is emitted and discards others. That is why a timeout may emit matches, too.

**Numbers.** Records are numbered in their order. A partial match refers to records by number, so the records
are stored once. A record that no partial match refers to is deleted at once.

The matcher must give the same matches when a partial match was saved and restored after any record. So all
that it knows of a key is in `KeyMatches`, and `KeyMatches` holds plain values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from penstock.runtime.operators.patterns.pattern import Contiguity, Pattern, SkipKind, Step, takes_match

#: Numbers of the records that each positive step has taken.
Taken = tuple[tuple[int, ...], ...]


class PartialMatch(NamedTuple):
    """A partial match; a complete one that is held has no targets.

    Attributes:
        taken: Numbers of the records of each positive step.
        step: Index of the step of the newest record.
        targets: Indexes of the steps that may take the next record.
        first_at: Timestamp of the first record, in microseconds.
        last_at: Timestamp of the newest record, in microseconds.
        is_fresh: Whether no record has come since the newest one; kept only where `not_next` follows the
            step.
    """

    taken: Taken
    step: int
    targets: tuple[int, ...]
    first_at: int
    last_at: int
    is_fresh: bool

    @property
    def first(self) -> int:
        """Number of the first record."""
        return min(numbers[0] for numbers in self.taken if numbers)

    @property
    def last(self) -> int:
        """Number of the newest record."""
        return self.taken[self.step][-1]


@dataclass(slots=True)
class KeyMatches:
    """The partial matches of one key, and their records with timestamps by number.

    Attributes:
        partial: Partial matches by id, in the order in which they were made.
        held: Complete matches by id that wait for partial matches that began earlier.
        added: Numbers of new records.
        deleted: Numbers of deleted records that were not new; a new record may have the number again.
    """

    partial: dict[int, PartialMatch] = field(default_factory=dict)
    held: dict[int, PartialMatch] = field(default_factory=dict)
    records: dict[int, tuple[int, Any]] = field(default_factory=dict)
    added: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, saved: Mapping[int, Sequence[Any]], records: dict[int, tuple[int, Any]]) -> KeyMatches:
        """Make them of saved partial matches: the fields of `PartialMatch` by id.

        Records are added to the dict and deleted from it; a copy for each record would cost too much.
        """
        found = [(number, PartialMatch._make(saved[number])) for number in sorted(saved)]
        partial = {number: match for number, match in found if match.targets}
        held = {number: match for number, match in found if not match.targets}
        return cls(partial, held, records)

    def add_record(self, at: int, record: Any) -> int:
        """Add a record, and return its number.

        Every stored record belongs to a match, and the newest partial match has the newest of these records.
        """
        newest = [match.last for match in self.held.values()]
        if self.partial:
            newest.append(self.partial[max(self.partial)].last)
        number = max(newest, default=-1) + 1
        self.records[number] = at, record
        self.added.add(number)
        return number

    def delete_record(self, number: int) -> None:
        if self.records.pop(number, None) is None:
            return
        if number in self.added:
            self.added.remove(number)
        else:
            self.deleted.add(number)


#: A match: its records as lists by the names of the positive steps.
Match = dict[str, list[Any]]


class Outcome(NamedTuple):
    """Matches that are complete, and partial matches that have timed out."""

    matches: list[Match]
    timed_out: list[Match]


class _Condition:
    """A user's condition of one step, and the function that is called in its place."""

    __slots__ = ("call", "function", "step", "takes_match")

    def __init__(self, step: str, function: Callable[..., object], call: Callable[..., object]) -> None:
        self.step, self.function, self.call = step, function, call
        self.takes_match = takes_match(function)


class _Positive(NamedTuple):
    """A positive step with its conditions, and the negative steps behind it."""

    step: Step
    where: _Condition
    until: _Condition | None
    not_next: tuple[_Condition, ...]
    not_followed_by: tuple[_Condition, ...]


class Matcher:
    """Finds the matches of a pattern in the records of a key; serves all keys.

    Args:
        wrap: Returns the function that is called in place of a condition, so that it can't change records.

    Attributes:
        running: The step and the condition that are being called; `None` outside of conditions.

    Example:
        >>> pattern = Pattern.begin("a", where=str.islower).followed_by("b", where=str.isupper)
        >>> matcher, of_key = Matcher(pattern), KeyMatches()
        >>> for at, letter in enumerate("xyZ"):
        ...     outcome = matcher.advance(of_key, at, letter)
        >>> outcome.matches, of_key.records
        ([{'a': ['x'], 'b': ['Z']}, {'a': ['y'], 'b': ['Z']}], {})
    """

    def __init__(
        self,
        pattern: Pattern[Any],
        wrap: Callable[[Callable[..., object]], Callable[..., object]] = lambda function: function,
    ) -> None:
        self._wrap = wrap
        self._skip = pattern.skip
        self._limit = pattern.limit
        steps = pattern.steps
        starts = [index for index, step in enumerate(steps) if not step.is_negative]
        self._steps = [
            self._positive(steps[start], steps[start + 1 : following])
            for start, following in zip(starts, [*starts[1:], len(steps)], strict=True)
        ]
        self._names = [positive.step.name for positive in self._steps]
        #: Index behind the last step: the target of a pattern that ends with negative steps.
        self._end: Final = len(self._steps)
        negative = steps[starts[-1] + 1 :]
        self._has_end = bool(negative)
        #: Whether time completes a match, and not the next record.
        self._ends_by_time = bool(negative) and negative[-1].contiguity is not Contiguity.STRICT
        self._gaps = [positive.step.gap for positive in self._steps]
        self._gaps.append(min((step.gap for step in negative if step.gap is not None), default=None))
        self._has_deadlines = self._limit is not None or any(gap is not None for gap in self._gaps)
        skipped = None if self._skip.step is None else self._names.index(self._skip.step)
        self._skipped_to: Final = skipped
        #: Targets in front of the first record, and behind each step that has enough records.
        self._begin = self._after(-1)
        self._following = [self._after(index) for index in range(self._end)]
        self.running: tuple[str, Callable[..., object]] | None = None

    def _positive(self, step: Step, negative: Sequence[Step]) -> _Positive:
        return _Positive(
            step,
            self._condition(step, step.where),
            None if step.until is None else self._condition(step, step.until),
            tuple(self._condition(n, n.where) for n in negative if n.contiguity is Contiguity.STRICT),
            tuple(self._condition(n, n.where) for n in negative if n.contiguity is not Contiguity.STRICT),
        )

    def _condition(self, step: Step, function: Callable[..., object]) -> _Condition:
        return _Condition(step.name, function, self._wrap(function))

    def _after(self, index: int) -> tuple[int, ...]:
        """Targets behind a step: the next one, and further ones while those before them are optional."""
        targets = []
        for target in range(index + 1, self._end):
            targets.append(target)
            if not self._steps[target].step.is_optional:
                return tuple(targets)
        # Only optional steps are left: behind a record the match is complete, or waits for its end.
        return (*targets, self._end)

    # -- time ---------------------------------------------------------------------------------------------

    def deadline(self, of_key: KeyMatches) -> int | None:
        """The earliest moment at which `expire` has work."""
        if not self._has_deadlines:
            return None
        earliest = min(
            (
                self._expires_at(match, target)
                for match in of_key.partial.values()
                for target in match.targets
            ),
            default=inf,
        )
        return None if earliest == inf else int(earliest)

    def _expires_at(self, match: PartialMatch, target: int) -> float:
        gap = self._gaps[target]
        by_gap = inf if gap is None else match.last_at + gap
        return by_gap if self._limit is None else min(by_gap, match.first_at + self._limit)

    def expire(self, of_key: KeyMatches, at: int) -> Outcome:
        """Let time advance to a moment, before the records of this moment."""
        complete: list[PartialMatch] = []
        timed_out: list[Match] = []
        gone: list[PartialMatch] = []
        if self._has_deadlines:
            for number, match in list(of_key.partial.items()):
                left = tuple(t for t in match.targets if self._expires_at(match, t) > at)
                if len(left) == len(match.targets):
                    continue
                is_complete = self._ends_by_time and self._end in match.targets and self._end not in left
                if is_complete:
                    complete.append(match)
                elif not left:
                    timed_out.append(self._match(of_key, match))
                if left:
                    of_key.partial[number] = match._replace(targets=left)
                else:
                    gone.append(of_key.partial.pop(number))
        return Outcome(self._emitted(of_key, complete, gone), timed_out)

    # -- records ------------------------------------------------------------------------------------------

    def advance(self, of_key: KeyMatches, at: int, record: Any) -> Outcome:
        """Process the next record, after `expire` for its moment."""
        number = of_key.add_record(at, record)
        simple: dict[_Condition, object] = {}
        first_id = next_id = max((*of_key.partial, *of_key.held), default=-1) + 1
        partial: dict[int, PartialMatch] = {}
        complete: list[PartialMatch] = []
        gone: list[PartialMatch] = []
        for match_id, match in of_key.partial.items():
            left, grown, ended = self._step(of_key, match, number, simple)
            if left is not None:
                partial[match_id] = left
            elif not grown:  # a partial match that has grown out of it has its records, too
                gone.append(match)
            for new in grown:
                partial[next_id] = new
                next_id += 1
            complete += ended
        _, begun, ended = self._step(of_key, self._empty(at), number, simple)
        for new in begun:
            partial[next_id] = new
            next_id += 1
        complete += ended
        self.running = None
        of_key.partial = partial
        if next_id == first_id and not complete:
            of_key.delete_record(number)
        return Outcome(self._emitted(of_key, complete, gone, number if complete else None), [])

    def _empty(self, at: int) -> PartialMatch:
        """The partial match without records, from which all others grow."""
        return PartialMatch(((),) * self._end, -1, self._begin, at, at, is_fresh=False)

    def _step(
        self, of_key: KeyMatches, match: PartialMatch, number: int, simple: dict[_Condition, object]
    ) -> tuple[PartialMatch | None, list[PartialMatch], list[PartialMatch]]:
        """Return what stays of a partial match after a record, what grew out of it, and complete matches."""

        def holds(condition: _Condition) -> object:
            return self._holds(condition, of_key, match, record, simple)

        at, record = of_key.records[number]
        if match.step >= 0:
            current = self._steps[match.step]
            may_end = len(match.taken[match.step]) >= current.step.at_least
            if match.is_fresh and may_end and any(map(holds, current.not_next)):
                return None, [], []
            is_discarded = any(map(holds, current.not_followed_by))
        else:
            is_discarded = False
        left, grown, complete = [], [], []
        is_blocked = False
        for target in match.targets:
            if is_blocked:
                break
            if target == self._end:
                # A match that the next record completes: no negative step has matched it.
                if match.step >= 0 and self._ends_by_time:
                    left.append(target)
                elif match.step >= 0 and not is_discarded:
                    complete.append(match)
                continue
            positive = self._steps[target]
            step = positive.step
            is_inner = target == match.step
            is_over = positive.until is not None and bool(holds(positive.until))
            contiguity = step.inner if is_inner else step.contiguity
            matches = not (is_over and is_inner) and bool(holds(positive.where))
            if matches and not is_over:
                new = self._taken(match, target, number, at)
                if self._end in new.targets and not self._has_end:
                    complete.append(new)
                    new = new._replace(targets=tuple(t for t in new.targets if t != self._end))
                if new.targets:
                    grown.append(new)
                is_blocked = step.is_greedy
            waits = contiguity is Contiguity.ANY or (contiguity is Contiguity.RELAXED and not matches)
            if waits and not (is_over and is_inner):
                left.append(target)
        if is_discarded:
            return None, [], complete
        if not left or match.step < 0:
            return None, grown, complete
        targets = tuple(left)
        if targets != match.targets or match.is_fresh:
            match = match._replace(targets=targets, is_fresh=False)
        return match, grown, complete

    def _taken(self, match: PartialMatch, target: int, number: int, at: int) -> PartialMatch:
        taken = list(match.taken)
        taken[target] = (*taken[target], number)
        positive = self._steps[target]
        count, step = len(taken[target]), positive.step
        has_room = step.at_most is None or count < step.at_most
        targets = (target,) if has_room else ()
        if count >= step.at_least:
            targets = (*targets, *self._following[target])
        return PartialMatch(tuple(taken), target, targets, match.first_at, at, bool(positive.not_next))

    def _holds(
        self,
        condition: _Condition,
        of_key: KeyMatches,
        match: PartialMatch,
        record: Any,
        simple: dict[_Condition, object],
    ) -> object:
        """Call a condition; one that takes only the record is called once for each record."""
        if condition.takes_match:
            self.running = condition.step, condition.function
            return condition.call(record, self._match(of_key, match))
        held = simple.get(condition)
        if held is None:
            self.running = condition.step, condition.function
            held = simple[condition] = bool(condition.call(record))
        return held

    def _match(self, of_key: KeyMatches, match: PartialMatch) -> Match:
        records = of_key.records
        return {
            name: [records[number][1] for number in numbers]
            for name, numbers in zip(self._names, match.taken, strict=True)
        }

    # -- complete matches ---------------------------------------------------------------------------------

    def _emitted(
        self,
        of_key: KeyMatches,
        complete: list[PartialMatch],
        gone: list[PartialMatch],
        newest: int | None = None,
    ) -> list[Match]:
        """Emit complete matches as the skip strategy demands, and delete records that are left over."""
        if not complete and not gone:
            return []
        if self._skip.kind is SkipKind.NO_SKIP:
            matches = [self._match(of_key, match) for match in sorted(complete, key=lambda m: m.first)]
            released = [*gone, *complete]
        else:
            released = gone
            matches = list(self._skipping(of_key, complete, released))
        self._delete_records(of_key, released, newest)
        return matches

    def _skipping(
        self, of_key: KeyMatches, complete: list[PartialMatch], released: list[PartialMatch]
    ) -> Iterable[Match]:
        next_id = max((*of_key.partial, *of_key.held), default=-1) + 1
        held = [*of_key.held.items(), *enumerate((m._replace(targets=()) for m in complete), next_id)]
        held.sort(key=lambda pair: pair[1].first)
        while held:
            _, match = held[0]
            if any(partial.first < match.first for partial in of_key.partial.values()):
                break
            del held[0]
            yield self._match(of_key, match)
            released.append(match)
            bound = self._discards_below(match)
            for number, partial in list(of_key.partial.items()):
                if partial.first < bound:
                    released.append(of_key.partial.pop(number))
            released += [other for _, other in held if other.first < bound]
            held = [pair for pair in held if pair[1].first >= bound]
        of_key.held = dict(held)

    def _discards_below(self, match: PartialMatch) -> float:
        """Number of the first record that may begin another match."""
        kind = self._skip.kind
        if kind is SkipKind.TO_NEXT:
            return match.first + 1
        if kind is SkipKind.PAST_LAST_EVENT:
            return match.last + 1
        assert self._skipped_to is not None, "these strategies name a step"
        numbers = match.taken[self._skipped_to]
        if not numbers:
            return -inf
        return numbers[0] if kind is SkipKind.TO_FIRST else numbers[-1]

    def _delete_records(self, of_key: KeyMatches, released: list[PartialMatch], newest: int | None) -> None:
        """Delete records that no partial match refers to any longer, and the newest one if none took it."""
        left_over = {number for match in released for numbers in match.taken for number in numbers}
        if newest is not None:
            left_over.add(newest)
        if not left_over:
            return
        youngest = max(left_over)
        for match in (*of_key.partial.values(), *of_key.held.values()):
            if match.first <= youngest:
                left_over.difference_update(*match.taken)
                if not left_over:
                    return
        for number in left_over:
            of_key.delete_record(number)
