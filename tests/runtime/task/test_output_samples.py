"""Samples of what a subtask sends on an edge."""

from __future__ import annotations

import itertools
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.snapshot.ids import EdgeId, SubtaskId
from penstock.runtime.task.output_samples import (
    MOST_CHARACTERS,
    MOST_SECONDS,
    MOST_VALUES,
    OutputEdge,
    OutputSample,
    shown,
)
from penstock.runtime.task.outputs import SubtaskOutputs

LEFT, RIGHT = OutputEdge("left", "a", None, 0, 0), OutputEdge("right", "a", None, 0, 0)


def partition(receiver: str) -> ResultPartitionSpec:
    channels = (OutputChannelSpec(SubtaskId(receiver, 0), 0),)
    return ResultPartitionSpec(
        "a", None, Partitioner(Partitioning.FORWARD), 8, channels, EdgeId("a", None, receiver)
    )


class Sender:
    """A subtask's outputs to `left` and `right`, with the partitions that a batch passes."""

    def __init__(self) -> None:
        config = JobConfig(advanced=AdvancedConfig(credits=2))
        location = {"a": OperatorLocation("a", 0, 1)}
        specs = (partition("left"), partition("right"))
        self.outputs = SubtaskOutputs(specs, 0, BatchCodec(), lambda *frame: None, config, location)
        self.before = list(self.route)
        self.full = 0

    @property
    def route(self) -> list[Any]:
        return self.outputs._routes["a", None]

    def sample(self, most: int) -> OutputSample:
        def on_full() -> None:
            self.full += 1

        return OutputSample(most, on_full, lambda: 0.0)

    def emit(self, batch: Batch) -> None:
        self.outputs.emit("a", None, batch)


def texts(sample: OutputSample) -> list[str]:
    return [record.text for record in sample.records]


def test_a_sample_has_the_next_records_of_its_edge_and_then_nothing_of_it_is_left() -> None:
    sender = Sender()
    sender.emit(RowBatch([1]))
    sample = sender.sample(3)
    sender.outputs.sample(RIGHT, sample)
    assert sender.route[0] is sender.before[0], "the other edge is left alone"
    sender.emit(RowBatch([2, 3], [20, 30]))
    sender.emit(RowBatch([4, 5]))
    assert [(record.text, record.timestamp) for record in sample.records] == [
        ("2", 20),
        ("3", 30),
        ("4", None),
    ]
    assert sender.full == 1
    assert sender.route == sender.before, "sending costs what it did before"
    assert sender.outputs.records == 5


def test_a_sample_that_nothing_filled_ends_when_it_is_told_to() -> None:
    sender = Sender()
    sample = sender.sample(3)
    end = sender.outputs.sample(LEFT, sample)
    sender.emit(RowBatch(["a"]))
    end()
    end()
    assert sender.route == sender.before
    sender.emit(RowBatch(["b"]))
    assert texts(sample) == ["'a'"]


def test_two_people_look_at_one_edge() -> None:
    sender = Sender()
    first, second = sender.sample(1), sender.sample(2)
    sender.outputs.sample(LEFT, first)
    end = sender.outputs.sample(LEFT, second)
    sender.emit(RowBatch([1]))
    sender.emit(RowBatch([2]))
    end()
    assert (texts(first), texts(second)) == (["1"], ["1", "2"])
    assert sender.route == sender.before


def test_an_edge_that_this_subtask_does_not_have_is_not_sampled() -> None:
    sender = Sender()
    sender.outputs.sample(OutputEdge("other", "a", None, 0, 0), sender.sample(1))()
    assert sender.route == sender.before


def test_rows_of_an_arrow_batch_are_dicts() -> None:
    sender, batch = Sender(), pa.record_batch({"n": [1, 2, 3]})
    sample = sender.sample(2)
    sender.outputs.sample(LEFT, sample)
    sender.emit(ArrowBatch(batch, pa.array([10, 20, 30])))
    assert texts(sample) == ["{'n': 1}", "{'n': 2}"]
    assert [record.timestamp for record in sample.records] == [10, 20]


@dataclass
class Order:
    customer: str
    items: list[int]
    card: str = field(default="4111", repr=False)


class Broken:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __repr__(self) -> str:
        raise self._error


