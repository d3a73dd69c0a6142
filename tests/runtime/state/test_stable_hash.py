from __future__ import annotations

import enum
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from penstock.runtime.errors import KeyTypeError, PenstockError
from penstock.runtime.record.column_key import NAN, canonical_column
from penstock.runtime.state.key_bytes import key_bytes
from penstock.runtime.state.stable_hash import stable_hash
from penstock.runtime.state.stable_hash_arrays import (
    key_hashes,
    stable_hashes,
)

Pair = namedtuple("Pair", "left right")


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Old(str, enum.Enum):  # noqa: UP042
    A = "a"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    READ = 1


@dataclass(frozen=True)
class Point:
    x: int
    y: int
    note: str = field(default="", compare=False)


@dataclass
class Mutable:
    x: int


@dataclass(frozen=True, eq=False)
class ById:
    x: int


@dataclass(frozen=True)
class Peculiar:
    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class CaseBlind(str):
    def __eq__(self, other: object) -> bool:
        return str(self).lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class HashedByItself(str):
    def __hash__(self) -> int:
        return 7


#: These numbers are in the checkpoints of running jobs.
PINNED: list[tuple[Any, int]] = [
    (0, 0xE220A8397B1DCDAF),
    (1, 0x910A2DEC89025CC1),
    (-1, 0xE4D971771B652C20),
    (2**63, 0x481EC0A212A9F3DB),
    (2**64 - 1, 0xE4D971771B652C20),
    (2**64, 0xEF18FC35F794C13C),
    (0.5, 0x0DFCBC72A1E4302C),
    (Decimal("0.1"), 0x3C866113CB91C5EA),
    (None, 0x2D0F28C7E7E786B2),
    (NAN, 0x4396D60DBD8537AF),
    ("", 0x4DC5B0CC826F6703),
    ("word", 0xC0A156D636DA49DF),
    ("中文", 0x5E50194197D651FE),
    (b"word", 0x2B4D9F1C7B055C6F),
    ((), 0xD8D13F8B2DA6C9AD),
    (("a", 1), 0xCE37A7F1CD597A0B),
    (frozenset(["a", "b"]), 0x584C042AD4114813),
    (date(2024, 2, 29), 0x8D69D372850DDE4B),
    (datetime(2024, 2, 29, 12, 30, tzinfo=UTC), 0x14AD23BE0CE53D45),
    (datetime(2024, 2, 29, 12, 30), 0x5E896A19E65D19E6),  # noqa: DTZ001
    (time(12, 30), 0x5AEDEDF3B80CB7FE),
    (timedelta(days=-1), 0x2435026CB73B7615),
    (UUID(int=1), 0xFC886CE1CBAD36F3),
]


def short_name(value: Any) -> str:
    """The same in every process: no addresses, and sets in order."""
    if isinstance(value, frozenset | set):
        return f"{type(value).__name__} of {sorted(map(repr, value))}"
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text[:40]


@pytest.mark.parametrize(("key", "expected"), PINNED, ids=short_name)
def test_a_hash_never_changes(key: Any, expected: int) -> None:
    assert stable_hash(key) == expected


