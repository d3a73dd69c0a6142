"""One generated loop for neighbouring `map`, `filter` and `flat_map` operators of a chain.

Calling two cheap functions costs less than moving a row from one operator to the next. Each operator walks
over its batch, and appends its results to a list. So a chain gives a run of such operators to a
`FusedLoop`. Its Python code is generated when the first batch comes. For `map(f0).filter(f1).map(f2)` it is

    return [
        f2(x1)
        for x0 in rows
        if f1((x1 := f0(x0)))
    ]

**Why the results are the same.** A loop calls all functions for a row before it takes the next one.
Operators one by one would call `f0` for all rows before the first call of `f1`. Only effects of functions
could show the difference. So at most one function of a loop may have effects. All others only read
(`only_reads`): it does not matter between which calls of that one function they run. The other operators of
the run get further loops. Each of these takes the whole result of the loop before it.

The same rule limits copies (`Emission`). Functions that only read need no copies between them, so one copy of
the loop's results stands for the copies behind each `map`. A function that may change its record gets copies.
So it begins a new loop, unless only filters precede it.

**A failure.** The loop calls no function again to find what failed, so no effect is repeated. Each call is on
a line of its own, so the line in the traceback names the operator. The values of the row are in variables, so
the error shows the record that the function received. Rows before the failing one have passed all functions
of the loop, and later rows none. A failing batch emits nothing, except what a `flat_map` emitted before.

**Numbers.** A batch counts for an operator when its loop is done, or has filled a batch of a `flat_map`. The
last filter of a loop lets as many rows pass as the loop returns. Every other filter notes the rows that it
rejects in a list, whose length is their number.

A `flat_map` ends the run, because its results may be endless. Its loop is a generator, and a
`ResultCollector` draws batches from it. A pause between two of these batches leaves the generator as it is.

Three things must never happen. A loop must not have two functions with effects. It must not call a function
twice for a row. It must not call one through `map()`: a `StopIteration` would then end the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dis import get_instructions
from operator import length_hint
from types import CodeType, FrameType, FunctionType, GeneratorType, TracebackType
from typing import Any, Final, TypeAlias

from penstock.runtime.operators.functions.function_operator import FunctionOperator, rows_of
from penstock.runtime.operators.functions.record_functions import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.user_code.failure import CurrentRecord, RecordCursor
from penstock.runtime.operators.user_code.result_collector import Emission
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.state.own_copy import LEAVES, own_copies, own_copy

#: File name of generated code in tracebacks.
FILE_OF_LOOPS: Final = "<penstock: fused loop>"

#: Maximum number of operators in one loop: Python bounds the nesting of an expression.
_MOST_IN_LOOP: Final = 24

#: Counts records that went from an operator, given by its place in the run, to the next one.
Passed: TypeAlias = Callable[[int, int], None]


def can_fuse(operator: object) -> bool:
    """Whether a loop can run an operator; a `flat_map` only as the last one."""
    return type(operator) in (MapOperator, FilterOperator, FlatMapOperator)


def ends_run(operator: object) -> bool:
    return type(operator) is FlatMapOperator


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The call that failed: the operator's place in the run, and the record if it is known."""

    place: int
    record: CurrentRecord | None


class FusedLoop:
    """Runs neighbouring operators of a chain in place of their `process`.

    Args:
        operators: Open operators for which `can_fuse` holds, in the order of the chain.
        passed: Counts the records that do not leave the run. The chain counts all others.

    Attributes:
        is_running: Whether a batch is in progress. It stays true after a failure.
    """

    def __init__(self, operators: Sequence[FunctionOperator], passed: Passed) -> None:
        self._last = last = len(operators) - 1
        self._parts = [_Part(first, part, last, passed) for first, part in _parts_of(operators)]
        self._has_rows = False
        self.is_running = False

    def process(self, batch: Batch) -> Iterator[RowBatch]:
        self.is_running, self._has_rows = True, False
        rows = rows_of(batch)
        self._has_rows = True
        for part in self._parts:
            if part.collects:
                yield from part.collect(rows)
            else:
                rows = part.run(rows)
        if not self._parts[-1].collects:
            yield rows
        self.is_running = False

    def failed_call(self, error: BaseException) -> FailedCall:
        """The call that raised `error` while this loop ran."""
        for part in self._parts:
            found = part.failed_call(error)
            if found is not None:
                return found
        if not self._has_rows:  # the batch has no rows of Python, so its first reader is at fault
            return FailedCall(0, None)
        return FailedCall(self._last, self._parts[-1].collected_record)

    def place_at(self, frame: FrameType) -> int:
        """The place of the operator that generated code calls in a frame."""
        places = (part.place_at(frame.f_code, frame.f_lineno) for part in self._parts)
        return next((place for place in places if place is not None), self._last)


