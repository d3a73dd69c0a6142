"""What goes through the codecs comes back equal and of the same type, and damaged bytes are told as such."""

from __future__ import annotations

import contextlib
import math
import struct
from collections import deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from penstock.runtime.errors import CodecError, StreamCorruptError
from penstock.runtime.record.batch_codec import BatchCodec
from penstock.runtime.record.element_codec import (
    ElementKind,
    decode_element,
    encode_element,
    is_event,
    kind_of,
)
from penstock.runtime.record.elements import (
    ArrowBatch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
    SnapshotKind,
    StreamElement,
    StreamStatus,
    Watermark,
)
from penstock.runtime.record.value_codec import ValueCodec

# Some days away from the ends, so that every zone's offset still fits.
FIRST, LAST = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001

Pair = namedtuple("Pair", ["first", "second"])


class Reading(NamedTuple):
    sensor: str
    value: Any = 0.0


@dataclass
class Order:
    key: Any
    lines: Any = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    key: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    left: Any
    right: Any = None


@dataclass
class Empty:
    pass


class Colour(Enum):
    RED = "red"
    GREEN = (1, 2)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(Flag):
    READ = 1
    WRITE = 2


class Text(str):
    """A string that is not just a string."""


class Rows(list):  # type: ignore[type-arg]
    """A list that is not just a list."""


