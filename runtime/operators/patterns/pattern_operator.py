"""`PatternOperator`: finds a pattern in the records of each key, in the order of their timestamps.

Records wait for the watermark as in `sorted_by_time` (`time_order.py`). Then `Matcher` processes them in the
order of their timestamps. A watermark also lets partial matches time out if no record arrives. For this an
index in memory has the next deadline of each key. The operator builds the index from the state when it opens.
Deadlines at a moment are handled before its records, so a record at exactly the limit comes too late.

*State.* Besides the table of waiting records there are two nested tables. `partial_matches` has an entry for
each partial match of a key, which refers to records by number. `matched_records` has each of these records
once, however many partial matches share it. A checkpoint writes the partial matches and records that have
changed since the last checkpoint. A record is deleted with its last partial match, and a key with its last
record. So if the pattern has a time limit, the state of a key is deleted even if no further record arrives.

Partial matches depend on the steps of the pattern. So the operator refuses to restore partial matches of
other steps. Conditions and limits may change.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.functions.function_operator import check_function, only_tables
from penstock.runtime.operators.functions.process_function import FunctionContext, SideOutputs
from penstock.runtime.operators.functions.time_order import (
    WAITING_RECORDS,
    Released,
    TimeOrderedOperator,
    by_arrival,
)
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.patterns.key_matches import KeyMatches, Match
from penstock.runtime.operators.patterns.matcher import Matcher
from penstock.runtime.operators.patterns.pattern import Pattern, takes_match
from penstock.runtime.operators.patterns.step import leaves
from penstock.runtime.operators.timers import FunctionTimerService
from penstock.runtime.operators.user_code.failure import CurrentRecord, short_repr
from penstock.runtime.operators.user_code.function_class import OutputTag
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.windows.window_state import TimerIndex
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.own_copy import own_copies, own_copy
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.user_location import function_location

#: Names of the state tables.
PARTIAL_MATCHES: Final = "partial_matches"
MATCHED_RECORDS: Final = "matched_records"

#: Name of the list state that holds the steps of the pattern.
STEPS: Final = "steps"

#: Maximum number of keys whose many partial matches stay decoded and indexed in memory.
_KNOWN_KEYS: Final = 100

#: Span of every item in the index of deadlines, because deadlines belong to no window.
_NO_SPAN: Final = (0, 0)

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class PatternContext(FunctionContext):
    """Context of a `PatternProcessFunction`.

    `timestamp` is the moment at which a match is complete, or at which a partial match times out. If a skip
    strategy has held the match back, it is the moment at which the match is released.

    Attributes:
        current_key: Key of the match; unset in `open`, `snapshot` and `close`.
    """

    __slots__ = ("current_key",)

    current_key: Any


class PatternProcessFunction(ABC, Generic[K, T, R]):
    """A function of the matches of a pattern (Flink's `PatternProcessFunction`).

    A match is a dict that has a list of records for each step name. The list of an optional step may be
    empty. Each subtask has its own copy of the object.

    Example:
        >>> from penstock import OutputTag
        >>> from penstock.testing import OperatorHarness
        >>> class Paid(PatternProcessFunction[str, str, str]):
        ...     unpaid = OutputTag[str]()
        ...
        ...     def process_match(self, match, ctx):
        ...         yield f"{ctx.current_key} paid"
        ...
        ...     def process_timed_out_match(self, match, ctx):
        ...         ctx.output(self.unpaid, ctx.current_key)
        >>> pattern = (
        ...     Pattern.begin("order", where=lambda event: event[1] == "order")
        ...     .followed_by("payment", where=lambda event: event[1] == "payment")
        ...     .within(60)
        ... )
        >>> def paid(events):
        ...     return events.key_by(lambda event: event[0]).pattern(pattern).process("paid", Paid())
        >>> with OperatorHarness.of(paid) as harness:
        ...     pushed = harness.push([("ann", "order"), ("bob", "order"), ("ann", "payment")], [1, 2, 3])
        ...     harness.push_watermark(60_000_002)
        ...     harness.side_output("unpaid")
        ['ann paid']
        ['bob']
    """

    def open(self, ctx: FunctionContext) -> None:
        """Prepare the function; called once per attempt, before any match."""

    @abstractmethod
    def process_match(self, match: dict[str, list[T]], ctx: PatternContext) -> Iterable[R] | None:
        """Process one match; return or yield the records to emit, or return `None`."""

    def process_timed_out_match(self, match: dict[str, list[T]], ctx: PatternContext) -> Iterable[R] | None:
        """Process a partial match that has exceeded a limit of `within`; return records, or `None`.

        Steps that the partial match has not reached have empty lists.
        """
        return None

    def snapshot(self, checkpoint_id: int) -> None:
        """Bring the lists of the subtask (`OperatorListState`) up to date for a snapshot; emits nothing."""

    def close(self) -> None:
        """Release resources; called once, even after a failure."""


class Selection(PatternProcessFunction[Any, Any, Any]):
    """Emits the result of a function for each match, and timed-out partial matches on a side output."""

    def __init__(self, function: Callable[[Any], Any], timed_out: OutputTag[Any] | None) -> None:
        self.function, self.timed_out = function, timed_out

    def process_match(self, match: Match, ctx: PatternContext) -> list[Any]:
        return [self.function(match)]

    def process_timed_out_match(self, match: Match, ctx: PatternContext) -> None:
        if self.timed_out is not None:
            ctx.output(self.timed_out, match)


class PatternOperator(TimeOrderedOperator):
    """Finds the matches of a pattern in the records of each key."""

    kind: ClassVar[str] = "pattern"
    owner: ClassVar[str] = "a pattern"

    _matcher: Matcher
    _partial: StateTable
    _matched: StateTable
    _side: SideOutputs
    _context: PatternContext

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        pattern: Pattern[Any],
        function: PatternProcessFunction[Any, Any, Any],
        order: Callable[[Any], Any] = by_arrival,
        late_tag: str = LATE_RECORDS,
    ) -> None:
        # Subtasks of a simulation share one process, so each needs a copy.
        self._pattern, self._user = copy.deepcopy((pattern, function))
        #: The user's functions for matches and for partial matches that time out.
        self._user_function: Callable[..., Any] = self._user.process_match
        self._timeout_function: Callable[..., Any] | None = self._user.process_timed_out_match
        if isinstance(self._user, Selection):
            self._user_function = self._user.function
            if self._user.timed_out is None:
                self._timeout_function = None
        elif type(self._user).process_timed_out_match is PatternProcessFunction.process_timed_out_match:
            self._timeout_function = None
        super().__init__(key_selector, self._user_function, late_tag, order=order)
        self.takes_generators = not isinstance(self._user, Selection)
        self._deadlines = TimerIndex()
        #: By key: the state's entries when its matches were read, and the decoded matches.
        self._known: dict[Any, tuple[Mapping[int, Any], KeyMatches]] = {}
        #: The matches of a key that has none; replaced when they become those of a key.
        self._no_matches = KeyMatches()
        self._stamp: int | None = None
        #: The record that the matcher processes, in a list, because a record may be `None`.
        self._matching: list[Any] | None = None
        #: The user's function that is being called for a match, and the key.
        self._firing: tuple[Callable[..., Any], Any] | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        for condition in self._conditions:
            check_function("pattern", condition)
        self._copies_matches = self.isolates and not all(map(only_reads, self._match_functions))
        self._matcher = Matcher(self._pattern, self._wrapped if self.isolates else lambda function: function)
        self._side = SideOutputs(type(self._user))
        self._side.isolates = self.isolates
        if isinstance(self._user, Selection) and self._user.timed_out is not None:
            self._side.declare(self._user.timed_out)
        self._context = PatternContext(context, FunctionTimerService(context.connector.clock), self._side)
        if self._partial.entries:
            self._check_steps(context.restored.get(STEPS, ()))
        for key, saved in self._partial.entries.items():
            deadline = self._matcher.deadline(KeyMatches.of(saved, {}))
            if deadline is not None:
                self._deadlines.add(deadline, _NO_SPAN, key)
        self._made = self._user
        context.lists.bind_declared(self._user)
        self._call_method(self._user, "open", self._context)

    def _open_table(self, context: OperatorContext) -> StateTable:
        names = (WAITING_RECORDS, PARTIAL_MATCHES, MATCHED_RECORDS)
        waiting, self._partial, self._matched = only_tables(context, names, self.owner, nested=True)
        return waiting

    def _check_steps(self, restored: Iterable[Any]) -> None:
        for saved in restored:
            if saved != self._steps:
                raise _other_steps(saved, self._steps)

    @property
    def _steps(self) -> tuple[Any, ...]:
        return tuple(step.shape for step in self._pattern.steps)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        steps = SavedList([self._steps], RedistributionMode.BROADCAST)
        return {**super().snapshot(checkpoint_id), STEPS: steps}

    # -- the user's functions -----------------------------------------------------------------------------

    @property
    def _conditions(self) -> Iterator[Callable[..., Any]]:
        for step in leaves(self._pattern.steps):
            yield step.where
            if step.until is not None:
                yield step.until

    @property
    def _match_functions(self) -> Iterator[Callable[..., Any]]:
        yield self._user_function
        if self._timeout_function is not None and not isinstance(self._user, Selection):
            yield self._timeout_function

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return (*self._match_functions, *self._conditions, self._order)

    def _wrapped(self, condition: Callable[..., object]) -> Callable[..., object]:
        """Give copies of records to a condition that might change them."""
        if only_reads(condition):
            return condition
        if takes_match(condition):
            return lambda record, match: condition(own_copy(record), _copied(match))
        return lambda record: condition(own_copy(record))

    @property
    def doing(self) -> str:
        if self._selecting or self._ordering is not None:
            return super().doing
        running = self._matcher.running if hasattr(self, "_matcher") else None
        if self._matching is not None and running is not None:
            step, condition = running
            return f"{self.kind}: condition of step {step!r} {function_location(condition)}"
        firing = self._firing  # read once: a watchdog reads it from another thread
        if firing is not None:
            function, key = firing
            return f"{self.kind} function {function_location(function)} for key {short_repr(key)}"
        return super().doing

    @property
    def current_record(self) -> CurrentRecord | None:
        matching = self._matching
        return super().current_record if matching is None else CurrentRecord(matching[0])

    # -- matching -----------------------------------------------------------------------------------------

    def _next_end(self) -> int | None:
        deadline, released = self._deadlines.next_at, self._buffer.next_at
        if deadline is None or released is None:
            return released if deadline is None else deadline
        return min(deadline, released)

    def _next_due(self, until: int) -> Released | None:
        if self._deadlines.next_at is None:
            return super()._next_due(until)
        released = self._buffer.next_at
        due = self._deadlines.pop(until if released is None else min(until, released))
        if due is None:
            return super()._next_due(until)
        at, _, key = due
        return at, key, []

    def _release(self, due: Iterable[Released]) -> Iterator[Output]:
        self._context.timer_service.advance(self._reached.timestamp)
        # Before each result `_stamp` is set to its moment; `None` ends the iterator.
        results = self._collector.collect(self._results(due), iter(lambda: self._stamp, None))
        return self._side.merged_into(results)

    def _results(self, due: Iterable[Released]) -> Iterator[Any]:
        context = self._context
        for at, key, records in due:
            found = self._advance(key, at, records)
            if found is None:
                continue
            matches, timed_out = found
            self._stamp = context.timestamp = at
            context.current_key = key
            if self._timeout_function is not None:
                self._firing = self._timeout_function, key
                for match in timed_out:
                    yield self._user.process_timed_out_match(self._own(match), context)
            self._firing = self._user_function, key
            for match in matches:
                yield self._user.process_match(self._own(match), context)
            self._firing = None
            del context.current_key
        self._stamp = context.timestamp = None

    def _own(self, match: Match) -> Match:
        return _copied(match) if self._copies_matches else match

    def _advance(self, key: Any, at: int, records: list[Any]) -> tuple[list[Match], list[Match]] | None:
        """Advance a key's time to a moment, process its records of this moment, and update the state.

        Returns:
            The matches, and the partial matches that have timed out; `None` without either.
        """
        matcher = self._matcher
        saved = self._partial.entries.get(key)
        of_key = self._no_matches if saved is None else self._matches_of(key, saved)
        deadline = matcher.deadline(of_key)
        matches: list[Match] = []
        timed_out: list[Match] = []
        if deadline is not None and deadline <= at:
            complete, timed_out = matcher.expire(of_key, at)
            matches += complete
        for record in self._ordered(records):
            self._matching = [record]
            matches += matcher.advance(of_key, at, record).matches
        self._matching = None
        if of_key.changed:
            self._save_matches(key, saved, of_key, deadline)
        if of_key.added or of_key.deleted:
            self._save_records(key, of_key)
        if of_key.records and saved is None:
            self._no_matches = KeyMatches()
        of_key.forget_changes()
        return (matches, timed_out) if matches or timed_out else None

    def _matches_of(self, key: Any, saved: dict[int, Any]) -> KeyMatches:
        records = self._matched.entries[key]
        known = self._known.pop(key, None) if self._known else None
        # A backend may have dropped the key from memory since, and read it again.
        if known is None or known[0] is not saved or known[1].records is not records:
            known = saved, KeyMatches.of(saved, records)
        if known[1].ids is not None:
            if len(self._known) >= _KNOWN_KEYS:
                del self._known[next(iter(self._known))]
            self._known[key] = known
        return known[1]

    def _save_matches(
        self, key: Any, saved: dict[int, Any] | None, of_key: KeyMatches, deadline_before: int | None
    ) -> None:
        """Write changed matches, and report them last: a backend may then drop the key from memory."""
        entries, changed, partial, held = self._partial.entries, of_key.changed, of_key.partial, of_key.held
        if saved is None:
            if not (partial or held):
                return
            saved = entries[key] = {}
        for match_id in changed:
            match = partial.get(match_id) or held.get(match_id)
            if match is not None:
                saved[match_id] = tuple(match)
            elif match_id in saved:
                del saved[match_id]
        if not saved:
            del entries[key]
        self._partial.changed.update([(key, match_id) for match_id in changed])
        deadline = self._matcher.deadline(of_key)
        if deadline != deadline_before:
            if deadline_before is not None:
                self._deadlines.remove(deadline_before, _NO_SPAN, key)
            if deadline is not None:
                self._deadlines.add(deadline, _NO_SPAN, key)

    def _save_records(self, key: Any, of_key: KeyMatches) -> None:
        entries = self._matched.entries
        if not of_key.records:
            del entries[key]
        elif key not in entries:
            entries[key] = of_key.records
        self._matched.changed.update([(key, number) for number in (*of_key.added, *of_key.deleted)])


def _copied(match: Match) -> Match:
    return {name: own_copies(records) for name, records in match.items()}


def _other_steps(saved: Iterable[Any], steps: Iterable[Any]) -> StateMismatchError:
    was, now = (", ".join(map(str, shape)) for shape in (saved, steps))
    return StateMismatchError(
        f"the restored partial matches have the steps {was}. This program's steps are {now}. "
        "Give the operator a new id, or change the steps back"
    )
