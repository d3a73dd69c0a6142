"""`MatchDecisions`: the effect of a record on each partial match of a key, before any partial match changes.

`matcher.py` has the rules. A decision depends on the record and on the *state* of a partial match. The state
is the newest step, counts and targets, and whether `not_next` applies to the record. So each state has a
plan: the targets, and the conditions on which they depend.

A condition that takes only the record is called at most once for each record. If a decision depends on such
conditions alone, it holds for all partial matches in the same state. A first step that takes any record has
one decision for all records.

Conditions that only read the records of a match share one dict of them. Any other condition gets its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.runtime.operators.patterns.key_matches import KeyMatches, Match, PartialMatch, State
from penstock.runtime.operators.patterns.pattern import any_record, takes_match
from penstock.runtime.operators.patterns.step import Contiguity, Step
from penstock.runtime.operators.patterns.transitions import TransitionGraph
from penstock.runtime.operators.user_code.only_reads import only_reads


class MatchDecision(NamedTuple):
    """A record's effect on a partial match.

    Attributes:
        left: Transitions that wait for another record.
        taken: Transitions that take the record, or that complete the match without it.
        is_discarded: Whether only a match that the record completes is left.
    """

    left: tuple[int, ...]
    taken: tuple[int, ...]
    is_discarded: bool = False


#: The decision for a record that leaves a partial match unchanged.
_UNCHANGED: Final = MatchDecision((), ())

#: The decision for a record that ends a partial match.
_DISCARDED: Final = MatchDecision((), (), is_discarded=True)


class _Condition:
    """A user's condition of one step, and the function that is called instead of it."""

    __slots__ = ("call", "only_reads", "running", "takes_match")

    def __init__(self, step: str, function: Callable[..., object], call: Callable[..., object]) -> None:
        self.running, self.call = (step, function), call
        self.takes_match = takes_match(function)
        self.only_reads = only_reads(function)

    @property
    def holds_always(self) -> bool:
        return self.running[1] is any_record


class _Leaf(NamedTuple):
    """A positive step with its conditions, and the negative steps after it."""

    step: Step
    where: _Condition
    until: _Condition | None
    not_next: tuple[_Condition, ...]
    not_followed_by: tuple[_Condition, ...]


class _Way(NamedTuple):
    """A target of a partial match, with the decisions that depend on the pattern alone.

    Attributes:
        number: Index of the transition.
        where: Condition of the leaf; `None` for the end of the pattern.
        blocked_by: Greedy leaves in runs; if one of them takes the record, this target ends.
        blocks: The leaf in its run if it is greedy.
        is_inner: Whether `until` ends the target.
        waits: Whether the target may wait for a later record.
        waits_always: Whether it waits even if its leaf takes the record.
    """

    number: int
    where: _Condition | None
    until: _Condition | None
    blocked_by: frozenset[tuple[int, int, bool]]
    blocks: tuple[int, int, bool] | None
    is_inner: bool
    waits: bool
    waits_always: bool


class _Plan(NamedTuple):
    """The conditions on which a decision depends, for all partial matches in one state.

    Attributes:
        not_next: Conditions that discard the partial match.
        not_followed_by: Conditions after which only a match that the record completes is left.
        ways: Targets in their order.
        may_wait: Whether the partial match has records.
        is_fresh: Whether the partial match changes with any record.
    """

    not_next: tuple[_Condition, ...]
    not_followed_by: tuple[_Condition, ...]
    ways: tuple[_Way, ...]
    may_wait: bool
    is_fresh: bool


