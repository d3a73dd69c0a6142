"""Lists that belong to a subtask: declared by every kind of function, restored, redistributed, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock import (
    CollectSink,
    FunctionContext,
    GraphError,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.connectors import SinkContext
from penstock.operators import Operator, OperatorContext, RowBatch
from penstock.runtime.errors import ConfigurationError, OperatorError, PenstockError, StateMismatchError
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.state import OperatorListState
from penstock.testing import OperatorHarness

MODES = ("split_distribute", "union", "broadcast")


class Lists:
    """The three kinds of lists; what comes in is added to each, and what they hold comes out."""

    split = OperatorListState(int)
    union = OperatorListState(int, mode="union")
    shared = OperatorListState(int, mode="broadcast")

    def added(self, number: int) -> tuple[list[int], list[int], list[int]]:
        if number:
            self.split.add(number)
            self.union.add(number)
            self.shared.update([7])
        return sorted(self.split), sorted(self.union), self.shared.get()


class InProcess(Lists, ProcessFunction[int, Any]):
    def process(self, value: int, ctx: FunctionContext) -> Iterator[Any]:
        yield self.added(value)


class InKeyedProcess(Lists, KeyedProcessFunction[int, int, Any]):
    count = ValueState(int, default=0)

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[Any]:
        yield self.added(value)


class InMap(Lists):
    def __call__(self, number: int) -> Any:
        return self.added(number)


class InFlatMap(Lists):
    def __call__(self, number: int) -> Any:
        yield self.added(number)


class InBatches(Lists):
    def __call__(self, batch: list[int]) -> list[Any]:
        return [self.added(number) for number in batch]


class InOperator(Lists, Operator):
    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        yield RowBatch([self.added(number) for number in batch.rows])


BUILDS: dict[str, Callable[[Any], Any]] = {
    "process": lambda n: n.process("own", InProcess()),
    "keyed process": lambda n: n.key_by(lambda _: 0).process("own", InKeyedProcess()),
    "map": lambda n: n.map(InMap, id="own"),
    "flat_map": lambda n: n.flat_map(InFlatMap, id="own"),
    "map_batches": lambda n: n.map_batches(InBatches, id="own"),
    "transform": lambda n: n.transform("own", InOperator()),
}


def after_restore(
    build: Callable[[Any], Any], old: Sequence[Sequence[int]], parallelism: int
) -> list[tuple[list[int], list[int], list[int]]]:
    """The state of each new subtask, after one old subtask for each group of numbers was saved."""
    snapshots = []
    for subtask, numbers in enumerate(old):
        with OperatorHarness.of(build, subtask=subtask, parallelism=len(old)) as harness:
            harness.push(numbers)
            snapshots.append(harness.snapshot())
    found = []
    for subtask in range(parallelism):
        with OperatorHarness.of(
            build, subtask=subtask, parallelism=parallelism, restored=snapshots
        ) as harness:
            found += harness.push([0])
    return found


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize(
    ("parallelism", "split"), [(1, [[1, 2, 3]]), (2, [[1, 2], [3]]), (3, [[1], [2], [3]])]
)
def test_lists_of_every_function_find_their_new_subtasks(
    kind: str, parallelism: int, split: list[list[int]]
) -> None:
    found = after_restore(BUILDS[kind], [[1, 2], [3]], parallelism)
    assert [each for each, _, _ in found] == split
    assert [each for _, each, _ in found] == [[1, 2, 3]] * parallelism
    assert [each for _, _, each in found] == [[7]] * parallelism


class SavesLate(ProcessFunction[int, list[int]]):
    """Works on an attribute, and brings the list up to date when state is taken."""

    saved = OperatorListState(int)

    def open(self, ctx: FunctionContext) -> None:
        self.numbers = self.saved.get()

    def process(self, value: int, ctx: FunctionContext) -> Iterator[list[int]]:
        self.numbers.append(value)
        yield list(self.numbers)

    def snapshot(self, checkpoint_id: int) -> None:
        self.saved.update(self.numbers)


class MapSavesLate:
    saved = OperatorListState(int)

    def open(self, ctx: FunctionContext) -> None:
        assert ctx.operator_list_state("saved", of_type=int) is self.saved
        ctx.counter("opened").increment()
        self.numbers = self.saved.get()

    def __call__(self, number: int) -> list[int]:
        self.numbers.append(number)
        return list(self.numbers)

    def snapshot(self, checkpoint_id: int) -> None:
        self.saved.update(self.numbers)


class KeyedSavesLate(KeyedProcessFunction[int, int, list[int]]):
    saved = OperatorListState(int)

    def open(self, ctx: RuntimeContext) -> None:
        self.numbers = self.saved.get()

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[list[int]]:
        self.numbers.append(value)
        yield list(self.numbers)

    def snapshot(self, checkpoint_id: int) -> None:
        self.saved.update(self.numbers)


@pytest.mark.parametrize(
    "build",
    [
        lambda n: n.process("own", SavesLate()),
        lambda n: n.map(MapSavesLate, id="own"),
        lambda n: n.key_by(lambda _: 0).process("own", KeyedSavesLate()),
    ],
)
def test_snapshot_brings_lists_up_to_date(build: Callable[[Any], Any]) -> None:
    with OperatorHarness.of(build) as harness:
        harness.push([1, 2])
        snapshot = harness.snapshot()
        harness.push([3])
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        assert harness.push([4]) == [[1, 2, 4]]


def test_snapshot_that_yields_never_runs_and_is_refused_with_its_line() -> None:
    class Yields(SavesLate):
        def snapshot(self, checkpoint_id: int) -> Any:
            yield checkpoint_id

    message = (
        r"Yields.snapshot \(.*test_operator_list_state.py:\d+\) failed: snapshot yields, so it never runs"
    )
    with (
        OperatorHarness.of(lambda n: n.process("own", Yields())) as harness,
        pytest.raises(OperatorError, match=message),
    ):
        harness.snapshot()


class Writer:
    names = OperatorListState(str)

    def __init__(self, context: SinkContext, inner: Any) -> None:
        self.inner = inner
        self.largest = context.operator_list_state("largest", "union", of_type=int)

    def write(self, batch: Any) -> None:
        self.names.update(sorted({*self.names, *(name for name, _ in batch.rows)}))
        self.largest.update([max(*self.largest, *(number for _, number in batch.rows), 0)])
        self.inner.write(RowBatch([(list(self.names), list(self.largest))]))

    def prepare_commit(self) -> Any:
        return self.inner.prepare_commit()

    def commit(self, committables: Any, permit: Any) -> None:
        self.inner.commit(committables, permit)

    def close(self) -> None:
        self.inner.close()


class NamesSink:
    def __init__(self, results: InMemoryCollector) -> None:
        self.inner = CollectSink(results)

    def writer(self, context: SinkContext) -> Writer:
        return Writer(context, self.inner.writer(context))


def test_writer_of_a_sink_has_lists_beside_its_transactions() -> None:
    results = InMemoryCollector()
    build = lambda rows: rows.sink("names", NamesSink(results))  # noqa: E731
    with OperatorHarness.of(build) as harness:
        harness.push([("bob", 3), ("ann", 1)])
        snapshot = harness.snapshot()
        harness.complete_checkpoint(snapshot)
        harness.push([("eve", 9)])
    with OperatorHarness.of(build, restored=[snapshot], attempt=2) as harness:
        harness.push([("cid", 2)])
        harness.complete_checkpoint(harness.snapshot())
    assert sorted(results.rows()) == [(["ann", "bob"], [3]), (["ann", "bob", "cid"], [3])]


# -- what changes between a snapshot and the program -------------------------------------------------------


def saved(*numbers: object) -> Any:
    class Saves(ProcessFunction[Any, Any]):
        numbers = OperatorListState[Any]()

        def process(self, value: Any, ctx: FunctionContext) -> None:
            self.numbers.add(value)

    with OperatorHarness.of(lambda n: n.process("own", Saves())) as harness:
        harness.push(list(numbers))
        return harness.snapshot()


def shows(state: OperatorListState[Any]) -> Callable[[Any], Any]:
    """A build of a function that emits what is in a list."""

    class Shows(ProcessFunction[Any, Any]):
        numbers = state

        def process(self, value: Any, ctx: FunctionContext) -> Iterator[Any]:
            yield self.numbers.get()

    return lambda n: n.process("own", Shows())


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (lambda: OperatorListState(int), [1, 2]),
        (lambda: OperatorListState(object), [1, 2]),
        (lambda: OperatorListState(str, migrate=str), ["1", "2"]),
        (lambda: OperatorListState(int, name="new", renamed_from="numbers"), [1, 2]),
        (lambda: OperatorListState(int, name="new"), []),
    ],
)
def test_restored_values_fit_or_are_migrated(
    state: Callable[[], OperatorListState[Any]], found: list[Any]
) -> None:
    with OperatorHarness.of(shows(state()), restored=[saved(1, 2)]) as harness:
        assert harness.push([0]) == [found]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            lambda: OperatorListState(str),
            r"'numbers' is declared as str, but holds int in .* from, for example 1\. .* migrate=\.\.\.",
        ),
        (
            lambda: OperatorListState(str, migrate=lambda n: n),
            r"declared as str, but migrate function .* returned 1 for 1$",
        ),
        (
            lambda: OperatorListState(str, migrate=lambda n: n.upper()),
            r"lambda .*failed on 1: AttributeError: 'int' object",
        ),
        (
            lambda: OperatorListState(int, mode="union"),
            "'numbers' was saved with the mode 'split_distribute' and can't have 'union'",
        ),
    ],
)
def test_restored_values_that_do_not_fit_are_refused(
    state: Callable[[], OperatorListState[Any]], message: str
) -> None:
    snapshot = saved(1, 2)
    with pytest.raises(OperatorError, match=rf"operator 'own'.*{message}") as caught:
        OperatorHarness.of(shows(state()), restored=[snapshot])
    assert isinstance(caught.value.__cause__, StateMismatchError)


def test_list_that_is_declared_no_more_stays_in_every_snapshot() -> None:
    class Without(ProcessFunction[Any, Any]):
        def process(self, value: Any, ctx: FunctionContext) -> None:
            """Nothing."""

    snapshot = saved(1, 2)
    for _ in range(2):
        with OperatorHarness.of(lambda n: n.process("own", Without()), restored=[snapshot]) as harness:
            snapshot = harness.snapshot()
    with OperatorHarness.of(shows(OperatorListState(int)), restored=[snapshot]) as harness:
        assert harness.push([0]) == [[1, 2]]


# -- bad use -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda s: s.add("x"), lambda s: s.update([1, "x"])])
def test_typed_list_takes_nothing_else(change: Callable[[Any], None]) -> None:
    class Changes(ProcessFunction[Any, Any]):
        numbers = OperatorListState(int)

        def process(self, value: Any, ctx: FunctionContext) -> None:
            change(self.numbers)

    with (
        OperatorHarness.of(lambda n: n.process("own", Changes())) as harness,
        pytest.raises(OperatorError, match=r"state 'numbers' is declared as int and can't hold 'x'"),
    ):
        harness.push([1])


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: OperatorListState(mode="unoin"), "mode is one of .*not 'unoin'; did you mean 'union'"),  # type: ignore[arg-type]
        (lambda: OperatorListState(name="splits"), "'splits' belongs to a list of Penstock's own operators"),
        (lambda: OperatorListState(name=""), "a name must"),
        (lambda: OperatorListState("int"), "a type is a class"),  # type: ignore[call-overload]
        (lambda: OperatorListState(migrate=str), "needs the type of the values"),  # type: ignore[call-overload]
    ],
)
def test_wrong_declarations_are_refused_at_their_line(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"OperatorListState .*test_operator_list.*{message}"):
        declare()


def test_two_requests_of_one_name_agree() -> None:
    class Asks(ProcessFunction[Any, Any]):
        numbers = OperatorListState(int)

        def process(self, value: Any, ctx: FunctionContext) -> None:
            if value == "mode":
                ctx.operator_list_state("numbers", "union")
            elif value == "type":
                ctx.operator_list_state("numbers", of_type=str)
            else:
                assert ctx.operator_list_state("numbers") is self.numbers

    for value, message in [("mode", "already has the mode 'split_distr"), ("type", "already holds int")]:
        with OperatorHarness.of(lambda n: n.process("own", Asks())) as harness:
            harness.push(["same"])
            with pytest.raises(OperatorError, match=message):
                harness.push([value])


class TwoOfOneName:
    one = OperatorListState(int, name="numbers")
    numbers = ValueState(int)

    def __call__(self, number: int) -> int:
        return number


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda n: n.map(InMap), r"map: InMap declares state, so the operator needs an id: map\(\.\.\., id="),
        (lambda n: n.map(InMap(), id="own"), r"InMap declares state.*give the class, map\(InMap, fn_cons"),
        (lambda n: n.map(TwoOfOneName, id="own"), "have the same name; give each state a name of its own"),
        (
            lambda n: n.process(
                "own", type("P", (ProcessFunction,), {"v": ValueState(int), "process": lambda *_: ()})()
            ),
            r"process: P declares keyed state \('v'\), so it needs a keyed stream",
        ),
    ],
)
def test_graph_refuses_state_that_could_not_be_found_again(build: Callable[[Any], Any], message: str) -> None:
    numbers = StreamEnvironment("job").from_collection("numbers", [1])
    with pytest.raises(GraphError, match=rf"test_operator_list_state.py:\d+ in .*: .*{message}"):
        build(numbers)


def test_declaration_that_no_subtask_runs_holds_nothing() -> None:
    with pytest.raises(PenstockError, match="is a declaration and holds no values"):
        InMap().split.get()


def test_operator_of_a_user_asks_with_a_type() -> None:
    class Asks(Operator):
        def open(self, context: OperatorContext) -> None:
            self.numbers = context.operator_list_state("numbers", of_type=str, migrate=str)

        def process(self, batch: RowBatch) -> Iterator[RowBatch]:
            yield RowBatch(self.numbers.get())

    with OperatorHarness.of(lambda n: n.transform("own", Asks()), restored=[saved(1)]) as harness:
        assert harness.push([0]) == ["1"]
