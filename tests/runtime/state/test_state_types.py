"""Declared types of keyed state: what is refused when it is saved, restored and used, and what fits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock import KeyedProcessFunction, RuntimeContext
from penstock.runtime.errors import ConfigurationError, OperatorError, StateMismatchError
from penstock.runtime.operators.functions.process import KeyedProcessOperator
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.keyed_states import ValueState
from penstock.runtime.state.known_states import KnownStates
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.testing.harness import HarnessSnapshot, OperatorHarness
from penstock.windows import TimeWindow


class Totals(KeyedProcessFunction[str, tuple[str, object], tuple[str, object]]):
    """Keeps the last value of each key in a state of some type."""

    def __init__(self, of_type: type | None, *names: str) -> None:
        self.of_type = of_type
        self.names = names or ("total",)

    def open(self, ctx: RuntimeContext) -> None:
        self.states = [ctx.value_state(name, of_type=self.of_type) for name in self.names]

    def process(self, value: tuple[str, object], ctx: RuntimeContext) -> list[tuple[str, object]]:
        for state in self.states:
            state.update(value[1])
        return [(value[0], self.states[0].value())]


def operator(of_type: type | None, *names: str) -> KeyedProcessOperator:
    return KeyedProcessOperator(lambda pair: pair[0], Totals(of_type, *names))


def saved(of_type: type | None, *values: object) -> HarnessSnapshot:
    with OperatorHarness(operator(of_type)) as harness:
        harness.push([(f"key-{n}", value) for n, value in enumerate(values)])
        return harness.snapshot()


def types_in(snapshot: HarnessSnapshot) -> list[tuple[tuple[str, str], ...]]:
    return [] if snapshot.keyed is None else [snapshot.keyed.types]


def test_a_snapshot_keeps_the_names_of_declared_types() -> None:
    assert types_in(saved(int, 1)) == [(("total", "int"),)]
    assert types_in(saved(None, 1)) == [()]


def test_a_declared_class_of_ours_has_the_name_that_stays() -> None:
    snapshot = saved(TimeWindow, TimeWindow(0, 1))
    assert types_in(snapshot) == [(("total", "penstock:TimeWindow"),)]


def test_a_state_takes_no_value_of_another_type() -> None:
    with (
        OperatorHarness(operator(int)) as harness,
        pytest.raises(OperatorError, match="state 'total' is declared as int and can't hold 'three'"),
    ):
        harness.push([("a", "three")])


@pytest.mark.parametrize(("before", "then"), [(int, r" \(declared as int then\)"), (None, "")])
def test_values_of_another_type_are_refused_with_all_that_is_to_be_known(
    before: type | None, then: str
) -> None:
    """Whether their type was declared when they were saved or not."""
    message = f"declared as str, but holds int in .* from{then}, for example for key 'key-0'. Give the declar"
    with pytest.raises(OperatorError, match=message) as caught:
        OperatorHarness(operator(str), restored=[saved(before, 3)])
    assert isinstance(caught.value.__cause__, StateMismatchError)
    assert caught.value.location.operator in str(caught.value)


@pytest.mark.parametrize("wider", [object, Sequence, tuple, None])
def test_a_type_that_takes_all_that_was_saved_fits(wider: type | None) -> None:
    with OperatorHarness(operator(wider), restored=[saved(tuple, (1, 2))]) as harness:
        assert harness.state("total") == {"key-0": (1, 2)}


def test_another_state_may_have_another_type() -> None:
    with OperatorHarness(operator(str, "text"), restored=[saved(int, 3)]) as harness:
        harness.push([("a", "b")])
        assert types_in(harness.snapshot()) == [(("text", "str"), ("total", "int"))]


def test_a_declaration_that_nobody_has_repeated_yet_is_kept() -> None:
    backend = HeapKeyedStateBackend(BackendSetup("op", 4, KeyGroupRange(0, 3), ValueCodec()))
    known = KnownStates()
    known.restore([KeyedStateHandle(KeyGroupRange(0, 3), (), types=(("total", "int"),))])
    assert known.types() == (("total", "int"),)
    known.declare(
        ValueState(str, name="total"), backend.table("total"), is_declared=False
    )  # it holds nothing
    assert known.types() == (("total", "str"),)


def test_a_state_has_one_type() -> None:
    known, table = KnownStates(), StateTable("total")
    known.declare(ValueState(int, name="total"), table, is_declared=False)
    with pytest.raises(ConfigurationError, match="'total' is declared as int and as str"):
        known.declare(ValueState(str, name="total"), table, is_declared=False)
