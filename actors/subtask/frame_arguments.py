"""Frames as arguments of actor calls.

Ray copies an argument of up to 100 kB into the call. A larger one goes through the object store. That takes
messages to the raylet at either end, and more processor time than the rest of the call. So a frame that is
larger is cut into several arguments. One of many megabytes stays whole: the object store shares its memory
with receivers on the same machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, TypeAlias, cast

#: Most bytes of an argument that are surely copied into the call, with what Ray adds.
_ARGUMENT_BYTES: Final = 96_000
#: Most bytes of a frame that is cut.
_CUT_BYTES: Final = 1_000_000


#: The first argument of a frame: its elements, or their sizes when their bytes follow in pieces.
FirstArgument: TypeAlias = list[bytes] | list[int]


def arguments_of(elements: list[bytes]) -> list[FirstArgument | bytes]:
    """The arguments for a frame: its elements; or their sizes, then their bytes in pieces.

    Example:
        >>> arguments_of([b"one", b"two"])
        [[b'one', b'two']]
        >>> [len(argument) for argument in arguments_of([b"x" * 100_000, b"y"])]
        [2, 96000, 4001]
    """
    size = sum(map(len, elements))
    if not _ARGUMENT_BYTES < size <= _CUT_BYTES:
        return [elements]
    joined = b"".join(elements)
    pieces = (joined[start : start + _ARGUMENT_BYTES] for start in range(0, size, _ARGUMENT_BYTES))
    return [[len(element) for element in elements], *pieces]


def elements_of(first: FirstArgument, pieces: Sequence[bytes]) -> list[bytes]:
    """The elements of a frame again.

    Example:
        >>> sizes, *pieces = arguments_of([b"x" * 100_000, b"y"])
        >>> [len(element) for element in elements_of(sizes, pieces)]
        [100000, 1]
    """
    if not pieces:
        return cast("list[bytes]", first)
    joined = b"".join(pieces)
    ends = list(accumulate(cast("list[int]", first)))
    return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]
