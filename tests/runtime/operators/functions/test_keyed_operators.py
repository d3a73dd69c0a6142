from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from penstock.runtime.errors import ConfigurationError, OperatorError, PenstockError
from penstock.runtime.operators.functions import process
from penstock.runtime.operators.functions.keyed_folds import (
    AggregateFunction,
    KeyedAggregateFunctionOperator,
    KeyedReduceOperator,
)
from penstock.runtime.operators.functions.process import KeyedProcessOperator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.state import dirty_entries
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.harness_state import FilesInHandles

pytestmark = pytest.mark.usefixtures("either_backend")


def first(pair):
    return pair[0]


def add(a, b):
    return a[0], a[1] + b[1]


class RunningSum(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """Emits the sum of each key; counts rows."""

    def open(self, ctx):
        self.total = ctx.value_state("total", default=0)
        self.seen = ctx.counter("seen")

    def process(self, value, ctx):
        self.total.update(self.total.value() + value[1])
        self.seen.increment()
        if value[1] == 0:
            self.total.clear()
            return
        yield ctx.current_key, self.total.value()


def run(function):
    return OperatorHarness(KeyedProcessOperator(first, function))


def test_reduce_emits_the_new_value_for_every_record_across_batches():
    with OperatorHarness(KeyedReduceOperator(first, add)) as harness:
        assert harness.push([("a", 1), ("b", 5), ("a", 2)]) == [("a", 1), ("b", 5), ("a", 3)]
        assert harness.push([("a", 3)]) == [("a", 6)]
        assert harness.state("reduce") == {"a": ("a", 6), "b": ("b", 5)}


def largest(a, b):
    return max(a, b, key=lambda row: row["v"])


def test_reduce_by_a_column_works_on_dicts_and_on_arrow_batches_alike():
    rows = [{"k": "a", "v": 1}, {"k": None, "v": 5}, {"k": "a", "v": 2}]
    for push in ("rows", "arrow"):
        with OperatorHarness(KeyedReduceOperator(ColumnKey(("k",)), largest)) as harness:
            columns = ArrowBatch(pa.RecordBatch.from_pylist(rows), pa.array([10, 20, 30]))
            harness.push_batch(RowBatch(rows, [10, 20, 30]) if push == "rows" else columns)
            assert harness.batches == (RowBatch(rows, [10, 20, 30]),)
            assert harness.state("reduce") == {"a": rows[2], None: rows[1]}


def test_nan_of_a_column_is_one_key_also_after_a_restore():
    operator = KeyedReduceOperator(ColumnKey(("k", "n")), lambda a, b: {**a, "v": a["v"] + b["v"]})
    with OperatorHarness(operator) as harness:
        harness.push([{"k": float("nan"), "n": 1, "v": 1}, {"k": float("nan"), "n": 1, "v": 2}])
        snapshot = harness.snapshot()
    with OperatorHarness(operator, restored=[snapshot]) as harness:
        harness.push([{"k": -float("nan"), "n": 1, "v": 4}])
        assert [row["v"] for row in harness.state("reduce").values()] == [7]


def test_a_record_without_columns_and_a_key_that_is_a_list_name_the_column():
    for row, message in (
        ((1, 2), "key_by column 'k' failed: .*needs records that are dicts or Arrow batches, not"),
        ({"k": [1]}, r"key_by column 'k' failed: .*\[1\] of type list can't be a key"),
    ):
        with (
            OperatorHarness(KeyedReduceOperator(ColumnKey(("k",)), largest)) as harness,
            pytest.raises(OperatorError, match=message),
        ):
            harness.push([row])


def test_reduce_keeps_timestamps_and_values_that_are_none():
    with OperatorHarness(KeyedReduceOperator(lambda row: 1, lambda a, b: (a, b))) as harness:
        harness.push([None, None], [10, 20])
        assert harness.batches == (RowBatch([None, (None, None)], [10, 20]),)


def test_reduce_tells_the_backend_which_keys_changed():
    with OperatorHarness(KeyedReduceOperator(first, add)) as harness:
        harness.push([("a", 1), ("b", 1)])
        base = harness.snapshot()
        harness.complete_checkpoint(base)
        harness.push([("b", 1)])
        newest = harness.snapshot()
    assert newest.keyed is not None
    assert newest.keyed.entries == 3
    with OperatorHarness(KeyedReduceOperator(first, add), restored=[newest]) as harness:
        assert harness.state("reduce") == {"a": ("a", 1), "b": ("b", 2)}


@dataclass
class Total:
    n: int


def adds_in_place(a, b):
    a["n"] += b["n"]
    return a


def appends(a, b):
    a += b
    return a


def adds_to_attribute(a, b):
    a.n += b.n
    return a


def changes_and_returns_another(a, b):
    a.clear()
    return b


@pytest.mark.parametrize(
    ("function", "rows", "reduced"),
    [
        (adds_in_place, [{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 3}]),
        (appends, [[1], [2]], [[1], [1, 2]]),
        (adds_to_attribute, [Total(1), Total(2)], [Total(1), Total(3)]),
        (changes_and_returns_another, [{1}, {2}], [{1}, {2}]),
    ],
)
@pytest.mark.parametrize("pushes", [1, 2])
def test_a_reduce_function_may_change_its_arguments(function, rows, reduced, pushes):
    with OperatorHarness(KeyedReduceOperator(lambda row: 0, function)) as harness:
        for some in [rows] if pushes == 1 else [[row] for row in rows]:
            harness.push(some)
        assert harness.outputs == reduced
        assert harness.state("reduce") == {0: reduced[-1]}


def test_a_reduce_function_may_return_either_argument_as_it_is():
    larger = KeyedReduceOperator(lambda row: 0, lambda a, b: max(a, b, key=lambda row: row["n"]))
    with OperatorHarness(larger) as harness:
        rows = [{"n": 1}, {"n": 3}, {"n": 2}]
        assert harness.push(rows * 100)[:4] == [{"n": 1}, {"n": 3}, {"n": 3}, {"n": 3}]


def confused(a, b):
    return a + 1


class Confused(KeyedProcessFunction):
    def process(self, value, ctx):
        return value + 1


@pytest.mark.parametrize("key", [[1], float("nan"), object()])
@pytest.mark.parametrize(
    "make", [lambda: KeyedReduceOperator(first, add), lambda: KeyedProcessOperator(first, RunningSum())]
)
def test_a_key_that_can_not_be_one_is_the_fault_of_the_key_selector(make, key):
    with (
        OperatorHarness(make()) as harness,
        pytest.raises(OperatorError, match=r"key_by function first .*can't be a key: .*on record \(.*, 77\)"),
    ):
        harness.push([("a", 1), (key, 77), ("b", 1)])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: KeyedReduceOperator(first, confused), "reduce function confused"),
        (lambda: KeyedProcessOperator(first, Confused()), r"process function Confused\.process"),
    ],
)
def test_a_type_error_of_the_users_function_is_not_the_fault_of_the_key_selector(make, named):
    with (
        OperatorHarness(make()) as harness,
        pytest.raises(OperatorError, match=f"{named} .*TypeError: can"),
    ):
        harness.push([("a", 1), ("a", 2)])


