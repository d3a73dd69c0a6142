"""Rule: restored state is found by the keys of today's program, or the restore names the key that is not.

The class of a key may have changed since: a field more, another order, another value of an enum's member. On
each backend, at each parallelism, also where a snapshot of the heap is restored into RocksDB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from penstock import HeapState, KeyedProcessFunction, MapState, RocksDB, ValueState
from penstock.runtime.errors import PenstockError, StateMismatchError
from penstock.testing import OperatorHarness

HEAP, ROCKSDB = HeapState(), RocksDB(8 * 1024 * 1024, "/dev/shm")
BACKENDS = [(HEAP, HEAP), (ROCKSDB, ROCKSDB), (HEAP, ROCKSDB)]
NAMES = ["heap", "rocksdb", "heap to rocksdb"]

FROZEN = "@dataclass(frozen=True)\nclass Key:\n"
#: Name of the change, the class before and after it, and the key in both programs.
CHANGED = {
    "a field more": (f"{FROZEN} a: int", f"{FROZEN} a: int\n b: int = 5", "Key(7)"),
    "another order": (f"{FROZEN} a: int\n b: str", f"{FROZEN} b: str\n a: int", "Key(a=7, b='x')"),
    "a named tuple's field more": (
        "class Key(NamedTuple):\n a: int",
        "class Key(NamedTuple):\n a: int\n b: int = 5",
        "Key(7)",
    ),
    "another number": (
        "class Key(IntEnum):\n A = 1\n B = 2",
        "class Key(IntEnum):\n NEW = 1\n A = 2\n B = 3",
        "Key.B",
    ),
    "another text": ("class Key(StrEnum):\n A = 'a'", "class Key(StrEnum):\n A = 'z'", "Key.A"),
    "another name": ("class Key(Enum):\n A = 1", "class Key(Enum):\n NEW = 1\n A = 1", "Key.A"),
    "flags of other values": (
        "class Key(Flag):\n A = 1\n B = 2",
        "class Key(Flag):\n A = 2\n B = 4",
        "Key.A | Key.B",
    ),
}
KEPT = {
    "another value of a plain enum": ("class Key(Enum):\n A = 1", "class Key(Enum):\n A = 2", "Key.A"),
    "a field that is not compared": (
        f"{FROZEN} a: int",
        f"{FROZEN} a: int\n b: int = field(compare=False, default=1)",
        "Key(7)",
    ),
}
IMPORTS = (
    "from dataclasses import dataclass, field\n"
    "from enum import Enum, Flag, IntEnum, StrEnum\n"
    "from typing import NamedTuple\n"
)


@pytest.fixture
def program() -> Iterator[Callable[[str], ModuleType]]:
    """Defines the user's module anew."""
    module = sys.modules["changing_keys"] = ModuleType("changing_keys")

    def define(text: str) -> ModuleType:
        vars(module).clear()
        vars(module)["__name__"] = "changing_keys"
        exec(IMPORTS + text, vars(module))
        return module

    yield define
    del sys.modules["changing_keys"]


class Visits(KeyedProcessFunction[Any, Any, Any]):
    count = ValueState(int, default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        self.count.update(self.count.value() + 1)
        yield self.count.value()


class Parts(KeyedProcessFunction[Any, Any, Any]):
    """Has the key in a map, of a key that can't change."""

    counts: MapState[Any, int] = MapState()

    def process(self, value: Any, ctx: Any) -> Any:
        self.counts[value] = self.counts.get(value, 0) + 1
        yield self.counts[value]


def visits(stream: Any) -> Any:
    return stream.key_by(lambda value: value).process("visits", Visits())


def pairs(stream: Any) -> Any:
    return stream.key_by(lambda value: ("visitor", (value,))).process("pairs", Visits())


def parts(stream: Any) -> Any:
    return stream.key_by(lambda value: "one").process("parts", Parts())


def counts(build: Any, key: Any, backend: Any, restored: Any = (), parallelism: int = 2) -> tuple[Any, Any]:
    found, saved = [], []
    for subtask in range(parallelism):
        with OperatorHarness.of(
            build, subtask=subtask, parallelism=parallelism, restored=restored, state_backend=backend
        ) as harness:
            owner = {visits: key, pairs: ("visitor", (key,)), parts: "one"}[build]
            found += harness.push([key]) if harness.owns(owner) else []
            saved.append(harness.snapshot())
    return found, saved


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(("before", "after"), BACKENDS, ids=NAMES)
@pytest.mark.parametrize("build", [visits, pairs])
@pytest.mark.parametrize("change", CHANGED)
def test_state_of_a_key_whose_class_has_changed_is_refused_by_name(
    program: Any, change: str, build: Any, before: Any, after: Any, parallelism: int
) -> None:
    old, new, key = CHANGED[change]
    _, saved = counts(build, eval(key, vars(program(old))), before)
    now = eval(key, vars(program(new)))
    with pytest.raises(StateMismatchError, match=r"state 'count' .* key .* whose class has changed since"):
        counts(build, now, after, saved, parallelism)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(("before", "after"), BACKENDS, ids=NAMES)
@pytest.mark.parametrize("change", KEPT)
def test_state_of_a_key_that_is_still_the_same_is_found(
    program: Any, change: str, before: Any, after: Any, parallelism: int
) -> None:
    old, new, key = KEPT[change]
    _, saved = counts(visits, eval(key, vars(program(old))), before)
    assert counts(visits, eval(key, vars(program(new))), after, saved, parallelism)[0] == [2]


@pytest.mark.parametrize(("before", "after"), BACKENDS, ids=NAMES)
@pytest.mark.parametrize("change", CHANGED)
def test_an_entry_of_a_map_is_found_or_refused(program: Any, change: str, before: Any, after: Any) -> None:
    old, new, key = CHANGED[change]
    _, saved = counts(parts, eval(key, vars(program(old))), before)
    now = eval(key, vars(program(new)))
    if before == ROCKSDB:
        with pytest.raises(StateMismatchError, match="state 'counts'"):
            counts(parts, now, after, saved)
    else:  # its snapshot has the parts themselves, and each backend makes of them what it finds them by
        assert counts(parts, now, after, saved)[0] == [2]


@pytest.mark.parametrize("backend", [HEAP, ROCKSDB], ids=["heap", "rocksdb"])
def test_a_value_that_the_program_can_no_longer_read_is_refused_with_its_state(
    program: Any, backend: Any
) -> None:
    class Last(KeyedProcessFunction[Any, Any, Any]):
        last = ValueState()

        def process(self, value: Any, ctx: Any) -> Any:
            yield self.last.value()
            self.last.update(value)

    def build(stream: Any) -> Any:
        return stream.key_by(lambda value: 1).process("last", Last())

    value = program("@dataclass\nclass Value:\n a: int").Value(1)
    with OperatorHarness.of(build, state_backend=backend) as harness:
        harness.push([value])
        saved = harness.snapshot()
    program("@dataclass\nclass Value:\n b: int = 1")
    with (
        pytest.raises(PenstockError, match=r"state 'last'.*Value no longer has the field\(s\) a"),
        OperatorHarness.of(build, state_backend=backend, restored=[saved]) as harness,
    ):
        harness.push([2])
