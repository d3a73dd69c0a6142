"""A model of patterns: all ways to assign records to steps, of which the rules leave the matches.

It knows the whole list of records. So a rule is a question about two neighbours of a match and the records
between them. Nothing of a matcher's states is in it.

A pattern with groups stands for several patterns without groups, and has the matches of all. A group that
runs once or twice is a pattern with its steps, and one with its steps twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from penstock.runtime.operators.patterns.pattern import Pattern
from penstock.runtime.operators.patterns.step import Contiguity, Step, leaves

#: A record with its timestamp.
Event = tuple[int, Any]
#: Indexes of the records of each positive step.
Assignment = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Found:
    """A match, and its last moment: the timestamp of its last record, or the end of its time."""

    taken: Assignment
    at: float

    @property
    def first(self) -> int:
        return min(index for indexes in self.taken for index in indexes)

    def text(self, events: Sequence[Event]) -> str:
        return placed([[str(events[index][1]) for index in indexes] for indexes in self.taken])


def placed(records: Iterable[Iterable[str]]) -> str:
    """The records of each step with its index: `0:a1 2:c1`."""
    return " ".join(f"{step}:{record}" for step, taken in enumerate(records) for record in taken)


def matches_of(pattern: Pattern[Any], events: Sequence[Event]) -> list[Found]:
    """The matches of a pattern, which may have groups."""
    names = [leaf.name for leaf in leaves(pattern.steps) if not leaf.is_negative]
    found = []
    has_negative_end = pattern.steps[-1].is_negative
    for steps in without_groups(pattern.steps, len(events)):
        if steps:
            of_steps = [names.index(step.name) for step in steps if not step.is_negative]
            model = Model(
                Pattern(steps, pattern.skip, pattern.limit), events, has_negative_end=has_negative_end
            )
            for match in model.matches():
                taken: list[tuple[int, ...]] = [()] * len(names)
                for leaf, indexes in zip(of_steps, match.taken, strict=True):
                    taken[leaf] += indexes
                found.append(Found(tuple(taken), match.at))
    return found


def without_groups(
    steps: Sequence[Step], most: int, head: Contiguity | None = None
) -> Iterator[tuple[Step, ...]]:
    """The steps with those of groups as often as they may run, if they need at most `most` records.

    The first step or group has the contiguity `head`, if given. If it is missing, the others keep theirs.
    """
    if not steps:
        yield ()
        return
    for variant in _variants(steps[0], most, head or steps[0].contiguity):
        for others in without_groups(steps[1:], most - _needed(variant)):
            yield variant + others


def _variants(step: Step, most: int, head: Contiguity) -> Iterator[tuple[Step, ...]]:
    if step.members:
        if step.is_optional:
            yield ()
        yield from _runs(step, most, head, 1)
    elif _needed((step,)) <= most:
        yield (replace(step, contiguity=head),)


def _runs(group: Step, most: int, head: Contiguity, number: int) -> Iterator[tuple[Step, ...]]:
    """The steps of a run with this number and of the runs after it."""
    for run in without_groups(group.members, most, head):
        if number >= group.at_least:
            yield run
        if number != group.at_most and _needed(run) < most:
            for later in _runs(group, most - _needed(run), group.inner, number + 1):
                yield run + later


def _needed(steps: Sequence[Step]) -> int:
    """The least number of records."""
    return sum(step.at_least for step in steps if not (step.is_optional or step.is_negative))


class Model:
    """All matches of a pattern without groups.

    Args:
        has_negative_end: Whether a match waits for the negative steps at the end. It does not if they stand
            before an optional group that is missing. Then they only forbid records between two others.
    """

    def __init__(self, pattern: Pattern[Any], events: Sequence[Event], *, has_negative_end: bool) -> None:
        self.events = events
        self.has_negative_end = has_negative_end
        self.limit = inf if pattern.limit is None else pattern.limit
        self.steps = [step for step in pattern.steps if not step.is_negative]
        self.negative: list[list[Step]] = []
        for step in pattern.steps:
            if step.is_negative:
                self.negative[-1].append(step)
            else:
                self.negative.append([])

    def matches(self) -> list[Found]:
        return [found for taken in self._assignments() for found in self._completed(taken)]

    # -- all assignments ----------------------------------------------------------------------------------

    def _assignments(self) -> Iterator[Assignment]:
        """All assignments with at least one record, in which each pair of neighbours obeys the rules."""
        yield from self._longer(((),) * len(self.steps), None, -1)

    def _longer(self, taken: Assignment, last: int | None, step: int) -> Iterator[Assignment]:
        for following in range(max(step, 0), len(self.steps)):
            if not self._may_follow(taken, step, following):
                continue
            for index in range(0 if last is None else last + 1, len(self.events)):
                if self._is_pair(taken, step, last, following, index):
                    longer = (*taken[:following], (*taken[following], index), *taken[following + 1 :])
                    yield longer
                    if not self._is_stopped_at(longer, taken, step, last, index):
                        yield from self._longer(longer, index, following)

    def _may_follow(self, taken: Assignment, step: int, following: int) -> bool:
        """Whether the numbers of records allow a record of a step after those of another."""
        if following == step:
            most = self.steps[step].at_most
            return most is None or len(taken[step]) < most
        if step >= 0 and len(taken[step]) < self.steps[step].at_least:
            return False
        return all(between.is_optional for between in self.steps[step + 1 : following])

    def _is_pair(self, taken: Assignment, step: int, last: int | None, following: int, index: int) -> bool:
        """Whether a record may come after the newest one of an assignment, as one of a step."""
        if not self._can_take(taken, step, following, index):
            return False
        if last is not None:
            first_at, last_at, at = (
                self.events[self._first(taken)][0],
                self.events[last][0],
                self.events[index][0],
            )
            gap = self.steps[following].gap
            if at - first_at >= self.limit or (gap is not None and at - last_at >= gap):
                return False
            if not self._reaches(taken, step, last, following, index):
                return False
            if self._is_broken(taken, step, last, index):
                return False
        return not self._is_left_to_greedy(taken, step, last, following, index)

    def _can_take(self, taken: Assignment, step: int, following: int, index: int) -> bool:
        wanted = self.steps[following]
        record = self.events[index][1]
        return bool(wanted.where(record)) and not (wanted.until is not None and wanted.until(record))

    def _reaches(self, taken: Assignment, step: int, last: int, following: int, index: int) -> bool:
        """Whether a step still waits for its record after those between two records."""
        wanted = self.steps[following]
        contiguity = wanted.inner if following == step else wanted.contiguity
        between = [record for _, record in self.events[last + 1 : index]]
        if contiguity is Contiguity.STRICT and between:
            return False
        if contiguity is Contiguity.RELAXED and any(map(wanted.where, between)):
            return False
        return not (following == step and wanted.until is not None and any(map(wanted.until, between)))

    def _is_broken(self, taken: Assignment, step: int, last: int, index: int) -> bool:
        """Whether a negative step forbids a record between two records, or the first one after a record."""
        has_enough = len(taken[step]) >= self.steps[step].at_least
        for forbidden in self.negative[step]:
            if forbidden.contiguity is Contiguity.STRICT:
                if has_enough and forbidden.where(self.events[last + 1][1]):
                    return True
            elif any(forbidden.where(record) for _, record in self.events[last + 1 : index]):
                return True
        return False

    def _is_stopped_at(
        self, longer: Assignment, taken: Assignment, step: int, last: int | None, index: int
    ) -> bool:
        """Whether the record itself is forbidden: it may only be the last one of a match."""
        if last is None:
            return False
        relaxed = [no for no in self.negative[step] if no.contiguity is not Contiguity.STRICT]
        return any(no.where(self.events[index][1]) for no in relaxed)

    def _is_left_to_greedy(
        self, taken: Assignment, step: int, last: int | None, following: int, index: int
    ) -> bool:
        """Whether a greedy step before the following one can take a record up to the one at `index`."""
        for greedy in range(max(step, 0), following):
            if not self.steps[greedy].is_greedy or not self._may_follow(taken, step, greedy):
                continue
            for at in range(index if last is None else last + 1, index + 1):
                if self._is_pair(taken, step, last, greedy, at):
                    return True
        return False

    def _first(self, taken: Assignment) -> int:
        return min(index for indexes in taken for index in indexes)

    # -- complete ones ------------------------------------------------------------------------------------

    def _completed(self, taken: Assignment) -> Iterator[Found]:
        step = max(index for index, indexes in enumerate(taken) if indexes)
        last = taken[step][-1]
        if len(taken[step]) < self.steps[step].at_least:
            return
        if not all(later.is_optional for later in self.steps[step + 1 :]):
            return
        if not self.has_negative_end:
            yield Found(taken, self.events[last][0])
            return
        if step == len(self.steps) - 1 and not self._was_stopped(taken, last):
            yield from self._after_negative_end(taken, step, last)

    def _was_stopped(self, taken: Assignment, last: int) -> bool:
        """Whether the newest record was forbidden where it was taken, so that nothing comes after it."""
        step = max(index for index, indexes in enumerate(taken) if indexes)
        shorter = (*taken[:step], taken[step][:-1], *taken[step + 1 :])
        if not any(shorter):
            return False
        before = max(index for index, indexes in enumerate(shorter) if indexes)
        return self._is_stopped_at(taken, shorter, before, shorter[before][-1], last)

    def _after_negative_end(self, taken: Assignment, step: int, last: int) -> Iterator[Found]:
        negative, last_at = self.negative[step], self.events[last][0]
        gap = min((no.gap for no in negative if no.gap is not None), default=inf)
        end = min(self.events[self._first(taken)][0] + self.limit, last_at + gap)
        ends_by_time = negative[-1].contiguity is not Contiguity.STRICT
        in_time = [index for index in range(last + 1, len(self.events)) if self.events[index][0] < end]
        seen = in_time if ends_by_time else in_time[:1]
        is_greedy = self.steps[step].is_greedy and self._may_follow(taken, step, step)
        for index in seen:
            if is_greedy and self._is_pair(taken, step, last, step, index):
                return
            record = self.events[index][1]
            for no in negative:
                if no.where(record) and (no.contiguity is not Contiguity.STRICT or index == last + 1):
                    return
        if ends_by_time:
            yield Found(taken, end)
        elif seen:
            yield Found(taken, self.events[seen[0]][0])