def test_a_function_may_see_more_keys_than_are_remembered(monkeypatch):
    monkeypatch.setattr(process, "_MOST_CHECKED", 2)
    with run(RunningSum()) as harness:
        keys = [str(number) for number in range(5)]
        assert len(harness.push([(key, 1) for key in keys * 2])) == 10
        assert harness.state("total") == dict.fromkeys(keys, 2)


def test_process_works_on_the_state_of_the_records_key():
    with run(RunningSum()) as harness:
        assert harness.push([("a", 1), ("b", 10), ("a", 2)]) == [("a", 1), ("b", 10), ("a", 3)]
        assert harness.push([("a", 0), ("a", 4)]) == [("a", 4)]
        assert harness.state("total") == {"a": 4, "b": 10}
        assert harness.statistics().counters == {"seen": 5}


def test_state_of_a_process_function_comes_back():
    with run(RunningSum()) as harness:
        harness.push([("a", 1), ("b", 2), ("b", 0)])
        snapshot = harness.snapshot()
    with OperatorHarness(KeyedProcessOperator(first, RunningSum()), restored=[snapshot]) as harness:
        assert harness.push([("a", 1), ("b", 1)]) == [("a", 2), ("b", 1)]


def test_the_context_tells_key_timestamp_and_place():
    class Tell(KeyedProcessFunction):
        def process(self, value, ctx):
            return [(ctx.current_key, ctx.timestamp, ctx.operator_id, ctx.subtask, ctx.parallelism)]

    operator = KeyedProcessOperator(first, Tell())
    with OperatorHarness(operator, operator_id="tell", subtask=1, parallelism=3) as harness:
        assert harness.push([("a", 1)], [77]) == [("a", 77, "tell", 1, 3)]
        assert harness.push([("b", 1)]) == [("b", None, "tell", 1, 3)]


def test_a_generator_sees_its_own_keys_state_to_its_end():
    class Late(KeyedProcessFunction):
        def process(self, value, ctx):
            state = ctx.value_state("rows", default=0)
            yield f"{ctx.current_key} begins"
            state.update(state.value() + value[1])
            yield f"{ctx.current_key} ends with {state.value()}"

    with run(Late()) as harness:
        assert harness.push([("a", 1), ("b", 2), ("a", 3)]) == [
            "a begins",
            "a ends with 1",
            "b begins",
            "b ends with 2",
            "a begins",
            "a ends with 4",
        ]


