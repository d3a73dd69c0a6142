"""xxh3 (64 bits, with a seed) of many short inputs at once: columns of 64-bit words.

A compound key hashes the hashes of its parts, and a time hashes its ticks: an input is a few words of 64
bits. Called one by one from Python each costs half a microsecond, most of it for the call. Here the same
arithmetic runs over whole arrays, in chunks that stay in the processor's cache. The results are those of
`xxhash`; a test holds them together.

The algorithm is XXH3 of the xxHash specification, for inputs of 8, 16, and 24 to 128 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.state.mix64 import CHUNK, MASK64, HashArray

#: Most words of an input.
MOST_WORDS: Final = 16

_PRIME64_1: Final = 0x9E3779B185EBCA87
#: The part of the default secret that inputs of up to 128 bytes use.
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
)
_LOW32: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)


def xxh3_words(words: Sequence[NDArray[Any]], seed: int) -> HashArray:
    """The hash of each row of words, as if they were packed as little-endian 64-bit integers.

    Args:
        words: The columns, 1 to 16 arrays of one length, of 64-bit integers.
        seed: Of the hash, less than 2**32.

    Raises:
        ValueError: There are no words, or too many.

    Example:
        >>> import struct
        >>> from xxhash import xxh3_64_intdigest
        >>> hashes = xxh3_words([np.array([1, 2]), np.array([3, 4])], seed=7)
        >>> hashes.tolist() == [xxh3_64_intdigest(struct.pack("<QQ", *row), 7) for row in [(1, 3), (2, 4)]]
        True
    """
    if not 1 <= len(words) <= MOST_WORDS:
        msg = f"{len(words)} words are not hashed at once; it takes 1 to {MOST_WORDS}"
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
    # The upper half is the last four bytes: it goes to the lower half.
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
    """The lower half of the 128-bit product, combined with its upper half."""
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
