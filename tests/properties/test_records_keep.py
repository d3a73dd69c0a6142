"""Jobs whose functions change and keep records: what was emitted stays what it was.

A job is a line of steps over records that hold lists. Each step is rude. It changes the record that it was
given, emits it and changes it again, or keeps it and changes it when the next one comes. A model does the
same with copies of everything. The job must give what the model gives, whatever is chained and whatever the
sizes of batches and buffers are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

import pytest
from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Checkpointing,
    CollectSink,
    KeyedProcessFunction,
    ListState,
    MapState,
    OutputTag,
    ProcessFunction,
    ReducingState,
    StreamEnvironment,
    ValueState,
)
from penstock.runtime.config.job_config import ON_HEAP, RocksDB, StateBackend
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.testing.simulation.run.user_run import Course, UserSimulation

Record: TypeAlias = dict[str, Any]


def raised(row: Record) -> Record:
    """Changes what it is given, also within."""
    row["n"] += 1
    row["items"].append(row["n"])
    return row


class Keeper:
    """Keeps all records and spoils the one before when the next one comes."""

    def __init__(self) -> None:
        self.kept: list[Record] = []

    def __call__(self, row: Record) -> Record:
        for old in self.kept:
            old["n"] = -1
            old["items"].append("spoiled")
        self.kept = [row]
        return row


class PickyKeeper(Keeper):
    """The same as a predicate."""

    def __call__(self, row: Record) -> bool:  # type: ignore[override]
        super().__call__(row)
        return row["n"] % 5 != 0


class BatchKeeper(Keeper):
    """The same with batches."""

    def __call__(self, rows: list[Record]) -> list[Record]:  # type: ignore[override]
        for old in self.kept:
            old.clear()
        self.kept = rows
        return rows


def grown(row: Record) -> Iterator[Record]:
    """Emits one object again and again, and changes it in between and afterwards."""
    yield row
    row["items"].append("again")
    yield row
    row.clear()


class One:
    """Emits one and the same object for all records."""

    def __init__(self) -> None:
        self.row: Record = {}

    def __call__(self, row: Record) -> list[Record]:
        self.row.clear()
        self.row.update(row)
        return [self.row]


class Aside(ProcessFunction[Record, Record]):
    """Sends a record to the side output and changes it."""

    aside = OutputTag[Record]()

    def process(self, value: Record, ctx: Any) -> Iterator[Record]:
        ctx.output(self.aside, value)
        value["n"] *= 2
        value["items"].append("doubled")
        yield value


class Histories(KeyedProcessFunction[int, Record, Record]):
    """Changes what it has read, put and emitted, with each kind of state."""

    values = ValueState[Any](list)
    newest = ValueState[Any](dict)
    elements = ListState[Any]()
    by_id = MapState[Any, Any]()
    total = ReducingState[Any](lambda a, b: raised({**a, "items": a["items"] + b["items"]}))

    def process(self, value: Record, ctx: Any) -> Iterator[Record]:
        items = self.values.value() or []
        items.append(value["n"])
        self.values.update(items)
        held = (self.newest.value() or {}).get("n")
        self.newest.update(value)
        self.elements.add(value)
        self.by_id[value["id"] % 2] = value
        self.total.add(value)
        yield {
            "id": value["id"],
            "k": value["k"],
            "n": value["n"],
            "items": items,
            "held": held,
            "elements": self.elements.get(),
            "map": dict(self.by_id.items()),
            "total": self.total.get(),
        }
        items.append("later")
        value["n"] = 1_000
        value["items"].append("later")
        for each in (*self.elements.get(), *self.by_id.values(), self.total.get(), self.newest.value()):
            each["n"] = 2_000


def merged(total: Record, row: Record) -> Record:
    """A reduce function that changes both of its arguments."""
    total["n"] += row["n"]
    total["items"] += row["items"]
    row["items"].append("merged")
    return total


class Outcome(NamedTuple):
    """The output of a step for all records: the main stream, and the side output."""

    main: list[Record]
    side: list[Record]


def _each(call: Callable[[Record], Any]) -> Callable[[list[Record]], Outcome]:
    return lambda rows: Outcome([each for row in rows for each in call(row)], [])


def _raised(row: Record) -> list[Record]:
    return [{**row, "n": row["n"] + 1, "items": [*row["items"], row["n"] + 1]}]


def _grown(row: Record) -> list[Record]:
    return [row, {**row, "items": [*row["items"], "again"]}]


def _aside(rows: list[Record]) -> Outcome:
    main = [{**row, "n": row["n"] * 2, "items": [*row["items"], "doubled"]} for row in rows]
    return Outcome(main, rows)


def _histories(rows: list[Record]) -> Outcome:
    main: list[Record] = []
    of_key: dict[int, list[Record]] = defaultdict(list)
    totals: dict[int, Record] = {}
    for row in rows:
        before, key = of_key[row["k"]], row["k"]
        held = before[-1]["n"] if before else None
        before.append(row)
        if key in totals:
            total = {**totals[key], "items": totals[key]["items"] + row["items"]}
            totals[key] = _raised(total)[0]
        else:
            totals[key] = row
        main.append(
            {
                "id": row["id"],
                "k": key,
                "n": row["n"],
                "items": [each["n"] for each in before],
                "held": held,
                "elements": list(before),
                "map": {each["id"] % 2: each for each in before},
                "total": totals[key],
            }
        )
    return Outcome(main, [])


def _merged(rows: list[Record]) -> Outcome:
    totals: dict[int, Record] = {}
    main = []
    for row in rows:
        total = totals.get(row["k"])
        if total is not None:
            row = {**total, "n": total["n"] + row["n"], "items": total["items"] + row["items"]}
        totals[row["k"]] = row
        main.append(row)
    return Outcome(main, [])


def by_k(row: Record) -> int:
    """A key selector that spoils the record."""
    return int(row.pop("k"))


#: By name: how a job does a step, given a stream and a number for ids, and how the model does it.
STEPS: dict[str, tuple[Callable[[Any, int], Any], Callable[[list[Record]], Outcome]]] = {
    "change": (lambda s, i: s.map(raised), _each(_raised)),
    "keep": (lambda s, i: s.map(Keeper()), _each(lambda row: [row])),
    "choose": (lambda s, i: s.filter(PickyKeeper()), _each(lambda row: [row] if row["n"] % 5 else [])),
    "batches": (lambda s, i: s.map_batches(BatchKeeper()), _each(lambda row: [row])),
    "grow": (lambda s, i: s.flat_map(grown), _each(_grown)),
    "one": (lambda s, i: s.flat_map(One()), _each(lambda row: [row])),
    "aside": (lambda s, i: s.process(f"aside-{i}", Aside()), _aside),
    "histories": (lambda s, i: s.key_by(by_k).process(f"histories-{i}", Histories()), _histories),
    "reduce": (lambda s, i: s.key_by(by_k).reduce(f"reduce-{i}", merged), _merged),
}


def source(count: int) -> list[Record]:
    """The records that go in."""
    return [{"id": i, "k": i % 3, "n": i, "items": [i]} for i in range(count)]


def expected(steps: list[str], count: int) -> dict[str, list[Record]]:
    """The model's output for each sink."""
    rows, sinks = source(count), {}
    for place, step in enumerate(steps):
        sinks[f"before-{place}"] = rows
        rows, side = map(deepcopy, STEPS[step][1](deepcopy(rows)))
        if side:
            sinks[f"side-{place}"] = side
    sinks["end"] = rows
    return sinks


