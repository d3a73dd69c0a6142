"""A job whose state is larger than its process may be: it stores values, and compares them later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from penstock import KeyedProcessFunction, RuntimeContext, ValueState

#: Bytes of the value of a key.
SIZE = 4_000


class Remember(KeyedProcessFunction[int, int, str]):
    """Stores a value for a key that is new, and compares it with what it finds for one that is not."""

    value = ValueState(bytes, default=b"")

    def __init__(self, keys: int) -> None:
        self._keys = keys

    @staticmethod
    def key_among(keys: int) -> Callable[[int], int]:
        return partial(_remainder, keys)

    def process(self, value: int, ctx: RuntimeContext) -> Iterable[str]:
        filler = Random(value % self._keys).randbytes(SIZE)
        if value < self._keys:
            self.value.update(filler)
        else:
            yield "right" if self.value.value() == filler else "wrong"


def _remainder(keys: int, value: int) -> int:
    return value % keys