def test_a_record_of_any_size_has_a_bounded_text() -> None:
    assert len(shown(["x" * 10_000] * 10_000)) <= MOST_CHARACTERS
    assert shown(Order("ada", [1, 2])) == "Order(customer='ada', items=[1, 2])", (
        "no field that `repr` leaves out"
    )
    assert len(shown(dict.fromkeys(range(1_000)))) < 500
    assert shown({"b": 1, "a": {}}) == "{'b': 1, 'a': {}}", "in the order of the record"
    assert len(shown(Order("a" * 10_000, list(range(10_000))))) <= MOST_CHARACTERS


def test_timestamps_may_be_an_array_of_numpy() -> None:
    sender = Sender()
    sample = sender.sample(2)
    sender.outputs.sample(LEFT, sample)
    sender.emit(RowBatch([1, 2], cast("Any", np.array([10, 20]))))
    assert [record.timestamp for record in sample.records] == [10, 20]
    assert {type(record.timestamp) for record in sample.records} == {int}, "a JSON number later"


class Counted(dict[str, int]):
    pass


class Point(NamedTuple):
    x: Any
    y: int


class Element:
    """A value that counts how often a text of it was made."""

    texts = 0

    def __repr__(self) -> str:
        Element.texts += 1
        return "e"


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        deque,
        dict.fromkeys,
        OrderedDict.fromkeys,
        set,
        frozenset,
        lambda values: defaultdict(int, dict.fromkeys(values)),
        lambda values: Counted(dict.fromkeys(values)),
        lambda values: Point(list(values), 1),
        lambda values: Order("ada", list(values)),
    ],
)
def test_a_text_is_made_of_a_bounded_number_of_values(make: Callable[[list[Element]], Any]) -> None:
    Element.texts = 0
    values = [Element() for _ in range(1_000)]
    assert len(shown(make(values))) < MOST_CHARACTERS
    assert 0 < Element.texts <= 100
    Element.texts = 0
    shown([[[[make(values)] * 30] * 30] * 30])
    assert Element.texts <= MOST_VALUES


def test_only_the_beginning_of_binary_values_becomes_text() -> None:
    class Bytes(bytes):
        def __repr__(self) -> str:
            assert len(self) < 1_000
            return super().__repr__()

    assert shown(b"ab") == "b'ab'"
    for value in (b"x" * 5_000, bytearray(5_000), array("d", [1.0] * 5_000), Bytes(b"x" * 5_000)):
        assert len(shown(value)) <= MOST_CHARACTERS


def test_texts_of_containers_are_those_of_python() -> None:
    for value in ([], (), (1,), (1, 2), {}, {3}, set(), frozenset({1}), {"a": [1]}, deque([1]), Point(1, 2)):
        assert shown(value) == repr(value)
    assert shown(Counted(a=1)) == "Counted({'a': 1})"
    assert shown([[[[[[[1]]]]]]]) == "[[[[[[[...]]]]]]]"


def test_a_sample_that_takes_long_ends_early() -> None:
    moments = itertools.count(0.0, MOST_SECONDS / 4)
    full: list[bool] = []
    sample = OutputSample(100, lambda: full.append(True), lambda: next(moments))
    sample.take(RowBatch([1] * 100))
    assert 1 <= len(sample.records) <= 5
    assert sample.is_full
    assert full == [True]


def test_a_record_that_can_not_be_shown_does_not_fail_the_job() -> None:
    for error in (ValueError(), SystemExit(3), KeyboardInterrupt()):
        assert "Broken" in shown(Broken(error))
    sender, sample = Sender(), OutputSample(2, lambda: None, lambda: 0.0)
    sender.outputs.sample(LEFT, sample)
    sender.emit(ArrowBatch(pa.record_batch({"at": pa.array([1], pa.timestamp("ns", "Nowhere/City"))})))
    assert texts(sample)[0].startswith("<a batch of 1 rows, which can't be shown: ")
    sender.emit(RowBatch([1], cast("Any", ["no number"])))
    assert texts(sample)[1:] == ["<records that can't be shown: ValueError>"]
    assert sender.route == sender.before, "the sample has ended"
    assert sender.outputs.records == 2
    cycle: list[Any] = []
    cycle.append(cycle)
    assert shown(cycle)
