"""The oracle: checks what a job has left, knowing only its input and graph, and what it expects of them.

* Nothing is lost and nothing counts twice in the committed output (at least once: nothing is lost).
* For each keyed operator, the output shows one sequence of records per key. It has every expected record once
  and preserves the order of every channel. Its digests equal those of a recomputation.
* Each window of each key was emitted once, with all of its records.
* Sessions, timers and state that expires are as `timed_rule.py` finds them.
* The state in the last checkpoint equals that recomputation, and so do the counters.

After a broadcast, every subtask gets every record, so each subtask is checked separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final

from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.watches import Restores
from simulated_jobs.columns import column_problems
from simulated_jobs.connected import connected_problems
from simulated_jobs.records import (
    Copies,
    ExternalSystem,
    Identity,
    Key,
    Origin,
    Record,
    Route,
    digest_after,
    identity_of,
    key_of,
    lanes_of,
)
from simulated_jobs.rules import FinalState
from simulated_jobs.scenario import Scenario
from simulated_jobs.shape import OperatorKind, OperatorShape, Shape
from simulated_jobs.timed import TIMED, unfinished_windows, whole_windows
from simulated_jobs.timed_rule import TimedRule

#: Operator, copy, and the lane after a broadcast (else -1) of each step.
_Way = tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class Expectation:
    """The expected output.

    Attributes:
        output: What each sink must have committed, by the sink's id.
        keyed: What each key of each keyed operator must have seen, whatever the order.
        seen: What each operator must have been given.
    """

    output: dict[str, set[Identity]] = field(default_factory=dict)
    keyed: dict[tuple[int, Key], set[Identity]] = field(default_factory=dict)
    seen: dict[int, set[Identity]] = field(default_factory=dict)


def expect(shape: Shape) -> Expectation:
    """Follow every record along every way."""
    expected = Expectation()
    for operator in shape.operators:
        expected.seen[operator.number] = set()
        if operator.kind is OperatorKind.SINK:
            expected.output[operator.id] = set()
    for path in shape.paths():
        operators = [
            (operator, shape.vertices[position].parallelism)
            for position in path
            for operator in shape.vertices[position].operators
            if operator.shows_in_routes
        ]
        for origin in _origins(shape, path[0]):
            _follow(shape, origin, operators, expected)
    return expected


def _origins(shape: Shape, position: int) -> Iterator[Origin]:
    vertex = shape.vertices[position]
    for split, count in enumerate(vertex.counts):
        for index in range(count):
            yield vertex.head.number, split, index


def _follow(
    shape: Shape, origin: Origin, operators: list[tuple[OperatorShape, int]], expected: Expectation
) -> None:
    ways: list[_Way] = [()]
    before: int | None = None
    for operator, parallelism in operators:
        number = operator.number
        for way in ways:
            expected.seen[number].add((origin, way))
            if operator.kind is OperatorKind.KEYED:
                key = key_of(origin, number, operator.keys, text=operator.text_keys)
                expected.keyed.setdefault((number, key), set()).add((origin, way))
        is_broadcast = (before, number) in shape.broadcasts
        lanes = range(parallelism) if is_broadcast else (-1,)
        copies = operator.copies if operator.kind is OperatorKind.STEP else Copies.ONE
        made = range(copies.of(origin))
        ways = [(*way, (number, copy, lane)) for way in ways for lane in lanes for copy in made]
        before = number
    expected.output[operators[-1][0].id].update((origin, way) for way in ways)


#: How many examples a message names.
MOST_EXAMPLES: Final = 5

#: Number, digest, record and way of one record that a key has seen.
_Seen = tuple[int, int, Record]


class Oracle:
    """Checks one run; see the module's text.

    Args:
        scenario: What the seed picked.
        system: What was committed.
        restores: What is different because the job came up at another parallelism; by default it did not.
    """

    def __init__(self, scenario: Scenario, system: ExternalSystem, restores: Restores | None = None) -> None:
        self._scenario = scenario
        self._system = system
        self._is_reordered = restores is not None and restores.is_reordered
        self._left_behind = set() if restores is None else restores.left_behind
        self._broadcasts = scenario.shape.broadcasts
        self._expected: Expectation = expect(scenario.shape)
        self._written = {
            operator.id: list(self._rows(system, operator.id, operator.number))
            for operator in scenario.shape.operators
            if operator.kind is OperatorKind.SINK
        }

    def check_cancelled(self) -> list[str]:
        """Violations of a cancelled job: it may have lost the rest, and nothing else."""
        problems = [p for sink in self._written for p in self._check_output(sink, complete=False)]
        problems += self._check_windows() + self._check_columns(complete=False) + self._check_timed(None)
        return problems + self._check_connected(complete=False)

    def check_finished(self, state: FinalState | None) -> list[str]:
        """Violations of a finished job.

        Args:
            state: The last checkpoint; `None` when the job takes none.
        """
        problems = [p for sink in self._written for p in self._check_output(sink, complete=True)]
        problems += self._check_columns(complete=True) + self._check_timed(state, complete=True)
        problems += self._check_connected(complete=True)
        if not self._scenario.is_exactly_once:
            return problems + ([] if state is None else self._check_counted(state))
        sequences = self._sequences(problems)
        problems += self._check_sequences(sequences) + self._check_windows()
        if not self._is_reordered:
            problems += self._check_sink_order()
        if state is not None:
            problems += self._check_counted(state) + self._check_keyed(state, sequences)
        return problems

    # -- the output ---------------------------------------------------------------------------------------

    def _rows(self, system: ExternalSystem, sink: str, number: int) -> Iterator[Record]:
        """The committed records, with the sink's subtask as the last step."""
        for (_, subtask, *_), rows in system.transactions(sink).items():
            for origin, route in rows:
                yield origin, (*route, (number, subtask, 0))

    def _check_output(self, sink: str, *, complete: bool) -> list[str]:
        written = Counter(self._identity(*record) for record in self._written[sink])
        expected = self._expected.output[sink]
        problems = []
        if complete:
            problems += _report(f"{sink} lost", expected - written.keys())
        problems += _report(f"{sink} committed what nobody sent", written.keys() - expected)
        if self._scenario.is_exactly_once:
            problems += _report(f"{sink} committed twice", (i for i, n in written.items() if n > 1))
        return problems

    def _check_sink_order(self) -> list[str]:
        problems = []
        for sink, records in self._written.items():
            for what, before, after in _disorder(records):
                problems.append(f"{sink} wrote {after} behind {before} of channel {what}")
        return problems[:MOST_EXAMPLES]

    def _check_windows(self) -> list[str]:
        """Each window came out once and whole; with a drain the open ones come out as they are."""
        if not self._are_windows_whole:
            return []
        problems: list[str] = []
        for vertex in self._scenario.shape.vertices:
            window, sink = vertex.head, vertex.operators[-1].id
            if window.kind is OperatorKind.WINDOW:
                key = partial(key_of, operator=window.number, keys=window.keys, text=window.text_keys)
                whole = whole_windows(self._expected.output[sink], key, window.length)
                problems += unfinished_windows(window.number, self._written[sink], whole)
        return problems[:MOST_EXAMPLES]

    @property
    def _are_windows_whole(self) -> bool:
        is_drained = any(fault.kind is FaultKind.DRAINED for fault in self._scenario.faults)
        return self._scenario.is_exactly_once and not is_drained

    def _check_columns(self, *, complete: bool) -> list[str]:
        """The part with Arrow batches has summed up every record once."""
        columns = self._scenario.shape.columns
        if columns is None:
            return []
        return column_problems(
            columns,
            self._system,
            complete=complete,
            exactly_once=self._scenario.is_exactly_once,
            whole_windows=self._are_windows_whole,
        )[:MOST_EXAMPLES]

    def _check_timed(self, state: FinalState | None, *, complete: bool = False) -> list[str]:
        """The part that lives by time has done everything once, at its time."""
        timed, scenario = self._scenario.shape.timed, self._scenario
        if timed is None:
            return []
        rule = TimedRule(
            timed,
            self._system,
            exactly_once=scenario.is_exactly_once,
            is_whole=self._are_windows_whole,
            clocks_disagree=scenario.conditions.clock_drift > 0.0
            or any(fault.kind is FaultKind.CLOCK_SET for fault in scenario.faults),
        )
        may_lack = TIMED in self._left_behind
        return rule.problems(complete=complete, state=state, may_lack=may_lack)[:MOST_EXAMPLES]

    def _check_connected(self, *, complete: bool) -> list[str]:
        """The operator with two inputs has processed every record of both once."""
        connected = self._scenario.shape.connected
        if connected is None:
            return []
        return connected_problems(
            connected,
            self._system,
            complete=complete,
            exactly_once=self._scenario.is_exactly_once,
            is_whole=self._are_windows_whole,
        )[:MOST_EXAMPLES]

    # -- keyed operators ----------------------------------------------------------------------------------

    def _sequences(self, problems: list[str]) -> dict[tuple[int, Key], dict[int, _Seen]]:
        """The records of each key, by number, according to the output."""
        sequences: dict[tuple[int, Key], dict[int, _Seen]] = {}
        keyed = {o.number for o in self._scenario.shape.operators if o.kind is OperatorKind.KEYED}
        for records in self._written.values():
            for origin, route in records:
                for position, step in enumerate(route):
                    if step[0] in keyed:
                        seen = (step[4], step[5], (origin, route[:position]))
                        known = sequences.setdefault((step[0], step[3]), {}).setdefault(step[4], seen)
                        if known != seen:
                            problems.append(
                                f"operator {step[0]}, key {step[3]!r}: two records have number {step[4]}: "
                                f"{known[2]} and {seen[2]}"
                            )
        return sequences

    def _check_sequences(self, sequences: dict[tuple[int, Key], dict[int, _Seen]]) -> list[str]:
        problems = []
        for (operator, key), expected in self._expected.keyed.items():
            where = f"operator {operator}, key {key!r}"
            sequence = sequences.get((operator, key), {})
            problems += _report(
                f"{where} lost", expected - {self._identity(*s[2]) for s in sequence.values()}
            )
            if sorted(sequence) != list(range(1, len(expected) + 1)):
                numbers = sorted(sequence)
                problems.append(f"{where} numbered {len(expected)} records {numbers[:3]}...{numbers[-3:]}")
                continue
            digest = 0
            for number in sorted(sequence):
                _, recorded, (origin, way) = sequence[number]
                digest = digest_after(digest, origin, way)
                if digest != recorded:
                    problems.append(f"{where}: the state after record {number} is not the recomputed one")
                    break
            in_order = [sequence[number][2] for number in sorted(sequence)]
            for what, before, after in () if self._is_reordered else _disorder(in_order):
                problems.append(f"{where} saw {after} behind {before} of channel {what}")
        return problems

    # -- state --------------------------------------------------------------------------------------------

    def _check_counted(self, state: FinalState) -> list[str]:
        problems = []
        for operator in self._scenario.shape.operators:
            if operator.kind is OperatorKind.STEP:
                counted, expected = state.counted(operator.id), len(self._reached(operator.number))
                exactly = self._scenario.is_exactly_once
                may_lack = operator.id in self._left_behind
                if (counted < expected and not may_lack) or (exactly and counted > expected):
                    problems.append(
                        f"{operator.id} has counted {counted} records in its state, not {expected}"
                    )
            elif operator.kind is OperatorKind.SOURCE and (left := state.unread(operator.id)):
                problems.append(f"{operator.id} has left {left} unread")
        return problems

    def _reached(self, operator: int) -> list[Identity]:
        """The input of an operator, separately for each subtask after a broadcast."""
        reached = []
        lanes = {v.head.number: v.parallelism for v in self._scenario.shape.vertices}
        for origin, way in self._expected.seen[operator]:
            before = way[-1][0] if way else -1
            times = lanes[operator] if (before, operator) in self._broadcasts else 1
            reached += [(origin, way)] * times
        return reached

    def _check_keyed(
        self, state: FinalState, sequences: dict[tuple[int, Key], dict[int, _Seen]]
    ) -> list[str]:
        problems = []
        for operator in self._scenario.shape.operators:
            if operator.kind is not OperatorKind.KEYED:
                continue
            expected: dict[Any, tuple[int, int]] = {}
            for (number, key), sequence in sequences.items():
                if number == operator.number and sequence:
                    last = max(sequence)
                    expected[key] = last, sequence[last][1]
            found = state.keyed(operator.id, operator.number)
            if operator.id in self._left_behind:
                expected = {key: seen for key, seen in expected.items() if key in found}
            if found != expected:
                wrong = [k for k in {**expected, **found} if expected.get(k) != found.get(k)]
                problems.append(
                    f"{operator.id}: the last checkpoint's state differs for keys {wrong[:MOST_EXAMPLES]}: "
                    f"{[found.get(k) for k in wrong[:3]]} instead of {[expected.get(k) for k in wrong[:3]]}"
                )
        return problems

    def _identity(self, origin: Any, route: Route) -> Identity:
        return identity_of(origin, route, self._broadcasts)


def _report(what: str, identities: Iterable[Identity]) -> list[str]:
    some = sorted(identities)
    if not some:
        return []
    examples = ", ".join(str(identity) for identity in some[:MOST_EXAMPLES])
    return [f"{what} {len(some)} records: {examples}{' ...' if len(some) > MOST_EXAMPLES else ''}"]


def _disorder(records: Iterable[Record]) -> Iterator[tuple[Any, Any, Any]]:
    """Pairs of records that one split sent along one way, and that came in the wrong order."""
    channels: dict[Any, list[Any]] = {}
    for (source, split, index), route in records:
        copies = tuple(step[2] for step in route)
        channels.setdefault((source, split, lanes_of(route)), []).append((index, copies))
    for channel, positions in channels.items():
        for before, after in pairwise(positions):
            if after <= before:
                yield channel, before, after
                break