def same(left: Any, right: Any) -> bool:
    """Equal and of the same type all the way down; nan is nan, -0.0 is not 0.0, order of dicts counts."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        same_form = left.dtype == right.dtype and left.shape == right.shape
        if left.dtype.char == "O":
            return same_form and all_same(left.ravel().tolist(), right.ravel().tolist())
        return same_form and left.tobytes() == right.tobytes()
    if isinstance(left, np.generic):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, Decimal):
        return left.as_tuple() == right.as_tuple()
    if isinstance(left, (datetime, time)):
        return left == right and left.fold == right.fold and same_zone(left.tzinfo, right.tzinfo)
    if isinstance(left, (list, tuple, deque)):
        bound = getattr(left, "maxlen", None) == getattr(right, "maxlen", None)
        return bound and all_same(left, right)
    if isinstance(left, dict):
        return all_same(left, right) and all_same(left.values(), right.values())
    if isinstance(left, (set, frozenset)):
        return all_same(sorted(left, key=stable), sorted(right, key=stable))
    if is_dataclass(left) and not isinstance(left, type):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    return bool(left == right)


def all_same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    ours, theirs = list(left), list(right)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def same_zone(left: tzinfo | None, right: tzinfo | None) -> bool:
    return type(left) is type(right) and left == right and str(left) == str(right)


def stable(item: Any) -> str:
    """A sort key that does not depend on the order of sets, and tells one nan from another."""
    if isinstance(item, frozenset):
        return f"frozenset {sorted(map(stable, item))}"
    if isinstance(item, float):
        return f"float {struct.pack('d', item).hex()}"
    if isinstance(item, tuple):
        return f"{type(item).__name__} {list(map(stable, item))}"
    if is_dataclass(item) and not isinstance(item, type):
        return f"{type(item).__name__} {[stable(getattr(item, f.name)) for f in fields(item)]}"
    return f"{type(item).__name__} {item!r}"


any_text = st.text(st.characters(exclude_categories=()))  # with NUL and lone surrogates
zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.sampled_from(["Europe/Berlin", "America/New_York", "UTC"]).map(ZoneInfo),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text("abc", min_size=1)),
)
datetimes = st.builds(
    lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
    st.datetimes(FIRST, LAST),
    zones,
    st.sampled_from([0, 0, 1]),
)
times = st.builds(
    lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), zones, st.integers(0, 1)
)
numpy_scalars = st.one_of(npst.scalar_dtypes().flatmap(npst.from_dtype)).map(np.asarray).map(lambda a: a[()])
hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(),
    any_text,
    st.binary(),
    st.dates(),
    datetimes,
    times,
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.sampled_from(
        [Decimal("1.10"), Decimal("-0"), Decimal("1E+5"), Decimal("NaN12"), Decimal("-Infinity")]
    ),
    st.fractions(),
    st.uuids(),
    st.complex_numbers(),
    st.sampled_from([*Colour, *Level, *Mode, Mode.READ | Mode.WRITE, Mode(0)]),
)
leaves = st.one_of(
    hashable_leaves,
    st.binary().map(bytearray),
    st.decimals(allow_nan=True),
    numpy_scalars,
    npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, min_side=0, max_side=3)),
    npst.arrays(npst.array_dtypes(), npst.array_shapes(max_side=3)),
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Frozen, inner),
        st.builds(Slotted, inner, inner),
    ),
    max_leaves=5,
)


def object_array(items: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = item
    return array


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(st.tuples(inner, inner), max_size=4),
        st.lists(st.fixed_dictionaries({"a": inner, "b": inner}), max_size=4),
        st.lists(st.builds(Order, inner, inner), max_size=3),
        st.lists(inner, max_size=4).map(object_array),
        st.dictionaries(hashables, inner, max_size=3),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.sets(hashables, max_size=3),
        st.frozensets(hashables, max_size=3),
        st.builds(deque, st.lists(inner, max_size=3), st.sampled_from([None, 3, 5])),
        st.builds(Pair, inner, inner),
        st.builds(Reading, any_text, inner),
        st.builds(Order, inner, inner),
        st.builds(Slotted, inner, inner),
        st.builds(Empty),
    )


values = st.recursive(leaves, containers, max_leaves=12)


@given(values)
def test_a_value_comes_back_equal_and_of_the_same_type_without_pickle(value: Any) -> None:
    codec = ValueCodec(allow_pickle=False)
    assert same(codec.loads(codec.dumps(value)), value)


@given(
    hashable_leaves.flatmap(lambda leaf: st.lists(st.just(leaf) | hashable_leaves, min_size=2, max_size=5))
)
def test_a_column_of_simple_values_comes_back_equal_and_of_the_same_type(column: list[Any]) -> None:
    codec = ValueCodec(allow_pickle=False)
    assert same(codec.loads(codec.dumps(column)), column)


columns = st.sampled_from(
    [
        any_text,
        st.integers(),
        st.floats(),
        st.booleans(),
        datetimes,
        st.datetimes(),
        st.datetimes(FIRST, LAST, timezones=st.just(ZoneInfo("Europe/Berlin"))),
        st.decimals(),
        st.sampled_from(Colour),
        st.sampled_from(Mode),
        st.floats().map(np.float64),
        st.integers(0, 9).map(np.int32),
        st.binary().map(bytearray),
        st.tuples(st.integers(), any_text),
        st.lists(st.integers(), min_size=2, max_size=2),
        st.builds(Pair, st.integers(), any_text),
        st.builds(Frozen, st.integers()),
        st.builds(Empty),
        st.one_of(st.none(), st.integers()),
        st.dictionaries(st.sampled_from([1, True, 1.0, "1"]), st.integers(), max_size=2),
        st.tuples(),
    ]
)


@given(columns.flatmap(lambda column: st.lists(column, min_size=1, max_size=20)))
def test_a_column_of_one_type_comes_back_equal_and_of_the_same_type(column: list[Any]) -> None:
    codec = ValueCodec(allow_pickle=False)
    assert same(codec.loads(codec.dumps(column)), column)


@given(st.one_of(st.text().map(Text), st.lists(st.integers()).map(Rows), st.builds(range, st.integers(0, 9))))
def test_a_subclass_of_a_builtin_is_pickled_or_refused_but_never_becomes_its_base(value: Any) -> None:
    codec = ValueCodec()
    assert same(codec.loads(codec.dumps([value, 1])), [value, 1])
    assert (codec.statistics().pickled, codec.statistics().unpickled) == (1, 1)
    with pytest.raises(CodecError, match=f"{type(value).__name__} can only be pickled"):
        ValueCodec(allow_pickle=False).dumps([value, 1])
    with pytest.raises(CodecError, match="holds a pickled value"):
        ValueCodec(allow_pickle=False).loads(codec.dumps([value, 1]))


rows = st.one_of(
    st.lists(values, max_size=5),
    st.lists(st.tuples(any_text, st.integers()), max_size=30),
    st.lists(st.tuples(values, values), max_size=4),
    st.lists(st.tuples(st.integers()) | st.tuples(st.integers(), st.integers()), max_size=6),
    st.lists(
        st.fixed_dictionaries({"id": st.integers(), "name": any_text}, optional={"x": values}), max_size=6
    ),
    st.lists(st.builds(Slotted, st.integers(), any_text), max_size=6),
)
timestamps = st.integers(-(1 << 63), (1 << 63) - 1)


@given(rows, st.data())
def test_rows_come_back_equal_and_of_the_same_type(given_rows: list[Any], data: st.DataObject) -> None:
    stamps = data.draw(
        st.none() | st.lists(timestamps, min_size=len(given_rows), max_size=len(given_rows)), label="stamps"
    )
    codec = BatchCodec(allow_pickle=False)
    buffer = codec.encode(RowBatch(given_rows, stamps))
    batch = codec.decode(buffer)
    assert isinstance(batch, RowBatch)
    assert same(list(batch.rows), given_rows)
    assert same(batch.timestamps, stamps)
    assert buffer.rows == len(given_rows)


arrow_arrays = st.sampled_from(
    [
        (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
        (pa.string(), st.text(st.characters(codec="utf-8"))),
        (pa.float32(), st.floats(width=32, allow_nan=False)),
        (
            pa.timestamp("us", "Europe/Berlin"),
            st.datetimes(EPOCH).map(lambda d: d.replace(tzinfo=UTC)),
        ),
        (pa.list_(pa.int8()), st.lists(st.integers(-128, 127))),
        (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "c"])),
    ]
)


@given(st.integers(0, 20), st.lists(arrow_arrays, max_size=4), st.data())
def test_an_arrow_batch_comes_back_with_its_schema_and_metadata(
    length: int, kinds: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    arrays = [
        pa.array(data.draw(st.lists(st.none() | inner, min_size=length, max_size=length)), kind)
        for kind, inner in kinds
    ]
    schema = pa.schema(
        [pa.field(f"c{i}", a.type, metadata={"i": str(i)}) for i, a in enumerate(arrays)], {"k": "v"}
    )
    batch = pa.record_batch(arrays, schema=schema)
    codec = BatchCodec(allow_pickle=False)
    back = codec.decode(codec.encode(ArrowBatch(batch)))
    assert isinstance(back, ArrowBatch)
    assert back.batch.equals(batch, check_metadata=True)


elements: st.SearchStrategy[StreamElement] = st.one_of(
    st.builds(Buffer, st.binary(), st.integers(0, (1 << 32) - 1)),
    st.builds(Watermark, timestamps),
    st.sampled_from(StreamStatus),
    st.builds(
        CheckpointBarrier,
        timestamps,
        st.floats(allow_nan=False),
        st.builds(
            CheckpointOptions,
            st.sampled_from(SnapshotKind),
            st.booleans(),
            st.none() | st.floats(min_value=0, allow_nan=False),
        ),
        timestamps,
    ),
    st.builds(CancelCheckpointMarker, timestamps),
    st.builds(EndOfData, st.booleans()),
    st.just(EndOfPartition()),
)


@given(elements, st.sampled_from([bytes, bytearray, memoryview]))
def test_an_element_comes_back_equal(element: StreamElement, form: Callable[[bytes], Any]) -> None:
    data = encode_element(element)
    back = decode_element(form(data))
    assert (type(back), back) == (type(element), element)
    assert is_event(data) == (not isinstance(element, Buffer))
    assert (kind_of(data) is ElementKind.BUFFER) == isinstance(element, Buffer)


@given(elements, st.data())
def test_a_truncated_or_lengthened_element_is_corrupt(element: StreamElement, data: st.DataObject) -> None:
    encoded = encode_element(element)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for damaged in (encoded[:cut], encoded + b"\0"):
        with pytest.raises(StreamCorruptError):
            decode_element(damaged)


@given(st.binary(max_size=60))
def test_garbage_is_an_element_or_corrupt(garbage: bytes) -> None:
    try:
        element = decode_element(garbage)
    except StreamCorruptError:
        return
    assert len(encode_element(element)) == len(garbage)


@given(values, st.data())
def test_a_truncated_value_is_refused(value: Any, data: st.DataObject) -> None:
    codec = ValueCodec(allow_pickle=False)
    encoded = codec.dumps(value)
    with pytest.raises(CodecError):
        codec.loads(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(values | rows, st.data())
def test_damaged_bytes_are_a_value_or_refused(value: Any, data: st.DataObject) -> None:
    codec = ValueCodec(allow_pickle=False)
    damaged = bytearray(codec.dumps(value))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    raises_only_codec_error(lambda: codec.loads(bytes(damaged)))


@given(st.integers(1, 40), st.binary(max_size=40))
def test_a_garbage_extension_is_a_value_or_refused(code: int, garbage: bytes) -> None:
    codec = ValueCodec(allow_pickle=False)
    raises_only_codec_error(lambda: codec.loads(bytes([0xC7, len(garbage), code]) + garbage))


@given(st.sampled_from([0x11, 0x12, 0x13]), st.binary(max_size=60), st.integers(0, 3))
def test_a_garbage_buffer_is_a_batch_or_refused(kind: int, garbage: bytes, count: int) -> None:
    codec = BatchCodec(allow_pickle=False)
    raises_only_codec_error(lambda: codec.decode(Buffer(bytes([kind]) + garbage, count)))


@given(st.data())
def test_a_truncated_arrow_buffer_is_refused(data: st.DataObject) -> None:
    codec = BatchCodec(allow_pickle=False)
    buffer = codec.encode(ArrowBatch(pa.record_batch({"a": [1, 2, 3], "s": ["x", "y", None]})))
    # The last 8 bytes mark the end of the stream; the batch is complete before them.
    cut = data.draw(st.integers(0, buffer.size - 9))
    with pytest.raises(CodecError):
        codec.decode(Buffer(buffer.payload[:cut], buffer.rows))


def raises_only_codec_error(attempt: Callable[[], Any]) -> None:
    with contextlib.suppress(CodecError):
        attempt()


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, -0.0, UUID(int=5), Fraction(1, 3), date.min, time.max]
)
def test_the_comparison_of_these_tests_tells_types_apart(value: Any) -> None:
    assert same(value, value)
    assert not same([value], [str(value)])
    assert not same([1], [True])
    assert not same([0.0], [-0.0])