def test_another_process_with_another_hash_seed_gives_the_same_hashes() -> None:
    program = (
        "from penstock.runtime.state.stable_hash import stable_hash\n"
        "keys = ['word', b'word', ('a', 1), frozenset(['a', 'b', 'c', 'd']), 2.5, None, 'é']\n"
        "print([stable_hash(key) for key in keys])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    "same",
    [
        (1, 1.0, True, Decimal(1), Decimal("1.00"), Fraction(1), np.int8(1), np.uint64(1), np.int64(1),
         np.float64(1), np.bool_(True), Level.LOW, Bits.READ),
        (0, -0.0, False, Decimal("-0")),
        (2.5, Decimal("2.5"), Fraction(5, 2), np.float64(2.5)),
        (10**30, Decimal(10**30), Decimal("1E+30"), Fraction(10**30)),
        (2**70, float(2**70)),
        (float("inf"), Decimal("Infinity")),
        ("a", Word.A, Old.A, np.str_("a")),
        (b"a", np.bytes_(b"a")),
        ((1, "x"), Pair(1, "x"), (1.0, "x")),
        (frozenset([1, "a", (2,)]), frozenset([(2.0,), "a", True])),
        (Point(1, 2), Point(1, 2, "elsewhere"), Point(1.0, 2)),
        (Color.RED, Color.CRIMSON),
        (Access.READ | Access.WRITE, Access(3)),
        (
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
            datetime(2024, 1, 1, 13, tzinfo=ZoneInfo("Europe/Berlin")),
        ),
        (timedelta(hours=1), timedelta(minutes=60)),
    ],
)  # fmt: skip
def test_keys_that_are_equal_hash_equal(same: tuple[Any, ...]) -> None:
    assert all(key == same[0] for key in same)
    assert {stable_hash(key) for key in same} == {stable_hash(same[0])}


class Loud(int):
    def __int__(self) -> int:
        return 7


class Steep(float):
    def __float__(self) -> float:
        return 7.5


class Short(bytes):
    def __len__(self) -> int:
        return 1


class Few(tuple[int, ...]):
    __slots__ = ()

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("key", "equal"), [(Loud(3), 3), (Steep(2.5), 2.5), (Short(b"abc"), b"abc"), (Few((1, 2)), (1, 2))]
)
def test_keys_that_convert_to_another_value_are_kept_by_the_value_that_they_equal(
    key: Any, equal: Any
) -> None:
    assert key == equal
    assert stable_hash(key) == stable_hash(equal)
    assert key_bytes(key)[0] == key_bytes(equal)[0]