def test_there_is_no_current_key_outside_of_records():
    class Curious(KeyedProcessFunction):
        def open(self, ctx):
            self.ctx = ctx

        def process(self, value, ctx):
            return None

        def close(self):
            assert self.ctx.current_key

    harness = run(Curious())
    harness.push([("a", 1)])
    with pytest.raises(OperatorError, match="there is no current key here"):
        harness.close()


def test_the_state_can_not_be_used_in_open():
    class TooEarly(KeyedProcessFunction):
        def open(self, ctx):
            ctx.value_state("total").update(1)

        def process(self, value, ctx):
            return None

    with pytest.raises(OperatorError, match="state 'total' was used outside the processing of a record"):
        run(TooEarly())


@pytest.mark.parametrize("default", [[], {}, set()])
def test_a_default_that_can_change_is_refused(default):
    class Shared(KeyedProcessFunction):
        def open(self, ctx):
            ctx.value_state("items", default=default)

        def process(self, value, ctx):
            return None

    with pytest.raises(OperatorError, match="changes to it would be lost"):
        run(Shared())


def test_a_state_has_one_default():
    class Fickle(KeyedProcessFunction):
        def process(self, value, ctx):
            ctx.value_state("n", default=0)
            ctx.value_state("n", default=1)

    with (
        run(Fickle()) as harness,
        pytest.raises(OperatorError, match="already has the default 0 and can't have 1"),
    ):
        harness.push([("a", 1)])


def test_a_failing_process_function_shows_line_and_record():
    class Fails(KeyedProcessFunction):
        def process(self, value, ctx):
            yield value
            raise LookupError(value)

    with (
        run(Fails()) as harness,
        pytest.raises(
            OperatorError, match=r"process function .*Fails\.process|in process, on record \('b', 1\)"
        ),
    ):
        harness.push([("b", 1), ("a", 1)])


def test_the_users_function_is_closed_once_also_when_open_failed():
    closed = []  # of the operator's copy of the function

    class Closing(RunningSum):
        def close(self):
            closed.append(type(self))

    harness = run(Closing())
    harness.close()
    harness.close()
    assert closed == [Closing]

    class Broken(Closing):
        def open(self, ctx):
            msg = "no"
            raise PenstockError(msg)

    with pytest.raises(OperatorError, match="no"):
        run(Broken())
    assert closed == [Closing, Broken]


def test_a_process_function_must_say_what_it_does():
    with pytest.raises(TypeError, match="abstract"):
        KeyedProcessFunction()  # type: ignore[abstract]


def test_an_async_process_function_is_refused(make_context):
    class Async(KeyedProcessFunction):
        async def process(self, value, ctx):
            return [value]

    operator = KeyedProcessOperator(first, Async())
    with pytest.raises(ConfigurationError, match="async def"):
        operator.open(make_context(0, operator))


class Joined(AggregateFunction[tuple[str, int], list[int], list[int]]):
    """Its accumulator is changed in place, even when a result is made from it."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator):
        accumulator.sort()
        return accumulator


@pytest.mark.parametrize("many", [0, 1 << 16])
def test_a_snapshot_of_an_aggregate_has_the_accumulators_of_its_moment(
    make_context, new_backend, monkeypatch, many
):
    monkeypatch.setattr(dirty_entries, "_MANY", many)
    operator = KeyedAggregateFunctionOperator(first, Joined())
    context = make_context(0, operator)
    backend = context.keyed_state
    operator.open(context)
    table, files, snapshots = backend.table("aggregate_function"), FilesInHandles(), []
    for number in range(4):
        rows = [(key, number) for key in "abc"[: 3 - number % 2]]
        for _ in operator.process(RowBatch(rows * 2)):
            pass
        there = {key: list(held) for key, held in table.entries.items()}
        snapshots.append((backend.snapshot(number + 1, -1), there))
    for snapshot, there in reversed(snapshots):
        restored = new_backend()
        restored.restore([snapshot.finish(files)], files)
        assert dict(restored.table("aggregate_function").entries.items()) == there
    assert snapshots[0][1] == {key: [0, 0] for key in "abc"}


def test_accumulators_of_an_aggregate_are_not_encoded_while_the_task_waits(make_context, monkeypatch):
    operator = KeyedAggregateFunctionOperator(first, Joined())
    context = make_context(0, operator)
    operator.open(context)
    changed = context.keyed_state.table("aggregate_function").changed
    for _ in operator.process(RowBatch([("a", 1)])):
        pass
    if changed.lends:  # RocksDB writes values at once
        assert changed.mutable() == {}