class _Part:
    """The operators of one generated loop.

    Args:
        first: Place of its first operator in the run.
        last: Place of the last operator of the run.
    """

    def __init__(self, first: int, operators: Sequence[FunctionOperator], last: int, passed: Passed) -> None:
        self._first = first
        self._last = last
        self._operators = operators
        self._passed = passed
        self._cursor = RecordCursor()
        self.collects = ends_run(operators[-1])
        self._filters = [at for at, op in enumerate(operators) if type(op) is FilterOperator]
        #: For each filter, one entry for each row that it rejected and that was not counted yet.
        self._rejected: dict[int, list[None]] = {at: [] for at in self._filters}
        if self._filters and not self.collects:
            del self._rejected[self._filters[-1]]  # the loop's results are counted
        self._loops: dict[bool, _Generated] = {}
        self._results: Any = None

    def run(self, batch: RowBatch) -> RowBatch:
        rows, stamps = batch.rows, batch.timestamps
        given = self._cursor.over(rows)
        if stamps is None or not self._filters:
            results = self._loop(timed=False)(given)
        else:
            kept: list[int] = []
            results = self._loop(timed=True)(given, stamps, kept.append)
            stamps = kept
        self._cursor.done()
        self._note(len(rows), len(results))
        return RowBatch(results, stamps)

    def collect(self, batch: RowBatch) -> Iterator[RowBatch]:
        """The batches of a `flat_map`; each is counted for all operators before it is emitted."""
        rows, stamps = batch.rows, batch.timestamps
        given = self._cursor.over(rows)
        times: Sequence[int] | Iterator[int] | None = stamps
        if stamps is None or not self._filters:
            self._results = self._loop(timed=False)(given)
        else:
            kept: list[int] = []
            self._results = self._loop(timed=True)(given, stamps, kept.append)
            times = iter(kept)
        noted = 0
        flat_map = self._operators[-1]
        assert isinstance(flat_map, FlatMapOperator)
        for part in flat_map.collected(self._results, times):
            drawn = len(rows) - length_hint(given)
            self._note(drawn - noted, 0)
            noted = drawn
            yield part
        self._note(len(rows) - noted, 0)
        self._results = None
        self._cursor.done()

    def failed_call(self, error: BaseException) -> FailedCall | None:
        """The call of this loop that raised `error`; `None` if the traceback has none."""
        for raised in (error, error.__cause__):
            # A generator turns a StopIteration into a RuntimeError, whose cause has the traceback.
            if raised is None or (raised is not error and not isinstance(raised, StopIteration)):
                continue
            calls = [
                (place, frame)
                for frame, line in _lines(raised.__traceback__)
                if (place := self.place_at(frame.f_code, line)) is not None
            ]
            if calls:
                place = calls[-1][0]
                return FailedCall(place, self._record_at(place - self._first, [frame for _, frame in calls]))
        return None

    @property
    def collected_record(self) -> CurrentRecord | None:
        """The record whose results a `flat_map` is emitting."""
        results = self._results
        if type(results) is not GeneratorType or results.gi_frame is None:
            return None
        return self._record_at(len(self._operators) - 1, [results.gi_frame])

    def place_at(self, code: CodeType, line: int) -> int | None:
        """The place in the run of the operator that a line of this loop calls; `None` for other code."""
        # Not `in`: the code of two parts of a run may be equal.
        loops = self._loops.values()
        loop = next((loop for loop in loops if any(code is known for known in loop.codes)), None)
        return None if loop is None else self._first + loop.places.get(line, 0)

    def _record_at(self, place: int, frames: Sequence[FrameType]) -> CurrentRecord | None:
        name = next(loop.inputs[place] for loop in self._loops.values())
        if name == _FIRST:
            return self._cursor.current
        found = [frame.f_locals[name] for frame in frames if name in frame.f_locals]
        return CurrentRecord(found[-1]) if found else None

    def _note(self, taken: int, given: int) -> None:
        last = self._filters[-1] if self._filters else None
        for at in range(len(self._operators)):
            if at in self._rejected:
                taken -= len(self._rejected[at])
                self._rejected[at].clear()
            elif at == last:
                taken = given
            if self._first + at < self._last:
                self._passed(self._first + at, taken)

    def _loop(self, *, timed: bool) -> Callable[..., Any]:
        loop = self._loops.get(timed)
        if loop is None:
            loop = self._loops[timed] = _generated(self._operators, self._rejected, timed=timed)
        return loop.function


