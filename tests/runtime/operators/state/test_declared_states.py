"""States that a class declares: bound before `open`, listed without running it, the same as asked for."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from ray import cloudpickle

from penstock import (
    CollectSink,
    GraphError,
    KeyedProcessFunction,
    ListState,
    MapState,
    ReducingState,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.operators import Operator, OperatorContext, RowBatch
from penstock.runtime.errors import ConfigurationError, OperatorError, PenstockError
from penstock.runtime.graph.graph_info import GraphInfo, graph_info
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.snapshot.plain_values import from_plain, to_plain
from penstock.runtime.state.known_states import StateInfo
from penstock.testing import OperatorHarness

pytestmark = pytest.mark.usefixtures("either_backend")

Pair = tuple[str, int]


def key(pair: Pair) -> str:
    return pair[0]


class Everything(KeyedProcessFunction[str, Pair, tuple[Any, ...]]):
    last = ValueState(int, default=-1)
    all = ListState(int)
    counts = MapState(int, int)
    highest = ReducingState(max, int)

    def process(self, value: Pair, ctx: RuntimeContext) -> Iterator[tuple[Any, ...]]:
        _, number = value
        before = self.last.value()
        self.last.update(number)
        self.all.add(number)
        self.counts[number] = self.counts.get(number, 0) + 1
        self.highest.add(number)
        yield before, self.all.get(), dict(self.counts), self.highest.get()


def harness_of(function: KeyedProcessFunction[Any, Any, Any], **settings: Any) -> OperatorHarness:
    return OperatorHarness.of(lambda pairs: pairs.key_by(key).process("p", function), **settings)


def test_declared_states_are_those_of_the_current_key() -> None:
    with harness_of(Everything()) as harness:
        harness.push([("a", 1), ("b", 5), ("a", 1)])
        assert harness.outputs == [
            (-1, [1], {1: 1}, 1),
            (-1, [5], {5: 1}, 5),
            (1, [1, 1], {1: 2}, 1),
        ]


def test_declared_states_come_back_from_a_snapshot() -> None:
    with harness_of(Everything()) as harness:
        harness.push([("a", 1), ("b", 5)])
        snapshot = harness.snapshot()
    with harness_of(Everything(), restored=[snapshot], subtask=0, parallelism=1) as harness:
        assert harness.push([("a", 2), ("b", 5)]) == [
            (1, [1, 2], {1: 1, 2: 1}, 2),
            (5, [5, 5], {5: 2}, 5),
        ]


class Asks(Everything):
    def open(self, ctx: RuntimeContext) -> None:
        assert ctx.value_state("last", -1, of_type=int) is self.last
        assert ctx.list_state("all", of_type=int) is self.all
        assert ctx.map_state("counts", key_type=int, value_type=int) is self.counts
        assert ctx.reducing_state("highest", max, of_type=int) is self.highest


def test_a_declared_state_is_the_one_that_is_asked_for_by_its_name() -> None:
    with harness_of(Asks()) as harness:
        assert harness.push([("a", 1)]) == [(-1, [1], {1: 1}, 1)]


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda ctx: ctx.value_state("last"), "already has the default -1 and can't have None"),
        (lambda ctx: ctx.value_state("last", -1), "already has of_type=<class 'int'> and can't have None"),
        (lambda ctx: ctx.list_state("last"), r"list_state\('last'\): 'last' is already a ValueState"),
        (lambda ctx: ctx.map_state("counts", key_type=str), "already has key_type=<class 'int'> and can't"),
    ],
)
def test_a_state_that_is_asked_for_otherwise_than_declared_is_refused(ask: Any, what: str) -> None:
    class Other(Everything):
        def open(self, ctx: RuntimeContext) -> None:
            ask(ctx)

    with pytest.raises(OperatorError, match=what):
        harness_of(Other())


def test_each_subtask_has_views_of_its_own() -> None:
    function = Everything()
    with harness_of(function) as one, harness_of(function) as other:
        one.push([("a", 1)])
        assert other.push([("a", 2)]) == [(-1, [2], {2: 1}, 2)]
    with pytest.raises(PenstockError, match=r"ValueState 'last' .* is a declaration and holds no values"):
        function.last.value()


class AfterAll(KeyedProcessFunction[str, Pair, int]):
    seen = ValueState(int, default=0)

    def open(self, ctx: RuntimeContext) -> None:
        self.seen.update(1)

    def process(self, value: Pair, ctx: RuntimeContext) -> None:
        """Nothing."""


def test_a_declared_state_has_no_value_in_open() -> None:
    with pytest.raises(
        OperatorError,
        match=r"operator 'p' .* state 'seen' was used outside the processing of a record.*\.py:\d+",
    ):
        harness_of(AfterAll())


def test_keys_are_those_that_have_something_now() -> None:
    class Lists(Everything):
        def process(self, value: Pair, ctx: RuntimeContext) -> Iterator[tuple[Any, ...]]:
            if value[1] < 0:
                self.last.clear()
            else:
                self.last.update(value[1])
            yield tuple(ctx.keys(self.last)), tuple(ctx.keys("all"))

    with harness_of(Lists()) as harness:
        assert harness.push([("a", 1), ("b", 1), ("a", -1)]) == [(("a",), ()), (("a", "b"), ()), (("b",), ())]


class Slotted(KeyedProcessFunction[str, Pair, int]):
    __slots__ = ()
    seen = ValueState(int)

    def process(self, value: Pair, ctx: RuntimeContext) -> None:
        """Nothing."""


def test_bases_with_a_dict_leave_room_for_the_views() -> None:
    with harness_of(Slotted()) as harness:
        assert harness.push([("a", 1)]) == []


def test_a_class_with_declared_states_is_sent_by_value() -> None:
    class Local(KeyedProcessFunction[str, Pair, int]):
        highest = ReducingState(lambda a, b: a if a > b else b, int)
        pages = MapState(str, int)

        def process(self, value: Pair, ctx: RuntimeContext) -> list[int | None]:
            self.highest.add(value[1])
            return [self.highest.get()]

    function = pickle.loads(cloudpickle.dumps(Local()))
    with harness_of(function) as harness:
        assert harness.push([("a", 2), ("a", 1)]) == [2, 2]


# -- operators of users, and the graph ----------------------------------------------------------------------


class Totals(Operator):
    total = ValueState(int, default=0)
    parts = ListState(int)

    def open(self, context: OperatorContext) -> None:
        self.context = context
        assert context.list_state("parts", of_type=int) is self.parts

    def process(self, batch: Any) -> Iterator[RowBatch]:
        found = []
        for name, (_, number) in self.context.by_key(batch):
            self.total.update(self.total.value() + number)
            self.parts.add(number)
            found.append((name, self.total.value(), self.parts.get()))
        yield RowBatch(found)


def test_an_operator_of_a_user_declares_keyed_state_too() -> None:
    with OperatorHarness.of(lambda pairs: pairs.key_by(key).transform("t", Totals())) as harness:
        assert harness.push([("a", 1), ("b", 2), ("a", 3)]) == [
            ("a", 1, [1]),
            ("b", 2, [2]),
            ("a", 4, [1, 3]),
        ]


def test_keyed_state_without_a_key_is_refused_when_the_graph_is_built() -> None:
    env = StreamEnvironment("job")
    pairs = env.from_collection("pairs", [("a", 1)])
    what = (
        r"test_declared_states.py:\d+.*: transform: Totals declares keyed state \('total', 'parts'\), so it"
    )
    with pytest.raises(GraphError, match=what):
        pairs.transform("t", Totals())


class SameName(Everything):
    other = ValueState(name="last")


def test_two_states_of_one_name_are_refused_when_the_graph_is_built() -> None:
    env = StreamEnvironment("job")
    pairs = env.from_collection("pairs", [("a", 1)]).key_by(key)
    what = r"test_declared_states.py:\d+.*: process: .* SameName.last and SameName.other have the same name"
    with pytest.raises(GraphError, match=what):
        pairs.process("p", SameName())


def test_the_graph_lists_declared_states_without_running_anything() -> None:
    env = StreamEnvironment("job")
    pairs = env.from_collection("pairs", [("a", 1)]).key_by(key)
    pairs.process("p", Everything()).sink("out", CollectSink(InMemoryCollector()))
    graph = graph_info(env.build())
    found = {operator.id: operator.states for operator in graph.operators}["p"]
    assert found == (
        StateInfo("last", "value", "int"),
        StateInfo("all", "list", "int"),
        StateInfo("counts", "map", "int: int"),
        StateInfo("highest", "reducing", "int"),
    )
    assert from_plain(GraphInfo, to_plain(graph)) == graph


def test_a_name_may_be_another_than_the_attribute() -> None:
    class Renamed(KeyedProcessFunction[str, Pair, int]):
        count = ValueState(int, default=0, name="how often")

        def process(self, value: Pair, ctx: RuntimeContext) -> None:
            self.count.update(1)

    with harness_of(Renamed()) as harness:
        harness.push([("a", 1)])
        assert harness.state("how often") == {"a": 1}


def test_a_bad_name_is_refused_where_it_is_given() -> None:
    class Asks(Everything):
        def open(self, ctx: RuntimeContext) -> None:
            ctx.value_state("")

    with pytest.raises(OperatorError, match="a name must not be empty"):
        harness_of(Asks())
    with pytest.raises(ConfigurationError, match="a name must not have control characters"):
        ValueState(name="\n")
