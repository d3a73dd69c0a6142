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
    wide = numbers.astype(np.int64) if numbers.dtype.kind == "i" else numbers.astype(np.uint64)
    z: HashArray = wide.view(np.uint64) + np.uint64(_GAMMA)
    z ^= z >> np.uint64(30)
    z *= np.uint64(_FIRST)
    z ^= z >> np.uint64(27)
    z *= np.uint64(_SECOND)
    z ^= z >> np.uint64(31)
    return z
