"""Users' objects that keep what passes through them and change it later: nothing that has passed changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from penstock import (
    AggregateFunction,
    AggregatingState,
    Checkpointing,
    CollectSink,
    GeneratorSource,
    KeyedProcessFunction,
    ListState,
    MapState,
    ProcessFunction,
    ReducingState,
    StreamEnvironment,
    ValueState,
)
from penstock.aggregates import VectorizedAggregate
from penstock.connectors import DeadLetter, Polled
from penstock.operators import ArrowBatch, Batch, Operator, RowBatch
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.testing.simulation.run.user_run import Course, UserSimulation
from penstock.state import OperatorListState
from penstock.testing import OperatorHarness
from penstock.windows import CountTrigger, Evictor, GlobalWindows, Trigger, TriggerResult

Row = dict[str, Any]


def collected(build: Any, **settings: Any) -> list[Any]:
    """The output of a job that reads a source and writes it to a sink, chained."""

    def built() -> tuple[StreamEnvironment, InMemoryCollector]:
        env = StreamEnvironment("kept", checkpointing=Checkpointing(every=10, storage="memory:"), **settings)
        results = InMemoryCollector()
        build(env).sink("out", CollectSink(results))
        return env, results

    course = Course(3, with_failures=False, rescale=False)
    run = UserSimulation(built, lambda results: results.rows(), course).run()
    assert not run.problem
    rows: list[Any] = run.output
    return rows


# -- sources -------------------------------------------------------------------------------------------------


def test_a_generator_source_may_give_one_object_again_and_again() -> None:
    row: Row = {"items": []}

    def grown(number: int) -> Row:
        row["items"].append(number)
        return row

    rows = collected(lambda env: env.from_source("numbers", GeneratorSource(grown, count=4)))
    assert [each["items"] for each in rows] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


class Reused:
    """Gives the same list with the same dict at each poll, and one dead letter with it."""

    def __init__(self) -> None:
        self.polls, self.row = 0, {"n": 0, "items": [0]}
        self.rows = [self.row]

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def reader(self, context: Any, splits: Sequence[int]) -> Reused:
        return self

    def poll(self, max_rows: int) -> Polled[Row]:
        if self.polls == 5:
            return Polled(finished=True)
        self.polls += 1
        self.row["n"] = self.polls
        self.row["items"].append(self.polls)
        return Polled(RowBatch(self.rows), dead_letters=[DeadLetter(self.row, "none", "here")])

    def snapshot(self) -> Sequence[int]:
        return [0]

    def close(self) -> None:
        self.rows.clear()


def test_a_reader_may_give_one_list_again_and_again() -> None:
    rows = collected(lambda env: env.from_source("reused", Reused()))
    assert [row["n"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[1]["items"] == [0, 1, 2]
    letters = collected(lambda env: env.from_source("reused", Reused()).dead_letters())
    assert [letter.record["n"] for letter in letters] == [1, 2, 3, 4, 5]


# -- state ---------------------------------------------------------------------------------------------------


class Joined(AggregateFunction[list[int], list[Any], list[Any]]):
    """Its accumulator is its result; the first accumulators are one object."""

    empty: ClassVar[list[Any]] = []

    def create_accumulator(self) -> list[Any]:
        return self.empty

    def add(self, value: list[int], accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


class Spoiler(KeyedProcessFunction[str, list[int], Any]):
    """Changes all that it has put into state or read of it."""

    value = ValueState[Any](default=deque([0]))
    elements = ListState[Any]()
    parts = MapState[Any, Any]()
    reduced = ReducingState[Any](lambda a, b: a + b)
    folded = AggregatingState(Joined())

    def process(self, value: list[int], ctx: Any) -> Iterator[Any]:
        held = self.value.value()
        held.append(value[0])
        self.value.update(held)
        self.elements.add(value)
        self.parts["part"] = value
        self.parts.setdefault("first", value)
        self.reduced.add(value)
        self.folded.add(value)
        yield self.seen()
        held.append("later")
        value.append("later")  # type: ignore[arg-type]
        for seen in self.seen():
            seen.append("spoiled")
        for each in (*self.elements, *self.parts.values(), self.parts["part"], self.parts.get("first")):
            each.append("spoiled")
        for _, each in self.parts.items():
            each.append("spoiled")

    def seen(self) -> list[Any]:
        return [
            self.value.value(),
            self.elements.get(),
            [dict(self.parts)],
            self.reduced.get(),
            self.folded.get(),
        ]


class SpoilerWithTtl(Spoiler):
    value = ValueState[Any](default=deque([0]), ttl=1000)
    elements = ListState[Any](ttl=1000)
    parts = MapState[Any, Any](ttl=1000)
    reduced = ReducingState[Any](lambda a, b: a + b, ttl=1000)
    folded = AggregatingState(Joined(), ttl=1000)


@pytest.mark.usefixtures("either_backend")
@pytest.mark.parametrize("function", [Spoiler, SpoilerWithTtl])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_state_holds_what_was_put_into_it(function: type[Spoiler], restarts: bool) -> None:
    def keyed(stream: Any) -> Any:
        return stream.key_by(lambda row: "key").process("spoil", function())

    harness = OperatorHarness.of(keyed)
    (first,) = harness.push([[1]])
    if restarts:
        saved = harness.snapshot()
        harness.close()
        harness = OperatorHarness.of(keyed, restored=[saved])
    (second,) = harness.push([[2]])
    (other,) = OperatorHarness.of(keyed).push([[9]])
    harness.close()
    assert first == [deque([0, 1]), [[1]], [{"part": [1], "first": [1]}], [1], [[1]]]
    assert second == [deque([0, 1, 2]), [[1], [2]], [{"part": [2], "first": [1]}], [1, 2], [[1], [2]]]
    assert other == [deque([0, 9]), [[9]], [{"part": [9], "first": [9]}], [9], [[9]]]


class ListSpoiler(ProcessFunction[list[int], Any]):
    lists = OperatorListState[Any]()

    def process(self, value: list[int], ctx: Any) -> Iterator[Any]:
        self.lists.add(value)
        yield self.lists.get()
        value.append(-1)
        for each in (*self.lists, *self.lists.get()):
            each.append(-2)


def test_a_list_of_a_subtask_holds_what_was_put_into_it() -> None:
    with OperatorHarness.of(lambda rows: rows.process("lists", ListSpoiler())) as harness:
        assert harness.push([[1], [2]]) == [[[1]], [[1], [2]]]


# -- windows -------------------------------------------------------------------------------------------------


class RudeEvictor(Evictor[Row]):
    def evict_before(self, elements: Any, window: Any) -> Any:
        for each in elements:
            each.value["n"] += 100
        return elements

    def evict_after(self, elements: Any, window: Any) -> Any:
        return elements


class RudeTrigger(Trigger[Row]):
    """Fires for each record, which it spoils, and keeps a list in its state."""

    def on_element(self, element: Row, timestamp: int | None, window: Any, ctx: Any) -> TriggerResult:
        element["n"] = -1
        seen = ctx.state("seen", []).value()
        seen.append(1)
        return TriggerResult.FIRE if len(seen) == 1 else TriggerResult.CONTINUE


def test_triggers_look_at_records_and_state_of_their_own() -> None:
    def windows(rows: Any) -> Any:
        made = rows.key_by(lambda row: 0).window(GlobalWindows()).trigger(RudeTrigger())
        return made.apply("kept", lambda key, window, records: [[row["n"] for row in records]])

    with OperatorHarness.of(windows) as harness:
        assert harness.push([{"n": 1}, {"n": 2}]) == [[1], [1, 2]]


def test_functions_of_windows_that_go_on_may_change_what_they_get() -> None:
    def rude(key: Any, window: Any, records: list[Row]) -> Iterator[list[Row]]:
        yield records
        for row in records:
            row["n"] = -1

    def windows(rows: Any) -> Any:
        made = rows.key_by(lambda row: 0).window(GlobalWindows()).trigger(CountTrigger(1))
        return made.apply("kept", rude)

    with OperatorHarness.of(windows) as harness:
        assert harness.push([{"n": 1}, {"n": 2}]) == [[{"n": 1}], [{"n": 1}, {"n": 2}]]


def test_evictors_change_what_is_emitted_and_kept_only_by_what_they_return() -> None:
    kept: list[Any] = []

    def rude(key: Any, window: Any, records: list[Row]) -> list[int]:
        kept[:] = records
        found = [row["n"] for row in records]
        for row in records:
            row["n"] = -1
        return found

    def windows(rows: Any) -> Any:
        made = rows.key_by(lambda row: 0).window(GlobalWindows()).trigger(CountTrigger(1))
        return made.evictor(RudeEvictor()).apply("kept", rude)

    with OperatorHarness.of(windows) as harness:
        assert harness.push([{"n": 1}]) == [101]
        kept[0]["n"] = -2
        assert harness.push([{"n": 2}]) == [201, 102]


# -- batches -------------------------------------------------------------------------------------------------


class Buffers:
    """Fills one numpy array again and again."""

    def __init__(self) -> None:
        self.numbers = np.zeros(2, np.int64)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.numbers[:] = batch.column("n").to_numpy()[0]
        return pa.record_batch({"n": pa.array(self.numbers)})


def test_an_arrow_batch_of_a_numpy_array_that_is_filled_again_stays() -> None:
    stream = OperatorHarness.of(lambda rows: rows.map_batches(Buffers(), batch_format="arrow"))
    with stream as harness:
        for n in (1, 2):
            harness.push_batch(ArrowBatch(pa.record_batch({"n": [n, n]})))
        assert [each.batch.to_pydict() for each in harness.batches] == [{"n": [1, 1]}, {"n": [2, 2]}]


class OneArray(VectorizedAggregate):
    """Gives its results in one array again and again."""

    state: ClassVar[dict[str, str]] = {"sum": "int64"}

    def __init__(self, *columns: str) -> None:
        super().__init__(*columns)
        self.given = np.zeros(1, np.int64)

    def update(self, state: Any, columns: Any, slots: Any) -> None:
        np.add.at(state["sum"], slots, columns["n"])

    def result(self, state: Any) -> Any:
        self.given[:] = state["sum"]
        return self.given


def test_results_of_an_aggregate_in_one_array_stay() -> None:
    aggregate = OneArray("n")
    with OperatorHarness.of(
        lambda rows: rows.key_by("k").aggregate("sum", combine=False, n=aggregate)
    ) as harness:
        harness.push([{"k": 1, "n": 1}])
        harness.push([{"k": 1, "n": 2}])
        assert harness.outputs == [{"k": 1, "n": 1}, {"k": 1, "n": 3}]


class KeepsBatches(Operator):
    """Yields one list of rows and one list of timestamps again and again."""

    def open(self, context: Any) -> None:
        self.rows: list[Any] = []
        self.stamps: list[int] = []

    def process(self, batch: Any) -> Iterator[Any]:
        for row, stamp in zip(batch.rows, batch.timestamps, strict=True):
            self.rows.append(row)
            self.stamps.append(stamp)
            yield RowBatch(self.rows, self.stamps)
            row.append("later")


def test_batches_of_an_own_operator_stay() -> None:
    with OperatorHarness.of(lambda rows: rows.transform("keeps", KeepsBatches())) as harness:
        harness.push([[1], [2]], [10, 20])
        first, second = harness.batches
        assert (first.rows, first.timestamps) == ([[1]], [10])
        assert (second.rows, second.timestamps) == ([[1, "later"], [2]], [10, 20])


# -- sinks ---------------------------------------------------------------------------------------------------


class OneCommittable:
    """A sink whose writer names all of its transactions by one list."""

    def __init__(self) -> None:
        self.committed: list[Any] = []
        self.pending: list[Any] = []

    def writer(self, context: Any) -> OneCommittable:
        return self

    def write(self, batch: Batch) -> None:
        self.pending.extend(batch.rows)

    def prepare_commit(self) -> Sequence[Any]:
        return [self.pending]

    def commit(self, committables: Sequence[Any], permit: Any) -> None:
        self.committed += committables

    def close(self) -> None:
        pass


def test_a_committable_is_what_it_was_when_it_was_prepared() -> None:
    sink = OneCommittable()
    with OperatorHarness.of(lambda rows: rows.sink("out", sink)) as harness:
        harness.push([1])
        first = harness.snapshot()
        harness.push([2])
        harness.complete_checkpoint(first)
        assert sink.committed == [[1]]
