"""`TransitionGraph`: the steps of a pattern as a graph, whose transitions each take a record.

A *leaf* is a positive step that is not a group. A transition leads from a leaf, or from the beginning of the
pattern, to the leaf that takes the next record.

**Counts.** A partial match has a count for each loop around its newest record, the outermost group first. The
count of a group numbers its current run. The last count is the number of records in the leaf's own run. A
transition keeps the counts of the groups in which it stays. If it repeats a loop, it increases the last count
that it keeps. Loops that it enters begin with 1. A count stops growing where a larger one would change
nothing. So the number of counts and their values are bounded, however long a match is.

**Order.** Transitions that repeat a loop come before those that leave it. The transition to a step comes
before those that pass over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.runtime.operators.patterns.step import Contiguity, Step

#: Members of the pattern or of a group, and the index of one of them.
_Place = tuple[Sequence[Step], int]
#: A leaf in one of the runs that a partial match may continue or begin: `target`, `kept`, `repeats`.
_LeafInRun = tuple[int, int, bool]


class StepTransition(NamedTuple):
    """A way to the leaf that takes the next record.

    Attributes:
        target: Index of the leaf; the index after the last leaf is the end of the pattern.
        contiguity: Contiguity between the newest record and the record that the transition takes.
        kept: Number of counts that are kept.
        repeats: Whether a loop runs again.
        is_inner: Whether the leaf that took the newest record takes another one in the same run.
        passed: Greedy leaves that the transition leaves or passes over, each as `leaf_in_run` of the
            transition to it.
    """

    target: int
    contiguity: Contiguity
    kept: int
    repeats: bool = False
    is_inner: bool = False
    passed: frozenset[_LeafInRun] = frozenset()

    @property
    def leaf_in_run(self) -> _LeafInRun:
        return self.target, self.kept, self.repeats


class _Loop(NamedTuple):
    """A leaf or a group around it, with the transitions to its next run and those that leave it."""

    at_least: int
    at_most: int | None
    again: tuple[int, ...]
    onward: tuple[int, ...]

    def bounded(self, count: int) -> int:
        return min(count, self.at_most or self.at_least)


class TransitionGraph:
    """The transitions of a pattern; partial matches refer to them by index.

    Attributes:
        leaves: The leaves in their order.
        negative: Negative steps right after each leaf.
        end: Index after the last leaf: the target of transitions that end the pattern.
        begin: Transitions that may take the first record.
        to_end: Indexes of the transitions that end the pattern.
        ends_by_time: Whether time completes a match that has the end as a target; otherwise the next record
            does.

    Example:
        >>> from penstock.patterns import Pattern
        >>> pair = Pattern.begin("a").next("b")
        >>> graph = TransitionGraph(Pattern.begin(pair).times(2).steps)
        >>> counts, targets = (), graph.begin
        >>> for _ in range(4):
        ...     target = graph.transitions[targets[0]].target
        ...     counts, targets = graph.reached(counts, targets[0])
        ...     print(graph.leaves[target].name, counts)
        a (1, 1)
        b (1, 1)
        a (2, 1)
        b (2, 1)
        >>> [graph.transitions[index].target == graph.end for index in targets]
        [True]
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        places = list(_places(steps, []))
        self.leaves = [members[index] for *_, (members, index) in places]
        self.negative = [list(_negative_behind(*place[-1])) for place in places]
        self.end: Final = len(self.leaves)
        self.transitions: list[StepTransition] = []
        self._numbers = {leaf.name: number for number, leaf in enumerate(self.leaves)}
        into, passed = self._into(steps, 0, StepTransition(-1, Contiguity.RELAXED, 0))
        self.begin = self._added(into if passed is None else [*into, self._to_end(passed)])
        #: The loops around each leaf, the leaf itself first.
        self._loops = [self._loops_around(number, place) for number, place in enumerate(places)]
        self.to_end = frozenset(i for i, way in enumerate(self.transitions) if way.target == self.end)
        last = self.negative[-1]
        self.ends_by_time = bool(last) and last[-1].contiguity is not Contiguity.STRICT

    def has_not_next(self, leaf: int) -> bool:
        return any(step.contiguity is Contiguity.STRICT for step in self.negative[leaf])

    def reached(self, counts: tuple[int, ...], index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the counts after a transition has taken a record, and the transitions that may follow."""
        way = self.transitions[index]
        kept = list(counts[: way.kept])
        if way.repeats:
            kept[-1] += 1
        loops = self._loops[way.target]
        reached = [*kept, *[1] * (len(loops) - way.kept)]
        bounded = [loop.bounded(count) for loop, count in zip(loops, reversed(reached), strict=True)]
        targets: list[int] = []
        for loop, count in zip(loops, bounded, strict=True):
            if loop.at_most is None or count < loop.at_most:
                targets += loop.again
            if count < loop.at_least:
                break
            targets += loop.onward
        return tuple(reversed(bounded)), tuple(targets)

    # -- making the graph ---------------------------------------------------------------------------------

    def _added(self, ways: Sequence[StepTransition]) -> tuple[int, ...]:
        first = len(self.transitions)
        self.transitions += ways
        return tuple(range(first, len(self.transitions)))

    def _to_end(self, passed: frozenset[_LeafInRun]) -> StepTransition:
        return StepTransition(self.end, Contiguity.RELAXED, 0, passed=passed)

    def _into(
        self, members: Sequence[Step], start: int, way: StepTransition, head: Contiguity | None = None
    ) -> tuple[list[StepTransition], frozenset[_LeafInRun] | None]:
        """Return the transitions to members from index `start`, up to the first member that is not optional.

        Args:
            way: Template of the transitions; its `passed` holds the greedy leaves passed so far.
            head: Contiguity of the first member, instead of its own.

        Returns:
            The transitions, and the greedy leaves that a transition past all members passes; `None` if a
            member is not optional.
        """
        found: list[StepTransition] = []
        passed = way.passed
        for index, member in enumerate(members[start:]):
            if member.is_negative:
                continue
            contiguity = member.contiguity if head is None or index else head
            to_member = way._replace(contiguity=contiguity, passed=passed)
            if member.members:
                found += self._into(member.members, 0, to_member, contiguity)[0]
            else:
                found.append(to_member._replace(target=self._numbers[member.name]))
                passed |= {found[-1].leaf_in_run} if member.is_greedy else frozenset()
            if not member.is_optional:
                return found, None
        return found, passed

    def _loops_around(self, leaf: int, place: list[_Place]) -> list[_Loop]:
        step, depth = self.leaves[leaf], len(place)
        again = [StepTransition(leaf, step.inner, depth, repeats=True, is_inner=True)]
        passed: frozenset[_LeafInRun] | None = frozenset({again[0].leaf_in_run} if step.is_greedy else ())
        loops = []
        for kept, (members, index) in zip(range(depth - 1, -1, -1), reversed(place), strict=True):
            loop = members[index]
            onward: list[StepTransition] = []
            if passed is not None:
                way = StepTransition(-1, Contiguity.RELAXED, kept, passed=passed)
                onward, passed = self._into(members, index + 1, way)
                if passed is not None and not kept:
                    onward.append(self._to_end(passed))
            loops.append(_Loop(loop.at_least, loop.at_most, self._added(again), self._added(onward)))
            again = []
            if passed is not None and kept:
                outer, position = place[kept - 1]
                way = StepTransition(-1, Contiguity.RELAXED, kept, repeats=True, passed=passed)
                again = self._into(members, 0, way, outer[position].inner)[0]
        return loops


def _places(members: Sequence[Step], around: list[_Place]) -> Iterator[list[_Place]]:
    """For each leaf, the places of the groups around it, then its place in the pattern or its group."""
    for index, member in enumerate(members):
        place = [*around, (members, index)]
        if member.members:
            yield from _places(member.members, place)
        elif not member.is_negative:
            yield place


def _negative_behind(members: Sequence[Step], index: int) -> Iterator[Step]:
    for step in members[index + 1 :]:
        if not step.is_negative:
            return
        yield step
