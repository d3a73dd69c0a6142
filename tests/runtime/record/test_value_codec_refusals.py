"""Values that the value codec refuses: without end, too deep, and damaged data."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgpack
import numpy as np
import pytest

from penstock.runtime.errors import CodecError
from penstock.runtime.record.leaf_types import MAX_DEPTH
from penstock.runtime.record.value_codec import ValueCodec, ValueDecoder


def list_in_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def dict_in_itself() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def columns_in_themselves() -> Any:
    value: list[Any] = []
    value.extend([(value, value)] * 3)
    return value


@pytest.mark.parametrize("make", [list_in_itself, dict_in_itself, columns_in_themselves])
def test_a_value_that_contains_itself_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(CodecError, match="contains itself"):
        ValueCodec().dumps(make())


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = (value,)
    return value


def test_a_value_nested_as_deep_as_allowed_is_read_in_a_thread_with_a_small_stack() -> None:
    codec = ValueCodec(allow_pickle=False)
    value, seen = nested(MAX_DEPTH), []
    data = codec.dumps(value)
    before = threading.stack_size(2 << 20)
    try:
        thread = threading.Thread(target=lambda: seen.append(codec.loads(data)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert seen == [value]


def test_a_value_nested_deeper_than_allowed_is_refused() -> None:
    with pytest.raises(CodecError, match="deeper than 100 levels"):
        ValueCodec().dumps(nested(MAX_DEPTH + 1))


def test_data_nested_deeper_than_allowed_is_refused() -> None:
    data = b"\x01"
    for _ in range(5_000):
        data = msgpack.packb(msgpack.ExtType(5, b"\x91" + data))
    with pytest.raises(CodecError, match="deeper than 100 levels"):
        ValueCodec().loads(data)


def test_raw_bytes_are_never_read_as_objects() -> None:
    for payload in (["|O", [1], "C", b"\1" * 8], [[[["a"], "|O", []]], [1], "C", b"\1" * 8]):
        data = msgpack.packb(msgpack.ExtType(17, msgpack.packb(payload)))
        with pytest.raises(CodecError, match="Python objects"):
            ValueCodec().loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\x01\x02",
        msgpack.packb({"a": 1})[:-1] + b"\xc1",
        b"\x81\x90\x01",
        msgpack.packb(msgpack.ExtType(99, b"")),
        msgpack.packb(msgpack.ExtType(5, msgpack.packb("no list"))),
        msgpack.packb(msgpack.ExtType(6, msgpack.packb([[1, 2], [3]]))),
        msgpack.packb(msgpack.ExtType(8, msgpack.packb([["a", "a"], [1], [2]]))),
        msgpack.packb(msgpack.ExtType(8, msgpack.packb([["a", "b"], [1], [2, 3]]))),
        msgpack.packb(msgpack.ExtType(10, msgpack.packb([1, True]))),
        msgpack.packb(msgpack.ExtType(29, msgpack.packb([None, b"\xff" * 7 + b"\x7f"]))),
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_damaged_data_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        ValueCodec().loads(data)


@pytest.mark.parametrize(
    ("code", "payload", "why"),
    [
        (18, ["i8", 1 << 30], "a scalar is written as bytes, not as int"),
        (18, ["V0", b""], "take no bytes"),
        (19, ["S0", b""], "take no bytes"),
        (17, ["V0", [1 << 40], "C", b""], "take no bytes"),
        (17, [[[["a"], "i4", [0]]], [1 << 40], "C", b""], "take no bytes"),
        (28, ["1e3000000", None], "cannot be interpreted as an integer"),
        (28, ["1" * 100, 1], "cannot be interpreted as an integer"),
        (20, 1 << 40, "a bytearray is written as bytes"),
    ],
)
def test_a_few_bytes_make_no_large_value(code: int, payload: Any, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        ValueCodec(allow_pickle=False).loads(msgpack.packb(msgpack.ExtType(code, msgpack.packb(payload))))


def test_a_fraction_of_numpys_integers_needs_pickle() -> None:
    value = Fraction(np.int64(3), np.int64(4))  # type: ignore[call-overload]
    assert type(ValueCodec().loads(ValueCodec().dumps(value)).numerator) is np.int64
    with pytest.raises(CodecError, match="Fraction can only be pickled"):
        ValueCodec(allow_pickle=False).dumps(value)


def test_data_can_be_read_from_any_buffer() -> None:
    codec = ValueCodec()
    data = codec.dumps({"a": (1, [2.5])})
    assert codec.loads(bytearray(data)) == codec.loads(memoryview(b"x" + data)[1:]) == {"a": (1, [2.5])}


_LONG = [(number, b"x" * 1_000) for number in range(100)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_long_column_is_decoded_without_copying_it_first(kind: Callable[[bytes], Any]) -> None:
    codec = ValueCodec(allow_pickle=False)
    data = codec.dumps(_LONG)
    unpacked: list[Any] = []
    decoder = codec._decoder
    decoder._unpack = lambda part, depth: (  # type: ignore[method-assign]
        unpacked.append(part),
        ValueDecoder._unpack(decoder, part, depth),
    )[1]

    assert data[0] == 0xC9, "an extension with a size of four bytes"
    assert codec.loads(kind(data)) == _LONG
    assert type(unpacked[0]) is memoryview
    assert len(unpacked[0]) == len(data) - 6


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:4],
        lambda data: data[:4] + bytes([data[4] ^ 1]) + data[5:],
        lambda data: data[:5] + b"\x63" + data[6:],
        lambda data: data[:5] + b"\xff" + data[6:],
        lambda data: data[:6] + b"\xc1" + data[7:],
    ],
)
def test_a_damaged_long_column_is_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CodecError):
        ValueCodec().loads(damage(ValueCodec().dumps(_LONG)))