def test_keys_of_different_kinds_do_not_collide() -> None:
    uuid = UUID(int=7)
    keys = [
        "", b"", (), frozenset(), None, 0, "a", b"a", ("a",), (("a",),), frozenset("a"), uuid, uuid.bytes,
        str(uuid), date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC),  # noqa: DTZ001
        time(0), timedelta(0), Color.RED, Access.READ, Point(1, 2), (1, 2), (2, 1), ("ab", "c"), ("a", "bc"),
        0.5, -1, 2**64, -(2**63),
        timedelta.max, datetime.min, datetime.max.replace(tzinfo=UTC), "\ud800",  # noqa: DTZ901
    ]  # fmt: skip
    assert len({stable_hash(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ([1], "use a tuple"),
        ({"a": 1}, "use a tuple"),
        ({1}, "use a frozenset"),
        (bytearray(b"a"), "use bytes"),
        (memoryview(b"a"), "use bytes"),
        (np.array([1]), "use a tuple"),
        (float("nan"), "not equal to itself"),
        (np.float64("nan"), "not equal to itself"),
        (Decimal("NaN"), "not equal to itself"),
        (Decimal("sNaN"), "not equal to itself"),
        (np.float32(0.5), "float"),
        (np.datetime64("2024-01-01"), "item"),
        (np.timedelta64(1, "s"), "item"),
        (1j, "tuple of two floats"),
        (time(1, tzinfo=UTC), "datetime"),
        (Mutable(1), "frozen=True"),
        (ById(1), "tuple of them"),
        (Peculiar(1), "tuple of them"),
        (CaseBlind("a"), "no form"),
        (HashedByItself("a"), "no form"),
        (object(), "no form"),
        (range(3), "no form"),
        ((1, [2]), "use a tuple"),
        (frozenset([(float("nan"),)]), "not equal to itself"),
        (Point(1, [2]), "use a tuple"),  # type: ignore[arg-type]
    ],
    ids=short_name,
)
def test_what_can_not_be_a_key_is_refused_with_advice(key: Any, advice: str) -> None:
    with pytest.raises(KeyTypeError, match=advice) as refused:
        stable_hash(key)
    assert isinstance(refused.value, PenstockError)
    assert isinstance(refused.value, TypeError)


def hashes_of_column(column: Any) -> NDArray[np.uint64]:
    return key_hashes([canonical_column(column, "key")])


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_every_width_hash_the_same_one_by_one_in_arrays_and_in_columns(kind: str) -> None:
    info = np.iinfo(kind)
    numbers = [int(info.min), 0, 1, int(info.max) - 1, int(info.max)]
    expected = [stable_hash(number) for number in numbers]
    array = np.array(numbers, dtype=kind)
    assert stable_hashes(numbers).tolist() == expected
    assert hashes_of_column(pa.array(array)).tolist() == expected
    assert [stable_hash(number) for number in array] == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", None, "a", ""]),
        pa.array(["a", None], type=pa.large_string()),
        pa.array([b"a", b"", None], type=pa.binary()),
        pa.array([1, None, -1], type=pa.int32()),
        pa.array([True, False, None]),
        pa.array([1.0, 2.5, None]),
        pa.array([2.0**53, -(2.0**63), 2.0**63, 1.8e19, 2.0**64, 1e300, 5e-324, -0.1, float("-inf")]),
        pa.array([0.1, -2.5, 1.0], type=pa.float32()),
        pa.array(np.array([0.5, -0.0], dtype=np.float16)),
        pa.array([Decimal("1.00"), Decimal("2.50")]),
        pa.array([date(2024, 1, 1), None, date.min, date.max]),
        pa.array([date(2024, 1, 1), None], type=pa.date64()),
        pa.array([datetime(1969, 1, 1, 1, 2, 3, 4), None], type=pa.timestamp("us")),  # noqa: DTZ001
        pa.array([datetime(1969, 1, 1, 1, 2, 3)], type=pa.timestamp("s")),  # noqa: DTZ001
        pa.array([time(12, 30, 1), None], type=pa.time32("s")),
        pa.array([time(12, 30, 1, 5)], type=pa.time64("us")),
        pa.array([timedelta(days=-1, microseconds=1), None, timedelta(days=40)], type=pa.duration("us")),
        pa.array([b"ab", None], type=pa.binary(2)),
        pa.array(["a", None], type=pa.string_view()),
        pa.array([b"a", None], type=pa.binary_view()),
        pa.array([Decimal("0.5"), Decimal(2**64), None], type=pa.decimal256(60, 3)),
        pa.array([datetime(2024, 1, 1, tzinfo=UTC)], type=pa.timestamp("us", "Europe/Berlin")),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array([None, None]),
        pa.chunked_array([["a"], ["b", "a"]]),
        pa.chunked_array([], type=pa.string()),
        pa.array(["x", "a", "b"])[1:],
        pa.array([5, 6, None, 7])[1:],
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_hashes_like_its_values(column: Any) -> None:
    assert hashes_of_column(column).tolist() == [stable_hash(value) for value in column.to_pylist()]


def test_every_nan_of_a_column_hashes_as_the_one_nan_that_is_a_key() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=np.uint64)
    column = pa.array(bits.view(np.float64), from_pandas=False)
    assert hashes_of_column(column).tolist() == [stable_hash(NAN)] * 3


@pytest.mark.parametrize("parts", [2, 3, 16, 17])
def test_several_columns_hash_like_tuples_of_their_values(parts: int) -> None:
    columns = [pa.array([n, None, -n]) if n % 2 else pa.array(["a", str(n), None]) for n in range(parts)]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    assert key_hashes(columns).tolist() == [stable_hash(row) for row in rows]


def test_a_column_of_lists_is_refused() -> None:
    with pytest.raises(KeyTypeError, match="use a tuple"):
        hashes_of_column(pa.array([[1], [2]]))


def test_integers_beyond_64_bits_hash_in_sequences_too() -> None:
    keys = [2**64, -(2**63) - 1, 2**63, 5]
    assert stable_hashes(keys).tolist() == [stable_hash(key) for key in keys]
    assert stable_hashes([]).tolist() == []