class MatchDecisions:
    """Decides on each partial match of a key for one record; one object serves all keys and records.

    Args:
        empty: The beginning of each match: a partial match without records.
        wrap: Wraps a condition so that the condition can't change records.

    Attributes:
        running: The name of a step and its condition, from the call of the condition until `end`; otherwise
            `None`.
    """

    _of_key: KeyMatches
    _match: PartialMatch

    def __init__(
        self,
        graph: TransitionGraph,
        empty: PartialMatch,
        wrap: Callable[[Callable[..., object]], Callable[..., object]],
    ) -> None:
        self._graph = graph
        self._wrap = wrap
        self._names = [leaf.name for leaf in graph.leaves]
        self._leaves = [self._leaf(*both) for both in zip(graph.leaves, graph.negative, strict=True)]
        self._ways = [self._way(index) for index in range(len(graph.transitions))]
        self._plans: dict[State, _Plan] = {}
        self._record: Any = None
        self._by_condition: dict[_Condition, bool] = {}
        self._by_state: dict[State, MatchDecision] = {}
        self._is_shared = True
        #: The records of `_match` for conditions that only read them.
        self._records: Match | None = None
        self.running: tuple[str, Callable[..., object]] | None = None
        self._empty = empty
        #: The transitions that begin a match with any record; `None` if that depends on the record.
        self._begun: tuple[int, ...] | None = None
        first = self._plan(empty.state).ways
        if all(way.where is not None and way.where.holds_always and way.until is None for way in first):
            self._begun = self.of(empty).taken
            self.end()

    # -- deciding -----------------------------------------------------------------------------------------

    def begin(self, of_key: KeyMatches, record: Any) -> None:
        """Begin with another record."""
        self._of_key, self._record = of_key, record
        self._by_condition.clear()
        self._by_state.clear()

    def end(self) -> None:
        """No condition of this record will be called any more."""
        self.running = None

    def begun(self) -> tuple[int, ...]:
        """Return the transitions that begin a match with the record."""
        return self.of(self._empty).taken if self._begun is None else self._begun

    def of(self, match: PartialMatch) -> MatchDecision:
        state = match[3:]
        decision = self._by_state.get(state)
        if decision is None:
            self._match, self._is_shared, self._records = match, True, None
            decision = self._decide(self._plans.get(state) or self._plan(state))
            if self._is_shared:
                self._by_state[state] = decision
        return decision

    def effects(self) -> list[tuple[int, PartialMatch, MatchDecision]]:
        """Return the partial matches that the record changes in their order, with the decisions."""
        of_key = self._of_key
        partial, of = of_key.partial, self.of
        of_key.index()
        if of_key.ids is None:
            return [
                (match_id, match, decision)
                for match_id, match in partial.items()
                if (decision := of(match)) is not _UNCHANGED
            ]
        ids: list[int] = []
        for of_state in of_key.ids.values():
            if of(partial[next(iter(of_state))]) is not _UNCHANGED or not self._is_shared:
                ids += of_state
        ids.sort()
        return [
            (match_id, match, decision)
            for match_id in ids
            if (decision := of(match := partial[match_id])) is not _UNCHANGED
        ]

    def _decide(self, plan: _Plan) -> MatchDecision:
        """Decide for each target of a partial match whether it takes the record, waits or ends."""
        holds = self._holds
        not_next, not_followed_by, ways, may_wait, is_fresh = plan
        for condition in not_next:
            if holds(condition):
                return _DISCARDED
        is_discarded = False
        for condition in not_followed_by:
            if holds(condition):
                is_discarded = True
                break
        left: list[int] = []
        taken: list[int] = []
        blocked: list[tuple[int, int, bool]] = []
        for number, where, until, blocked_by, blocks, is_inner, waits, waits_always in ways:
            if blocked and not blocked_by.isdisjoint(blocked):
                continue
            if where is None:
                # If the pattern ends with `not_next`, a record that does not match it completes the match.
                if waits:
                    left.append(number)
                elif may_wait and not is_discarded:
                    taken.append(number)
                continue
            if until is not None and holds(until):
                if is_inner:
                    continue
                matches, takes = holds(where), False
            else:
                matches = takes = holds(where)
            if takes:
                taken.append(number)
                if blocks is not None:
                    blocked.append(blocks)
            if waits and (waits_always or not matches):
                left.append(number)
        if is_discarded or not may_wait:
            left = []
        if not taken and not is_fresh and len(left) == len(ways):
            return _UNCHANGED
        return MatchDecision(tuple(left), tuple(taken), is_discarded)

    def _holds(self, condition: _Condition) -> bool:
        if condition.takes_match:
            self._is_shared = False
            self.running = condition.running
            records = self._records
            if records is None:
                records = self._of_key.records_of(self._match, self._names)
                if condition.only_reads:
                    self._records = records
            elif not condition.only_reads:
                records = self._of_key.records_of(self._match, self._names)
            return bool(condition.call(self._record, records))
        held = self._by_condition.get(condition)
        if held is None:
            self.running = condition.running
            held = self._by_condition[condition] = bool(condition.call(self._record))
        return held

    # -- plans --------------------------------------------------------------------------------------------

    def _plan(self, state: State) -> _Plan:
        plan = self._plans.get(state)
        if plan is None:
            plan = self._plans[state] = self._planned(*state)
        return plan

    def _planned(self, leaf: int, counts: tuple[int, ...], targets: tuple[int, ...], is_fresh: bool) -> _Plan:
        ways = tuple(self._ways[target] for target in targets)
        if leaf < 0:
            return _Plan((), (), ways, False, is_fresh)
        current = self._leaves[leaf]
        may_end = counts[-1] >= current.step.at_least
        not_next = current.not_next if is_fresh and may_end else ()
        return _Plan(not_next, current.not_followed_by, ways, True, is_fresh)

    def _way(self, index: int) -> _Way:
        graph = self._graph
        way = graph.transitions[index]
        if index in graph.to_end:
            return _Way(index, None, None, way.passed, None, False, graph.ends_by_time, False)
        leaf = self._leaves[way.target]
        return _Way(
            index,
            leaf.where,
            leaf.until,
            way.passed,
            way.leaf_in_run if leaf.step.is_greedy else None,
            way.is_inner,
            way.contiguity is not Contiguity.STRICT,
            way.contiguity is Contiguity.ANY,
        )

    def _leaf(self, step: Step, negative: Sequence[Step]) -> _Leaf:
        return _Leaf(
            step,
            self._condition(step, step.where),
            None if step.until is None else self._condition(step, step.until),
            tuple(self._condition(n, n.where) for n in negative if n.contiguity is Contiguity.STRICT),
            tuple(self._condition(n, n.where) for n in negative if n.contiguity is not Contiguity.STRICT),
        )

    def _condition(self, step: Step, function: Callable[..., object]) -> _Condition:
        return _Condition(step.name, function, self._wrap(function))
