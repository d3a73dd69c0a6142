"""`stable_hash` of many keys at once: sequences and Arrow columns.

Rows and Arrow batches of one stream agree on the subtask of a key. Hashing is vectorised for numbers, times,
and several columns together. Text, bytes and decimals are hashed once per distinct value.

A compound key is hashed from the hashes of its parts, and a time from its ticks. So the input of **xxh3** is
a few words of 64 bits. One call from Python costs half a microsecond, mostly overhead. Here the same
arithmetic runs over whole arrays, in chunks that stay in the processor's cache. A test compares the results
with `xxhash`. The algorithm is XXH3 of the xxHash specification, for inputs of 8, 16, and 24 to 128 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from penstock.runtime.state.stable_hash import (
    AWARE,
    BYTES,
    CHUNK,
    DATE,
    DELTA,
    MASK64,
    NAIVE,
    NAN_HASH,
    NONE_HASH,
    OTHER_NUMBER,
    STR,
    TIME,
    TUPLE,
    HashArray,
    mix64_array,
    stable_hash,
)

#: Maximum number of words of an input.
MOST_WORDS: Final = 16

_PRIME64_1: Final = 0x9E3779B185EBCA87
#: Part of the default secret for inputs of up to 128 bytes.
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
)

_LOW32: Final = np.uint64(0xFFFFFFFF)

_32: Final = np.uint64(32)


def xxh3_words(words: Sequence[NDArray[Any]], seed: int) -> HashArray:
    """Hash each row of 1 to 16 words, packed as little-endian 64-bit integers; `seed` has 32 bits."""
    if not 1 <= len(words) <= MOST_WORDS:
        msg = f"give 1 to {MOST_WORDS} words of 64 bits, not {len(words)}"
        raise ValueError(msg)
    columns = [column.view(np.uint64) for column in words]
    of_chunk = {1: _of_one, 2: _of_two}.get(len(words), _of_many)
    hashes: HashArray = np.empty(len(columns[0]), np.uint64)
    for start in range(0, len(hashes), CHUNK):
        hashes[start : start + CHUNK] = of_chunk([c[start : start + CHUNK] for c in columns], seed)
    return hashes


def _secret(at: int) -> int:
    return int.from_bytes(_SECRET[at : at + 8], "little")


def _of_one(words: Sequence[HashArray], seed: int) -> HashArray:
    (word,) = words
    swapped = int.from_bytes(seed.to_bytes(4, "little"), "big")
    flip = ((_secret(8) ^ _secret(16)) - (seed ^ (swapped << 32))) & MASK64
    # Swap the halves: the last four bytes of the input become the lower half.
    h = (word >> _32) | (word << _32)
    h ^= np.uint64(flip)
    h ^= _rotated(h, 49) ^ _rotated(h, 24)
    h *= np.uint64(0x9FB21C651E98DF25)
    h ^= (h >> np.uint64(35)) + np.uint64(8)
    h *= np.uint64(0x9FB21C651E98DF25)
    h ^= h >> np.uint64(28)
    return h


def _of_two(words: Sequence[HashArray], seed: int) -> HashArray:
    low = words[0] ^ np.uint64(((_secret(24) ^ _secret(32)) + seed) & MASK64)
    high = words[1] ^ np.uint64(((_secret(40) ^ _secret(48)) - seed) & MASK64)
    h = _folded_product(low, high)
    h += low.byteswap()
    h += high
    h += np.uint64(16)
    return _avalanched(h)


def _of_many(words: Sequence[HashArray], seed: int) -> HashArray:
    count = len(words)
    h = np.full(len(words[0]), (8 * count * _PRIME64_1) & MASK64, np.uint64)
    # Pairs of words from both ends, the outermost with the first part of the secret.
    for pair in range((count + 3) // 4):
        h += _mixed(words[2 * pair], words[2 * pair + 1], 32 * pair, seed)
        h += _mixed(words[count - 2 - 2 * pair], words[count - 1 - 2 * pair], 32 * pair + 16, seed)
    return _avalanched(h)


def _mixed(low: HashArray, high: HashArray, secret: int, seed: int) -> HashArray:
    return _folded_product(
        low ^ np.uint64((_secret(secret) + seed) & MASK64),
        high ^ np.uint64((_secret(secret + 8) - seed) & MASK64),
    )


def _folded_product(left: HashArray, right: HashArray) -> HashArray:
    """Return the lower half of the 128-bit product, combined with its upper half by XOR."""
    left_low, left_high = left & _LOW32, left >> _32
    right_low, right_high = right & _LOW32, right >> _32
    low_high = left_low * right_high
    carry = left_low * right_low
    carry >>= _32
    carry += left_high * right_low
    low_high += carry & _LOW32
    carry >>= _32
    upper = left_high * right_high
    upper += carry
    upper += low_high >> _32
    upper ^= left * right
    return upper


def _rotated(h: HashArray, bits: int) -> HashArray:
    return (h << np.uint64(bits)) | (h >> np.uint64(64 - bits))


def _avalanched(h: HashArray) -> HashArray:
    h ^= h >> np.uint64(37)
    h *= np.uint64(0x165667919E3779F9)
    h ^= h >> np.uint64(32)
    return h


_INTS: Final = frozenset([int])

_INT64: Final = np.iinfo(np.int64)

_TWO63: Final = 2.0**63

_TWO64: Final = 2.0**64

_DAY: Final = 86_400_000_000

_DAY_OF_EPOCH: Final = date(1970, 1, 1).toordinal()

_MODULUS: Final = np.uint64((1 << 61) - 1)

_HASH_OF_INFINITY: Final = hash(float("inf"))


def stable_hashes(keys: Sequence[Any]) -> HashArray:
    if keys and set(map(type, keys)) == _INTS and min(keys) >= _INT64.min and max(keys) <= _INT64.max:
        return mix64_array(np.array(keys, dtype=np.int64))
    return np.fromiter(map(stable_hash, keys), dtype=np.uint64, count=len(keys))


def key_hashes(columns: Sequence[pa.Array]) -> HashArray:
    """`stable_hash` of every row's key: the value of a single canonical column, or a tuple for several."""
    parts = [_hash_canonical(column) for column in columns]
    if len(parts) == 1:
        return parts[0]
    if len(parts) <= MOST_WORDS:
        return xxh3_words(parts, TUPLE)
    rows = np.column_stack(parts).tobytes()
    size = 8 * len(parts)
    inputs = (rows[start : start + size] for start in range(0, len(rows), size))
    return np.fromiter((xxh3_64_intdigest(data, TUPLE) for data in inputs), np.uint64, len(parts[0]))


