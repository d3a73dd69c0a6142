"""`only_reads`: it never says yes to a function that could change or keep a record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import KeyedProcessFunction, MapState, OutputTag, ValueState
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.record.column_key import ColumnKey

NAMES = ["a", "b"]
NUMBERS = {"a": 1}
KEPT: list[Any] = []


class Point(NamedTuple):
    x: int


@dataclass
class Row:
    x: int


@dataclass
class Counting:
    x: int

    def __post_init__(self) -> None:
        KEPT.append(self)


def helped(row: Any) -> Any:
    return Point(row["x"] + 1)


def calls_itself(row: Any) -> Any:
    return calls_itself(row[0]) if row else 1


def yields(row: Any) -> Iterator[Any]:
    for part in row:
        yield part, row


def reads_a_global(row: Any) -> Any:
    return NAMES[row % 2], NUMBERS.get("a")


READING: list[Callable[..., Any]] = [
    lambda row: (row["a"], row["b"] * 2),
    lambda row: {**row, "n": f"{row['n']:.2f}"},
    lambda row: {"key": row["key"], "default": row["v"], "out": row["w"]},
    lambda row: [part * 2 for part in row if part],
    lambda row: Point(1) if row else Row(2),
    lambda row: helped(row),
    lambda row: (first := row["a"]) and first.upper().strip(),
    lambda a, b: max(a, b),
    lambda batch: batch.set_column(0, "x", pc.multiply(batch["x"], 2)),
    lambda row: pa.array(row),
    json.loads,
    lambda row: datetime.fromisoformat(row["at"]) + timedelta(seconds=row["n"]),
    lambda row: time.time(),
    reads_a_global,
    calls_itself,
    yields,
    str.upper,
    len,
    max,
    itemgetter("a"),
    ColumnKey(("a",)),
    partial(lambda size, row: row[:size], 2),
]


@pytest.mark.parametrize("function", READING)
def test_functions_that_only_read(function: Callable[..., Any]) -> None:
    assert only_reads(function)


def stores(row: Any) -> Any:
    row["a"] = 1
    return row


def deletes(row: Any) -> Any:
    del row["a"]
    return row


def sets(row: Any) -> Any:
    row.a = 1
    return row


def adds_in_place(row: Any) -> Any:
    row += [1]
    return row


def keeps_in_a_global(row: Any) -> Any:
    global KEPT
    KEPT = row


def calls_a_local(row: Any) -> Any:
    append = row.append
    append(1)
    return row


def imports(row: Any) -> Any:
    import os

    return os.environ


def tries(row: Any) -> Any:
    try:
        return row["a"]
    except KeyError:
        return row


def default_list(row: Any, kept: Any = KEPT.append) -> Any:
    return row


class Keeps:
    def __call__(self, row: Any) -> Any:
        KEPT.append(row)

    def method(self, row: Any) -> Any:
        self.last = row
        return row


def closure(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda row: sorted(row, key=function)


CHANGING: list[Callable[..., Any]] = [
    stores,
    deletes,
    sets,
    adds_in_place,
    keeps_in_a_global,
    calls_a_local,
    imports,
    tries,
    default_list,
    Keeps(),
    Keeps().method,
    Keeps,
    closure(KEPT.append),
    lambda row: KEPT.append(row),
    lambda row: row.pop("a"),
    lambda row: row.sort(),
    lambda row: row.setdefault("a", []),
    lambda row: row["numbers"].partition(3),  # sorts a numpy array in place
    lambda row: row["numbers"].take([1], out=row["one"]),
    lambda row: setattr(row, "a", 1),
    lambda row: list(map(KEPT.append, row)),
    lambda row: sorted(row, key=KEPT.append),
    lambda row: dict.update(NUMBERS, row),
    lambda row: Counting(row),
    lambda row: [KEPT.append(part) for part in row],
    lambda row: (lambda: KEPT.append(row))(),
    lambda row: stores(row),
    lambda row: next(row),
    lambda row: exec("KEPT.append(row)"),
    KEPT.append,
    list.append,
    print,
]


@pytest.mark.parametrize("function", CHANGING)
def test_functions_that_could_change_or_keep_a_record(function: Callable[..., Any]) -> None:
    assert not only_reads(function)


class Good(KeyedProcessFunction[str, Any, Any]):
    total = ValueState(int, default=0)
    late = OutputTag[Any]()

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.output(self.late, value)
        ctx.timer_service.register_event_time_timer(value["at"] + 1)
        self.total.update(self.total.value() + self.of(value))
        yield ctx.current_key, self.total.value()

    def of(self, value: Any) -> Any:
        return value["n"]


class Counts(Good):
    pages = MapState[str, int]()

    def open(self, ctx: Any) -> None:
        self.seen = 0

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen += 1
        self.pages[value["page"]] = self.pages.get(value["page"], 0) + 1
        yield {"page": value["page"], "all": dict(self.pages)}


class AddsToAttribute(Good):
    def of(self, value: Any) -> Any:
        self.seen += value  # type: ignore[attr-defined]
        return 1


class AddsToLocal(Good):
    def of(self, value: Any) -> Any:
        array = value["array"]
        array += 1
        return array


class PutsIntoRecord(Good):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        value["n"] = 1
        yield value


class PutsIntoAttribute(Good):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.kept["n"] = value  # type: ignore[attr-defined]
        yield value


class KeepsInAttribute(Good):
    def of(self, value: Any) -> Any:
        self.last = value
        return value["n"]


class AsksAnObject(Good):
    def __init__(self) -> None:
        self.store = Keeps()

    def of(self, value: Any) -> Any:
        return self.store.get(value)  # type: ignore[attr-defined]


class ChangesWhatItRead(Good):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        items: Any = self.total.value()
        items.append(value)
        yield items


class HandsItselfOn(Good):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self


def test_methods_of_process_functions() -> None:
    assert only_reads(Good().process)
    assert only_reads(Counts().process)
    for function in (
        AddsToAttribute(),
        AddsToLocal(),
        PutsIntoRecord(),
        PutsIntoAttribute(),
        KeepsInAttribute(),
        AsksAnObject(),
        ChangesWhatItRead(),
        HandsItselfOn(),
    ):
        assert not only_reads(function.process), type(function).__name__
