"""One rule for keys of every type: equal keys are equal for Python, in their bytes and in their hashes.

A dictionary on the heap goes by Python, RocksDB by bytes, exchanges and columns by hashes. Where the three
would differ the key is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import KeyedProcessFunction, MapState, StateTtl
from penstock.runtime.config.job_config import HeapState, RocksDB
from penstock.runtime.errors import KeyTypeError, OperatorError
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.record.row_columns import NoPythonValueError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.key_bytes import key_bytes
from penstock.runtime.state.stable_hash import stable_hash
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.testing import OperatorHarness

NEW_YORK = ZoneInfo("America/New_York")
#: 05:30 and 06:30 in UTC: New York's clocks show 01:30 twice.
TWICE = [datetime(2022, 11, 6, hour, 30, tzinfo=UTC) for hour in (5, 6)]


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Place:
    name: Any


class Whole(IntEnum):
    ONE = 1


class Text(StrEnum):
    A = "a"


class Plain(Enum):
    ONE = 1
    A = "a"


def frozen(parts: list[Any]) -> frozenset[Any]:
    try:
        return frozenset(parts)
    except (TypeError, ValueError):  # numpy's numbers refuse to be compared with fractions and tuples
        return frozenset()


ZONES = st.sampled_from([None, UTC, NEW_YORK, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-5))])
#: Around the hours that the clocks of New York show twice and skip.
MOMENTS = st.builds(
    lambda day, minutes, zone, fold: (day + timedelta(minutes=minutes)).replace(tzinfo=zone, fold=fold),
    st.sampled_from([datetime(2022, 11, 6), datetime(2022, 3, 13), datetime(1970, 1, 1)]),  # noqa: DTZ001
    st.integers(0, 20).map(lambda half_hours: 30 * half_hours),
    ZONES,
    st.integers(0, 1),
)
NUMBERS = (
    st.integers(-3, 3)
    | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30])
    | st.booleans()
    | st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0**63, 2.0**64, math.inf, -math.inf])
    | st.sampled_from([Decimal(1), Decimal("1.00"), Decimal("0.5"), Decimal("1E+30"), Decimal("Infinity")])
    | st.sampled_from([Fraction(1, 2), Fraction(2, 2), np.int8(1), np.uint64(2**64 - 1), np.float64(0.5)])
    | st.sampled_from([np.bool_(True), Whole.ONE])
)
LEAVES = (
    NUMBERS
    | MOMENTS
    | MOMENTS.map(lambda moment: moment.date())
    | MOMENTS.map(lambda moment: moment.time())
    | st.sampled_from(["", "a", "\u00e9", "e\u0301", "1", "\ud800", Text.A, Plain.A, Plain.ONE, np.str_("a")])
    | st.sampled_from([b"", b"a", b"1", np.bytes_(b"a"), None, UUID(int=1)])
    | st.sampled_from([timedelta(0), timedelta(1), timedelta(hours=24), timedelta(microseconds=1)])
)
KEYS = st.recursive(
    LEAVES,
    lambda parts: (
        st.lists(parts, max_size=2).map(tuple)
        | st.tuples(parts, parts).map(lambda pair: Point(*pair))
        | st.lists(parts, max_size=2).map(frozen)
        | parts.map(Place)
    ),
    max_leaves=3,
)


def accepted(key: Any) -> bool:
    try:
        stable_hash(key)
    except KeyTypeError:
        with pytest.raises(KeyTypeError):
            key_bytes(key)
        return False
    return True


@given(st.lists(KEYS, min_size=2, max_size=8))
@example([moment.astimezone(NEW_YORK) for moment in TWICE])
@example([TWICE[0], TWICE[0].astimezone(NEW_YORK), TWICE[0].astimezone(timezone(timedelta(hours=-4)))])
@example([1, True, 1.0, Decimal(1), Fraction(1), np.int8(1), Whole.ONE, Plain.ONE])
@example([np.True_, (Decimal(1),), Place(np.True_), Place((Decimal(1),))])
def test_keys_are_equal_for_python_in_their_bytes_and_hashes_or_in_none(keys: list[Any]) -> None:
    for one, other in combinations([key for key in keys if accepted(key)], 2):
        try:
            # As a dictionary compares: a number of numpy "equals" a tuple of one equal number.
            are_equal = hash(one) == hash(other) and bool(one == other)
        except (TypeError, ValueError, OverflowError):  # numpy refuses fractions, tuples and large numbers
            continue
        assert (key_bytes(one)[0] == key_bytes(other)[0]) is are_equal
        if are_equal:
            assert stable_hash(one) == stable_hash(other)


@given(KEYS)
def test_a_key_comes_back_equal_from_a_snapshot(key: Any) -> None:
    if accepted(key):
        codec = ValueCodec()
        back = codec.loads(codec.dumps(key))
        assert back == key
        assert stable_hash(back) == stable_hash(key)
        assert key_bytes(back) == key_bytes(key)


@pytest.mark.parametrize("wrap", [lambda key: key, lambda key: (1, key), lambda key: frozenset([key]), Place])
@pytest.mark.parametrize("moment", [(2022, 11, 6, 1, 30), (2022, 3, 13, 2, 30)])
@pytest.mark.parametrize("fold", [0, 1])
def test_a_time_that_clocks_show_twice_or_skip_is_refused_as_a_key_of_a_function(
    wrap: Callable[[Any], Any], moment: tuple[int, ...], fold: int
) -> None:
    key = wrap(datetime(*moment, fold=fold, tzinfo=NEW_YORK))
    for use in (stable_hash, key_bytes):
        with pytest.raises(KeyTypeError, match=r"show .* twice, or skip it.*key\.astimezone\(UTC\)"):
            use(key)


def test_a_column_has_two_keys_for_an_hour_that_comes_twice() -> None:
    batch = pa.record_batch({"hour": pa.array(TWICE, pa.timestamp("us", "America/New_York"))})
    key = ColumnKey(("hour",))
    rows = [key(row) for row in rows_of(ArrowBatch(batch)).rows]
    assert rows == TWICE
    assert [stable_hash(each) for each in rows] == key_hashes(key.columns(batch)).tolist()


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("moment", [datetime.min, datetime.max])  # noqa: DTZ901
def test_times_at_the_ends_of_the_calendar_are_keys(moment: datetime, zone: str) -> None:
    local = moment.replace(tzinfo=ZoneInfo(zone))
    key = ColumnKey(("k",))({"k": local})
    assert key == local
    assert stable_hash(key) == stable_hash(local)


NANOSECONDS = [pa.timestamp("ns"), pa.timestamp("ns", "Asia/Tokyo"), pa.duration("ns"), pa.time64("ns")]


@pytest.mark.parametrize("kind", NANOSECONDS, ids=str)
def test_nanoseconds_are_a_key_in_rows_and_columns_where_they_are_whole_microseconds(
    kind: pa.DataType,
) -> None:
    batch = pa.record_batch({"t": pa.array([1_000, 2_000, None], kind)})
    key = ColumnKey(("t",))
    rows = [key(row) for row in rows_of(ArrowBatch(batch)).rows]
    assert [stable_hash(each) for each in rows] == key_hashes(key.columns(batch)).tolist()
    assert len(set(rows)) == 3


@pytest.mark.parametrize("kind", [*NANOSECONDS, pa.date64()], ids=str)
def test_times_of_a_higher_precision_are_refused_as_keys_and_never_merged(kind: pa.DataType) -> None:
    batch = pa.record_batch({"t": pa.array([1_001, 1_002], kind)})
    key = ColumnKey(("t",))
    with pytest.raises(KeyTypeError, match="column 't'"):
        key.columns(batch)
    with pytest.raises((KeyTypeError, NoPythonValueError)):
        [stable_hash(key(row)) for row in rows_of(ArrowBatch(batch)).rows]


@pytest.mark.parametrize("kind", [pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal256(50, 2)], ids=str)
def test_decimals_of_every_width_are_one_key_in_rows_and_columns(kind: pa.DataType) -> None:
    batch = pa.record_batch({"d": pa.array([Decimal("1.00"), Decimal("1.50")]).cast(kind)})
    key = ColumnKey(("d",))
    rows = [key(row) for row in rows_of(ArrowBatch(batch)).rows]
    assert [stable_hash(each) for each in rows] == key_hashes(key.columns(batch)).tolist()


@pytest.mark.parametrize("exponent", [10**9, -(10**9)])
def test_a_decimal_whose_digits_would_fill_the_memory_is_refused(exponent: int) -> None:
    with pytest.raises(KeyTypeError, match="exponent"):
        stable_hash(Decimal((0, (1,), exponent)))


@pytest.mark.parametrize("backend", [HeapState(), RocksDB(8 * 1024 * 1024, "/dev/shm")], ids=["heap", "disk"])
def test_an_hour_that_comes_twice_is_two_keys_before_and_after_a_rescale(backend: Any) -> None:
    hours = pa.array(TWICE * 2, pa.timestamp("us", "America/New_York"))
    batch = ArrowBatch(pa.record_batch({"hour": hours, "n": [1, 10, 100, 1000]}))

    def sums(stream: Any) -> Any:
        return stream.key_by("hour").reduce("sum", lambda a, b: {**a, "n": a["n"] + b["n"]})

    with OperatorHarness.of(sums, state_backend=backend) as harness:
        assert [row["n"] for row in harness.push_batch(batch)] == [1, 10, 101, 1010]
        saved = harness.snapshot()
    states = []
    for subtask in range(3):
        settings: Any = {"subtask": subtask, "parallelism": 3, "restored": [saved], "state_backend": backend}
        with OperatorHarness.of(sums, **settings) as harness:
            states += harness.state("reduce").items()
    assert sorted((key, row["n"]) for key, row in states) == [(TWICE[0], 101), (TWICE[1], 1010)]


class CaseBlind(str):
    def __eq__(self, other: object) -> bool:
        return str(self).lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class CountsInMaps(KeyedProcessFunction[Any, Any, Any]):
    plain: MapState[Any, int] = MapState()
    with_ttl: MapState[Any, int] = MapState(ttl=StateTtl(3600))

    def process(self, value: Any, ctx: Any) -> Any:
        ttl, key = value
        (self.with_ttl if ttl else self.plain)[key] = 1
        yield 1


#: Python calls each equal to the key before it, and a dictionary finds it there.
EQUAL_AND_REFUSED = [
    (0.5, np.float32(0.5)),
    (1, 1 + 0j),
    ("a", CaseBlind("a")),
    ((0.5, "a"), (np.float32(0.5), "a")),
    (((0.5,),), ((np.float32(0.5),),)),
]


@pytest.mark.parametrize("backend", [HeapState(), RocksDB(8 * 1024 * 1024, "/dev/shm")], ids=["heap", "disk"])
@pytest.mark.parametrize(("known", "refused"), EQUAL_AND_REFUSED, ids=str)
def test_what_can_not_be_a_key_is_refused_also_where_an_equal_key_is_known(
    backend: Any, known: Any, refused: Any
) -> None:
    def sums(stream: Any) -> Any:
        return stream.key_by(lambda pair: pair[1]).reduce("sum", lambda a, b: b)

    def maps(stream: Any) -> Any:
        return stream.key_by(lambda pair: pair[0]).process("maps", CountsInMaps())

    for job, ttl in ((sums, False), (maps, False), (maps, True)):
        with OperatorHarness.of(job, state_backend=backend) as harness:
            harness.push([(ttl, known)])
            harness.snapshot()
            with pytest.raises(OperatorError, match=r"can't (be a key|have this map key)"):
                harness.push([(ttl, refused)])
