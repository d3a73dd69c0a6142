"""Functions of data beside a broadcast stream, and their broadcast state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    ConfigurationError,
    DataStream,
    FunctionContext,
    ListState,
    OperatorError,
    RuntimeContext,
    ValueState,
)
from penstock.connected import (
    BroadcastContext,
    BroadcastProcessFunction,
    BroadcastState,
    KeyedBroadcastProcessFunction,
)
from penstock.operators import RowBatch, TwoInputOperator
from penstock.state import OperatorListState
from penstock.testing import HarnessSnapshot, OperatorHarness

Build = Callable[[DataStream[Any], DataStream[Any]], DataStream[Any]]
Rule = tuple[str, int | None]


class Priced(BroadcastProcessFunction[str, Rule, tuple[str, int | None]]):
    """Emits each name with its price; a price of `None` removes it."""

    prices = BroadcastState(str, int)

    def process_element(self, value: str, ctx: FunctionContext) -> Iterator[tuple[str, int | None]]:
        yield value, self.prices.get(value)

    def process_broadcast_element(self, value: Rule, ctx: FunctionContext) -> None:
        name, price = value
        if price is None:
            self.prices.pop(name, None)
        else:
            self.prices[name] = price


def priced(names: DataStream[str], prices: DataStream[Rule]) -> DataStream[Any]:
    return names.connect(prices.broadcast()).process("priced", Priced())


class PricedByKey(KeyedBroadcastProcessFunction[str, str, Rule, tuple[str, int | None, int]]):
    """As `Priced`, with the number of earlier records of the name; a price counts anew."""

    seen = ValueState(int, default=0)
    prices = BroadcastState(str, int)

    def process_element(self, value: str, ctx: RuntimeContext) -> Iterator[tuple[str, int | None, int]]:
        yield value, self.prices.get(value), self.seen.value()
        self.seen.update(self.seen.value() + 1)

    def process_broadcast_element(self, value: Rule, ctx: BroadcastContext) -> None:
        name, price = value
        if price is None:
            self.prices.pop(name, None)
        else:
            self.prices[name] = price

        def count_anew(key: str, seen: ValueState[int]) -> None:
            if key == name:
                seen.clear()

        ctx.apply_to_keyed_state(self.seen, count_anew)


def priced_by_key(names: DataStream[str], prices: DataStream[Rule]) -> DataStream[Any]:
    return names.key_by(str).connect(prices.broadcast()).process("priced", PricedByKey())


class Subtasks:
    """All subtasks of an operator; every one gets the records of the second stream."""

    def __init__(self, build: Build, parallelism: int, restored: tuple[HarnessSnapshot, ...] = ()) -> None:
        self._build = build
        self._next_id = 1 + max((snapshot.checkpoint_id for snapshot in restored), default=0)
        self.all = [
            OperatorHarness.of(
                build, subtask=i, parallelism=parallelism, max_parallelism=8, restored=restored
            )
            for i in range(parallelism)
        ]

    def push(self, names: list[str]) -> list[Any]:
        rows = []
        for subtask in self.all:
            rows += subtask.push([name for name in names if subtask.owns(name)])
        return rows

    def broadcast(self, rules: list[Rule]) -> None:
        for subtask in self.all:
            subtask.push(rules, input_index=1)

    def restored(self, parallelism: int) -> Subtasks:
        snapshots = tuple(subtask.snapshot(self._next_id) for subtask in self.all)
        for subtask in self.all:
            subtask.close()
        return Subtasks(self._build, parallelism, snapshots)


NAMES = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.lists(NAMES, max_size=4)),
        st.tuples(st.just("rules"), st.lists(st.tuples(NAMES, st.none() | st.integers(0, 9)), max_size=3)),
        st.tuples(st.just("restore"), st.integers(1, 3)),
    ),
    max_size=15,
)


@pytest.mark.parametrize("build", [priced, priced_by_key])
@given(steps=STEPS, parallelism=st.integers(1, 3))
def test_every_subtask_has_the_rules_so_far_in_any_order_and_after_restores(
    build: Build, steps: list[Any], parallelism: int
) -> None:
    subtasks = Subtasks(build, parallelism)
    prices: dict[str, int] = {}
    seen: dict[str, int] = {}
    for what, given_now in steps:
        if what == "restore":
            subtasks = subtasks.restored(given_now)
        elif what == "rules":
            subtasks.broadcast(given_now)
            for name, price in given_now:
                seen[name] = 0
                prices.pop(name, None) if price is None else prices.update({name: price})
        else:
            wanted: list[Any] = []
            for name in given_now:
                wanted.append((name, prices.get(name), seen.get(name, 0))[: 2 if build is priced else 3])
                seen[name] = seen.get(name, 0) + 1
            assert sorted(map(str, subtasks.push(given_now))) == sorted(map(str, wanted))
        for subtask in subtasks.all:
            assert dict(subtask._operator._user.prices) == prices  # type: ignore[attr-defined]


def failing(build: Build, *pushes: tuple[list[Any], int]) -> str:
    with OperatorHarness.of(build) as harness:
        for rows, input_index in pushes[:-1]:
            harness.push(rows, input_index=input_index)
        rows, input_index = pushes[-1]
        with pytest.raises(OperatorError) as caught:
            harness.push(rows, input_index=input_index)
    return str(caught.value)


CHANGES: list[Callable[[Any], Any]] = [
    lambda state: state.put("a", 1),
    lambda state: state.pop("a"),
    lambda state: state.clear(),
    lambda state: state.update({"b": 1}),
    lambda state: state.setdefault("b", 1),
    lambda state: state.popitem(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_broadcast_state_can_only_be_read_on_the_side_of_the_data(change: Callable[[Any], Any]) -> None:
    class Changes(Priced):
        def process_element(self, value: str, ctx: FunctionContext) -> Iterator[tuple[str, int | None]]:
            change(self.prices)
            yield value, None

    def build(names: DataStream[str], prices: DataStream[Rule]) -> DataStream[Any]:
        return names.connect(prices.broadcast()).process("priced", Changes())

    text = failing(build, ([("a", 1)], 1), (["a"], 0))
    assert "broadcast state 'prices' (" in text
    assert "was changed outside the processing of a record of its stream" in text
    assert "make it in process_broadcast_element" in text


class ChangesInTimer(KeyedBroadcastProcessFunction[str, str, Rule, str]):
    prices = BroadcastState(str, int)

    def process_element(self, value: str, ctx: RuntimeContext) -> None:
        ctx.timer_service.register_event_time_timer(5)

    def process_broadcast_element(self, value: Rule, ctx: BroadcastContext) -> None: ...

    def on_timer(self, at: int, ctx: RuntimeContext) -> None:
        self.prices["a"] = 1


def test_broadcast_state_can_only_be_read_in_a_timer() -> None:
    def build(names: DataStream[str], prices: DataStream[Rule]) -> DataStream[Any]:
        return names.key_by(str).connect(prices.broadcast()).process("priced", ChangesInTimer())

    with OperatorHarness.of(build) as harness:
        harness.push(["a"])
        harness.push([("a", 1)], input_index=1)
        with pytest.raises(OperatorError, match="elsewhere the state is read-only"):
            harness.push_watermark(9)


def test_value_that_was_read_is_a_copy() -> None:
    class Lists(BroadcastProcessFunction[str, str, list[str]]):
        lists = BroadcastState(str, list)

        def process_element(self, value: str, ctx: FunctionContext) -> Iterator[list[str]]:
            self.lists[value].append("changed")
            for found in self.lists.values():
                found.append("changed")
            yield self.lists[value]

        def process_broadcast_element(self, value: str, ctx: FunctionContext) -> None:
            held = [value]
            self.lists[value] = held
            held.append("changed")

    def build(names: DataStream[str], prices: DataStream[str]) -> DataStream[list[str]]:
        return names.connect(prices.broadcast()).process("lists", Lists())

    with OperatorHarness.of(build) as harness:
        harness.push(["a"], input_index=1)
        assert harness.push(["a"]) == [["a"]]


class Misuses(KeyedBroadcastProcessFunction[str, str, str, str]):
    seen = ListState(str)

    def process_element(self, value: str, ctx: Any) -> None:
        ctx.apply_to_keyed_state(self.seen, print)

    def process_broadcast_element(self, value: str, ctx: Any) -> None:
        if value == "state":
            self.seen.add(value)
        elif value == "key":
            print(ctx.current_key)
        else:
            ctx.timer_service.register_event_time_timer(5)

    def on_timer(self, at: int, ctx: RuntimeContext) -> None: ...


@pytest.mark.parametrize(
    ("push", "message"),
    [
        (("data", 0), "call it in process_broadcast_element"),
        (("state", 1), "state 'seen' was used outside the processing of a record"),
        (("key", 1), "there is no current key here"),
        (("timer", 1), "A timer belongs to the key of a record"),
    ],
)
def test_broadcast_records_have_no_key(push: tuple[str, int], message: str) -> None:
    def build(names: DataStream[str], others: DataStream[str]) -> DataStream[str]:
        return names.key_by(str).connect(others.broadcast()).process("misuses", Misuses())

    assert message in failing(build, ([push[0]], push[1]))


def test_applied_function_may_set_timers_of_its_key_and_emit_through_a_list() -> None:
    class Wakes(KeyedBroadcastProcessFunction[str, str, int, str]):
        seen = ValueState(str)

        def process_element(self, value: str, ctx: RuntimeContext) -> None:
            self.seen.update(value)

        def process_broadcast_element(self, value: int, ctx: BroadcastContext) -> Iterator[str]:
            keys: list[str] = []

            def wake(key: str, seen: ValueState[str]) -> None:
                ctx.timer_service.register_event_time_timer(value)
                keys.append(f"{ctx.current_key} {seen.value()}")

            ctx.apply_to_keyed_state(self.seen, wake)
            yield from sorted(keys)

        def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[str]:
            yield f"{ctx.current_key} at {at}"

    def build(names: DataStream[str], others: DataStream[int]) -> DataStream[str]:
        return names.key_by(str).connect(others.broadcast()).process("wakes", Wakes())

    with OperatorHarness.of(build) as harness:
        harness.push(["a", "b"])
        assert harness.push([7], input_index=1) == ["a a", "b b"]
        assert sorted(harness.push_watermark(9)) == ["a at 7", "b at 7"]


@pytest.mark.parametrize("rule", [(1, 2), ("a", "no number")])
def test_entry_of_another_type_is_refused(rule: Any) -> None:
    assert "state 'prices' is declared as str: int and can't hold" in failing(priced, ([rule], 1))


def renamed(state: Any) -> Build:
    class Named(BroadcastProcessFunction[str, Rule, Any]):
        prices = state

        def process_element(self, value: str, ctx: FunctionContext) -> Iterator[Any]:
            yield self.prices.get(value)

        def process_broadcast_element(self, value: Rule, ctx: FunctionContext) -> None:
            self.prices[value[0]] = value[1]

    return lambda names, prices: names.connect(prices.broadcast()).process("priced", Named())


def prices_of_one() -> HarnessSnapshot:
    with OperatorHarness.of(priced) as harness:
        harness.push([("a", 1)], input_index=1)
        return harness.snapshot()


def test_saved_values_are_migrated_and_states_renamed() -> None:
    state = BroadcastState(str, str, name="costs", renamed_from="prices", migrate=str)
    with OperatorHarness.of(renamed(state), restored=[prices_of_one()]) as harness:
        assert harness.push(["a"]) == ["1"]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (BroadcastState(int, int, name="prices"), "is declared as keys of type int"),
        (BroadcastState(str, str, name="prices"), "is declared as str, but holds int"),
    ],
)
def test_saved_entries_of_another_type_are_refused(state: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        OperatorHarness.of(renamed(state), restored=[prices_of_one()])


def test_saved_list_of_the_same_name_is_refused() -> None:
    class Listed(TwoInputOperator):
        prices = OperatorListState(str, mode="broadcast")

        def process_element1(self, batch: RowBatch) -> None:
            self.prices.update(["a"])

        def process_element2(self, batch: RowBatch) -> None: ...

    def listed(names: DataStream[str], prices: DataStream[Rule]) -> DataStream[Any]:
        return names.connect(prices).transform("priced", Listed())

    with OperatorHarness.of(listed) as harness:
        harness.push(["a"])
        snapshot = harness.snapshot()
    with pytest.raises(OperatorError, match="state 'prices' is a BroadcastState, but the snapshot"):
        OperatorHarness.of(priced, restored=[snapshot])


class OwnRules(TwoInputOperator):
    """An operator of the user's own with broadcast state."""

    rules = BroadcastState(str, int)

    def process_element1(self, batch: RowBatch) -> Iterator[RowBatch]:
        yield RowBatch([self.rules.get(row) for row in batch.rows])

    def process_element2(self, batch: RowBatch) -> None:
        self.rules.update(batch.rows)


def test_operator_of_the_users_own_has_broadcast_state_too() -> None:
    def build(names: DataStream[str], rules: DataStream[Rule]) -> DataStream[Any]:
        return names.connect(rules.broadcast()).transform("own", OwnRules())

    subtasks = Subtasks(build, 2)
    subtasks.broadcast([("a", 1)])
    assert subtasks.restored(3).push(["a", "b"]) == [1, None]


def test_declaration_says_that_it_holds_nothing() -> None:
    for use in (len, list, lambda state: state.get("a"), lambda state: state.put("a", 1)):
        with pytest.raises(
            Exception, match=r"BroadcastState 'prices' \(.*\) is a declaration and holds no values"
        ):
            use(Priced.prices)
    with pytest.raises(ConfigurationError, match="belongs to a list of Penstock's own operators"):
        BroadcastState(name="splits")
    with contextlib.suppress(ConfigurationError):
        assert Priced.prices == Priced.prices