def job(
    steps: list[str], count: int, *, chaining: bool, forks: frozenset[int], backend: StateBackend
) -> tuple[StreamEnvironment, dict[str, InMemoryCollector]]:
    """The job, and what its sinks write to.

    Args:
        forks: Steps in front of which a sink reads the records, too.
    """
    sinks: dict[str, InMemoryCollector] = {}
    env = StreamEnvironment(
        "rude",
        chaining=chaining,
        state_backend=backend,
        checkpointing=Checkpointing(every=10, storage="memory:"),
    )

    def read(stream: Any, name: str) -> None:
        sinks[name] = InMemoryCollector()
        stream.sink(name, CollectSink(sinks[name]))

    stream: Any = env.from_collection("records", source(count))
    for place, step in enumerate(steps):
        if place in forks:
            read(stream, f"before-{place}")
        stream = STEPS[step][0](stream, place)
        if step == "aside":
            read(stream.side_output(Aside.aside), f"side-{place}")
    read(stream, "end")
    return env, sinks


@settings(max_examples=15 * DEEP, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    st.integers(1, 12),
    st.booleans(),
    st.frozensets(st.integers(0, 3)),
    st.integers(0, 1 << 20),
)
def test_what_was_emitted_does_not_depend_on_chaining_batches_buffers_or_interleaving(
    steps: list[str], count: int, chaining: bool, forks: frozenset[int], seed: int
) -> None:
    run_and_compare(steps, count, chaining=chaining, forks=forks, seed=seed, backend=ON_HEAP)


@pytest.mark.parametrize("backend", [ON_HEAP, RocksDB(memory=8 << 20)])
@pytest.mark.parametrize("step", sorted(STEPS))
def test_each_step_gives_what_the_model_gives(step: str, backend: StateBackend) -> None:
    for chaining in (True, False):
        run_and_compare(
            ["keep", step], 12, chaining=chaining, forks=frozenset({0, 1}), seed=1, backend=backend
        )


def run_and_compare(
    steps: list[str], count: int, *, chaining: bool, forks: frozenset[int], seed: int, backend: StateBackend
) -> None:
    run = UserSimulation(
        lambda: job(steps, count, chaining=chaining, forks=forks, backend=backend),
        lambda sinks: {name: collector.rows() for name, collector in sinks.items()},
        Course(seed, with_failures=False, rescale=False),
    ).run()
    assert not run.problem
    model = expected(steps, count)
    for name, rows in run.output.items():
        assert rows == model.get(name, []), name
