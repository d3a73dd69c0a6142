"""Values that the value codec keeps."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import msgpack
import numpy as np
import pytest

from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec


def through(value: Any, allow_pickle: bool = False) -> Any:
    codec = ValueCodec(allow_pickle)
    return codec.loads(codec.dumps(value))


class ByIdentity:
    """Equal only to itself, as objects are by default."""


class Unpicklable:
    def __reduce__(self) -> str:
        msg = "holds a connection"
        raise TypeError(msg)


def test_a_bytearray_stays_one_wherever_it_is() -> None:
    value = {"a": [bytearray(b"x"), b"x"], "b": (bytearray(b"y"),), "c": [[bytearray(b"z")]]}
    back = through(value)
    assert back == value
    assert [type(item) for item in back["a"]] == [bytearray, bytes]
    assert type(back["b"][0]) is type(back["c"][0][0]) is bytearray


def test_true_one_and_one_point_zero_stay_what_they_are() -> None:
    back = through([True, 1, 1.0, (True, 1, 1.0), {1: True}, {True: 1}, {1.0: 1}])
    assert repr(back) == "[True, 1, 1.0, (True, 1, 1.0), {1: True}, {True: 1}, {1.0: 1}]"


def test_dicts_whose_keys_are_equal_but_of_other_types_are_not_merged_into_one_column() -> None:
    rows = [{1: "a", 2: "b"}, {True: "c", 2.0: "d"}]
    assert repr(through(rows)) == repr(rows)


def test_dicts_of_one_length_with_other_keys_or_another_order_keep_them() -> None:
    rows = [{"a": 1, "b": 2}, {"b": 3, "a": 4}, {"a": 5, "c": 6}, {"a": 1}, {"b": 2, "a": 1, "c": 3}]
    assert repr(through(rows)) == repr(rows)


def test_a_message_pack_extension_as_a_value_is_not_taken_for_the_formats_own() -> None:
    value = [msgpack.ExtType(5, b"\x90"), msgpack.Timestamp(1, 2)]
    back = through(value, allow_pickle=True)
    assert back == value
    assert [type(item) for item in back] == [msgpack.ExtType, msgpack.Timestamp]


def test_keys_that_are_different_objects_with_equal_bytes_are_not_lost() -> None:
    nan_keys = {(float("nan"),): number for number in (1, 2)}
    assert sorted(through(nan_keys).values()) == [1, 2]
    identities = {ByIdentity(): 1, ByIdentity(): 2}
    assert sorted(through(identities, allow_pickle=True).values()) == [1, 2]


@pytest.mark.parametrize(
    "value",
    [OrderedDict(a=1), Counter("aab"), defaultdict(int, a=1), range(3), slice(1, 2), ..., int, len],
    ids=lambda value: type(value).__name__,
)
def test_what_the_format_has_no_kind_for_is_pickled_and_counted(value: Any) -> None:
    codec = ValueCodec()
    back = codec.loads(codec.dumps({"in": value}))["in"]
    assert back == value
    assert type(back) is type(value)
    assert codec.pickled == 1


def test_a_column_of_pickled_objects_counts_each_of_them() -> None:
    codec = ValueCodec()
    assert codec.loads(codec.dumps([range(1), range(2), range(3)])) == [range(1), range(2), range(3)]
    assert codec.pickled == 3


def test_without_pickle_the_message_names_the_type_and_the_way_out() -> None:
    with pytest.raises(
        CodecError, match=r"collections.Counter can only be pickled.*Turn it into a dataclass"
    ):
        ValueCodec(allow_pickle=False).dumps({"counts": [Counter("a"), Counter("b")]})


def test_no_pickle_is_loaded_where_pickle_is_refused() -> None:
    for value in (range(3), [range(3), range(4)], {"deep": [(1, range(3))]}):
        data = ValueCodec().dumps(value)
        reader = ValueCodec(allow_pickle=False)
        with pytest.raises(CodecError, match="holds a pickled value"):
            reader.loads(data)


def test_a_value_that_pickle_refuses_too_is_named() -> None:
    with pytest.raises(CodecError, match="Unpicklable can't be pickled: holds a connection"):
        ValueCodec().dumps((1, Unpicklable()))


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1, (1 << 64) - 1, 127, 128, -129, 1 << 4000])
def test_integers_of_any_size_come_back(number: int) -> None:
    assert through([number, {number: (number, -number)}]) == [number, {number: (number, -number)}]


def test_a_codec_works_on_after_a_value_it_could_not_encode() -> None:
    codec = ValueCodec(allow_pickle=False)
    with pytest.raises(CodecError):
        codec.dumps(["x" * 100, range(3)])
    codec.dumps(["\ud800", 1 << 70])
    assert codec.loads(codec.dumps([1, "a"])) == [1, "a"]


@pytest.mark.parametrize("text", ["\ud800", "\udfff\ud83d", "a\0b", "", "\U0001f600"])
def test_strings_that_utf_8_has_no_bytes_for_come_back(text: str) -> None:
    assert through(text) == text
    assert through([text] * 10) == [text] * 10
    assert through({text: (text,)}) == {text: (text,)}


def test_zones_are_kept_by_kind_name_and_fold() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    fall = datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    named = timezone(timedelta(hours=1), "CET")
    column = [fall, fall.replace(fold=1), fall.replace(tzinfo=UTC), fall.replace(tzinfo=named)]
    for back in (through(column), [through(item) for item in column], through(column[:1] * 3)):
        assert back[0].tzinfo is berlin
    back = through(column)
    assert [item.fold for item in back] == [0, 1, 0, 0]
    assert [item.utcoffset() for item in back] == [item.utcoffset() for item in column]
    assert back[2].tzinfo is UTC
    assert back[3].tzname() == "CET"


def test_zones_of_equal_offset_and_other_names_are_not_merged_into_one_column() -> None:
    at = datetime(2024, 1, 1, tzinfo=timezone(timedelta(0), "A"))
    column = [at, at.replace(tzinfo=timezone(timedelta(0), "B"))]
    assert [item.tzname() for item in through(column)] == ["A", "B"]


def test_a_decimal_keeps_its_scale_and_a_uuid_its_safety() -> None:
    assert str(through([Decimal("1.10"), Decimal("-0E+3"), Decimal("sNaN7")])) == str(
        [Decimal("1.10"), Decimal("-0E+3"), Decimal("sNaN7")]
    )
    safe = UUID(int=5, is_safe=SafeUUID.safe)
    assert through(safe).is_safe is SafeUUID.safe


def test_numpy_scalars_keep_their_exact_type() -> None:
    scalars = [
        np.int8(1),
        np.longlong(2),
        np.int64(3),
        np.float16(1.5),
        np.longdouble(1) / 3,
        np.bool_(True),
        np.str_("a\0"),
        np.bytes_(b"b\0"),
        np.str_(""),
        np.datetime64("2024-01-01T00:00:00.000000001"),
        np.datetime64("NaT"),
        np.timedelta64(3, "h"),
        np.complex64(1j),
    ]
    for back in (through(scalars), [through([item, item])[1] for item in scalars]):
        assert [(type(item), item.dtype) for item in back] == [(type(item), item.dtype) for item in scalars]
        assert [repr(item) for item in back] == [repr(item) for item in scalars]


def test_an_array_keeps_dtype_shape_and_order_and_can_be_written_to() -> None:
    for array in (
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(20)[::3],
        np.array(7),
        np.zeros((0, 4)),
        np.array([(1, "a")], dtype=[("x", "i4"), ("y", "U3")]),
        np.array(["2024-01-01"], dtype="M8[D]"),
    ):
        back = through(array)
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert back.flags.f_contiguous == np.array(array, order="K").flags.f_contiguous
        assert (back == array).all()
        back[...] = back
        assert back.flags.writeable


def test_an_array_of_objects_keeps_them() -> None:
    array = np.empty((2, 2), dtype=object)
    array[0, 0], array[0, 1], array[1, 0], array[1, 1] = [1, 2], (3,), "x", None
    back = through(array)
    assert back.dtype == object
    assert back.tolist() == [[[1, 2], (3,)], ["x", None]]
    assert type(back[0, 1]) is tuple


def test_an_array_that_is_no_plain_one_is_pickled() -> None:
    masked = np.ma.masked_array([1, 2], mask=[True, False])
    back = through([masked], allow_pickle=True)[0]
    assert type(back) is type(masked)
    assert back.mask.tolist() == [True, False]
    with pytest.raises(CodecError, match="MaskedArray can only be pickled"):
        through([masked])


def test_codecs_for_other_threads_are_used_again_and_never_by_two_at_once() -> None:
    codec = ValueCodec()
    with codec.for_another_thread() as first, codec.for_another_thread() as second:
        assert len({id(codec), id(first), id(second)}) == 3
        assert second.loads(first.dumps((1, "a"))) == (1, "a")
    with codec.for_another_thread() as again:
        assert again in (first, second)


def test_a_codec_of_another_thread_refuses_pickles_like_its_own() -> None:
    with ValueCodec(allow_pickle=False).for_another_thread() as other, pytest.raises(CodecError):
        other.dumps(object())