def _lines(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a traceback, each with the line of the call that failed.

    The test of a filter's result has the line of the whole comprehension. Its call is the instruction before.
    """
    while traceback is not None:
        frame, line, before = traceback.tb_frame, traceback.tb_lineno, None
        if frame.f_code.co_filename == FILE_OF_LOOPS:
            for instruction in get_instructions(frame.f_code):
                if instruction.offset == traceback.tb_lasti:
                    if before and ("JUMP" in instruction.opname or instruction.opname == "TO_BOOL"):
                        line = before
                    break
                if instruction.positions and instruction.positions.lineno:
                    before = instruction.positions.lineno
        yield frame, line
        traceback = traceback.tb_next


@dataclass(frozen=True, slots=True)
class _Generated:
    """Generated code.

    Attributes:
        codes: Code of the function, and of the comprehension or generator in it.
        places: Operator that each line calls, by its place in the part.
        inputs: Name of the variable with the record that each operator receives.
    """

    function: Callable[..., Any]
    codes: frozenset[CodeType]
    places: Mapping[int, int]
    inputs: Sequence[str]


#: Variable with the row that the loop takes.
_FIRST: Final = "x0"


def _parts_of(operators: Sequence[FunctionOperator]) -> Iterator[tuple[int, Sequence[FunctionOperator]]]:
    """Cut a run into the operators of one loop each, with the place of the first of them."""
    first = 0
    for at in range(1, len(operators)):
        before = operators[first:at]
        has_effects = operators[at].emission is Emission.AT_ONCE and any(
            type(op) is MapOperator or op.emission is Emission.AT_ONCE for op in before
        )
        if has_effects or len(before) == _MOST_IN_LOOP:
            yield first, before
            first = at
    yield first, operators[first:]


#: A line of generated code, and the operator that it calls by its place in the part.
_Line: TypeAlias = tuple[str, int]


def _generated(
    operators: Sequence[FunctionOperator], rejected: Mapping[int, list[None]], *, timed: bool
) -> _Generated:
    writer = _Writer(operators, rejected)
    lines = writer.lines(timed=timed)
    names = {
        "__name__": __name__,
        "leaves": LEAVES,
        "own_copy": own_copy,
        "own_copies": own_copies,
        **{f"f{at}": operator.function for at, operator in enumerate(operators)},
        **{f"reject{at}": rows.append for at, rows in rejected.items()},
    }
    exec(compile("\n".join(text for text, _ in lines), FILE_OF_LOOPS, "exec"), names)
    function = names.pop("loop")  # its globals would refer to it
    assert isinstance(function, FunctionType)
    inner = (const for const in function.__code__.co_consts if isinstance(const, CodeType))
    places = {number: place for number, (_, place) in enumerate(lines, start=1)}
    return _Generated(function, frozenset((function.__code__, *inner)), places, writer.inputs)


class _Writer:
    """Writes the code of a loop. Each call of a function begins a line, which stands for the operator."""

    def __init__(self, operators: Sequence[FunctionOperator], rejected: Collection[int]) -> None:
        self._operators = operators
        self._rejected = rejected
        self._clauses: list[_Line] = []
        #: The row so far, as an expression.
        self._row: list[_Line] = [(_FIRST, 0)]
        #: Name of the variable of each operator's input.
        self.inputs: list[str] = []

    def lines(self, *, timed: bool) -> list[_Line]:
        operators = self._operators
        filters = [at for at, operator in enumerate(operators) if type(operator) is FilterOperator]
        for at, operator in enumerate(operators):
            if type(operator) is FilterOperator:
                self._add_filter(at, is_changing=operator.emission is Emission.AT_ONCE)
            else:
                self._add_call(
                    at, copies=type(operator) is MapOperator and operator.emission is Emission.AT_ONCE
                )
            if timed and at == filters[-1]:
                self._clauses.append(("if keep(time) is None", at))
        last = len(operators) - 1
        copied = [
            at
            for at, op in enumerate(operators)
            if type(op) is MapOperator and op.emission is Emission.BY_BATCH
        ]
        if ends_run(operators[last]):
            begins, ends = ("(", last), (")", last)
        elif copied:
            begins, ends = ("own_copies([", copied[-1]), ("])", copied[-1])
        else:
            begins, ends = ("[", 0), ("]", last)
        return [
            ("def loop(rows, times, keep):" if timed else "def loop(rows):", 0),
            (f"    return {begins[0]}", begins[1]),
            *self._row,
            (f"for {_FIRST}, time in zip(rows, times, strict=True)" if timed else f"for {_FIRST} in rows", 0),
            *self._clauses,
            ends,
        ]

    def _add_filter(self, at: int, *, is_changing: bool) -> None:
        name, given = self._bound(at)
        rejects = f") or reject{at}(None)" if at in self._rejected else ")"
        self._clauses += [(f"if f{at}(", at), *given, (rejects, at)]
        self._row = [("own_copy(", at), (name, at), (")", at)] if is_changing else [(name, at)]

    def _add_call(self, at: int, *, copies: bool) -> None:
        _, given = self._bound(at)
        if copies:
            made = f"made{at}"
            begins, ends = f"({made} if type({made} := f{at}(", f")) in leaves else own_copy({made}))"
        else:
            begins, ends = f"f{at}(", ")"
        self._row = [(begins, at), *given, (ends, at)]

    def _bound(self, at: int) -> tuple[str, list[_Line]]:
        """The row so far, in a variable that errors can show: the name, and the expression that sets it."""
        if len(self._row) == 1:
            ((name, _),) = self._row
            self.inputs.append(name)
            return name, [(name, at)]
        name = f"x{at}"
        (first, begins), *middle, (last, ends) = self._row
        self.inputs.append(name)
        return name, [(f"({name} := {first}", begins), *middle, (f"{last})", ends)]