def _hash_canonical(column: pa.Array) -> HashArray:
    kind = column.type
    if kinds.is_null(kind):
        return np.full(len(column), NONE_HASH, np.uint64)
    hashes = _hash_values(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = NONE_HASH
    return hashes


def _hash_values(column: pa.Array) -> HashArray:
    """Return the hashes of a column's values; undefined for nulls."""
    kind = column.type
    if kinds.is_integer(kind):
        return mix64_array(_values(column))
    if kinds.is_boolean(kind):
        return mix64_array(_values(column.cast(pa.uint8())))
    if kinds.is_floating(kind):
        return _hash_floats(_values(column).astype(np.float64, copy=False))
    if kinds.is_date32(kind):
        return xxh3_words([_values(column.view(pa.int32())) + np.int64(_DAY_OF_EPOCH)], DATE)
    if kinds.is_timestamp(kind):
        return xxh3_words([_values(column.view(pa.int64()))], NAIVE if kind.tz is None else AWARE)
    if kinds.is_time64(kind):
        return xxh3_words([_values(column.view(pa.int64()))], TIME)
    if kinds.is_duration(kind):
        micros = _values(column.view(pa.int64()))
        return xxh3_words([micros, np.floor_divide(micros, _DAY)], DELTA)
    return _hash_distinct(column)


def _values(column: pa.Array) -> NDArray[Any]:
    """Return a view of a column's numbers in memory; undefined for nulls."""
    kind = column.type.to_pandas_dtype()
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), kind)
    return np.frombuffer(data, kind)[column.offset : column.offset + len(column)]


def _hash_floats(values: NDArray[np.float64]) -> HashArray:
    """Hash whole numbers of 64 bits like integers, other numbers by Python's `hash` (`_python_hashes`)."""
    whole = np.floor(values) == values
    whole &= (values >= -_TWO63) & (values < _TWO64)
    below = np.where(whole & (values < _TWO63), values, 0.0).astype(np.int64)
    if whole.all() and not (values >= _TWO63).any():
        return mix64_array(below)
    large = whole & (values >= _TWO63)
    if large.any():
        below[large] = (values[large] - _TWO63).astype(np.int64) + _INT64.min
    hashes = mix64_array(below)
    others = ~whole
    hashes[others] = mix64_array(_python_hashes(values[others]) ^ np.int64(OTHER_NUMBER - (1 << 64)))
    hashes[values != values] = NAN_HASH
    return hashes


def _python_hashes(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """`hash` of floats: the remainder modulo 2**61 - 1, where multiplying by a power of two is a rotation."""
    finite = np.where(np.isfinite(values), values, 0.0)
    fraction, exponent = np.frexp(np.abs(finite))
    mantissa = np.ldexp(fraction, 53).astype(np.uint64)
    turn = ((exponent.astype(np.int64) - 53) % 61).astype(np.uint64)
    rest = ((mantissa << turn) & _MODULUS) | (mantissa >> (np.uint64(61) - turn))
    hashes = rest.astype(np.int64)
    hashes[np.isinf(values)] = _HASH_OF_INFINITY
    np.negative(hashes, out=hashes, where=np.signbit(values))
    hashes[hashes == -1] = -2  # Python has no hash -1
    return hashes


def _hash_distinct(column: pa.Array) -> HashArray:
    """Hash text, bytes and decimals in Python, once per distinct value."""
    encoded = column.dictionary_encode()
    distinct = _hash_each(encoded.dictionary)
    indices = encoded.indices
    if indices.null_count:
        distinct = np.append(distinct, np.uint64(NONE_HASH))
        indices = indices.fill_null(len(distinct) - 1)
    hashes: HashArray = distinct[indices.to_numpy(zero_copy_only=False)]
    return hashes


def _hash_each(values: pa.Array) -> HashArray:
    kind = values.type
    if kinds.is_decimal(kind):
        return stable_hashes(values.to_pylist())
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
    seed = STR if is_text else BYTES
    if is_text:
        values = values.cast(pa.large_binary() if kinds.is_large_string(kind) else pa.binary())
    return np.fromiter((xxh3_64_intdigest(data, seed) for data in values.to_pylist()), np.uint64, len(values))
