"""The 64-bit mixer for whole numbers, once for one number and once for a numpy array.

It is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators",
2014). Both give the same numbers; a test holds them together.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: An array of unsigned 64-bit hashes.
HashArray: TypeAlias = NDArray[np.uint64]

MASK64: Final = (1 << 64) - 1
_GAMMA: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_GAMMA64, _FIRST64, _SECOND64 = np.uint64(_GAMMA), np.uint64(_FIRST), np.uint64(_SECOND)
_SHIFT30, _SHIFT27, _SHIFT31 = np.uint64(30), np.uint64(27), np.uint64(31)

#: Elements that are worked on at a time: what is in between stays in the processor's cache.
CHUNK: Final = 1 << 13


def mix64(number: int) -> int:
    """Scatter the low 64 bits of a whole number over 64 bits, one to one.

    Example:
        >>> hex(mix64(0))
        '0xe220a8397b1dcdaf'
    """
    z = (number + _GAMMA) & MASK64
    z = ((z ^ (z >> 30)) * _FIRST) & MASK64
    z = ((z ^ (z >> 27)) * _SECOND) & MASK64
    return z ^ (z >> 31)


def mix64_array(numbers: NDArray[Any]) -> HashArray:
    """`mix64` of every element of an array of integers or booleans.

    Example:
        >>> mix64_array(np.array([0, 1])).tolist() == [mix64(0), mix64(1)]
        True
    """
    hashes: HashArray = np.empty(len(numbers), np.uint64)
    rest = np.empty(min(len(numbers), CHUNK), np.uint64)
    for start in range(0, len(numbers), CHUNK):
        z = hashes[start : start + CHUNK]
        # Sign extension to 64 bits, as `mix64` does it with a mask.
        np.copyto(z.view(np.int64), numbers[start : start + CHUNK], casting="unsafe")
        shifted = rest[: len(z)]
        z += _GAMMA64
        z ^= np.right_shift(z, _SHIFT30, out=shifted)
        z *= _FIRST64
        z ^= np.right_shift(z, _SHIFT27, out=shifted)
        z *= _SECOND64
        z ^= np.right_shift(z, _SHIFT31, out=shifted)
    return hashes
