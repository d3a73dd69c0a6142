"""Values, columns and bad bytes that the tests of formats share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from penstock.formats import Decoder, Format
from penstock.runtime.record.elements import ArrowBatch, RowBatch


def rows_of(format_: Format, values: Sequence[bytes | None]) -> tuple[list[Any], list[int]]:
    """The rows of some values, and the indices of the bad ones."""
    decoder = format_.decoder("rows")
    found = decoder.decode(values)
    decoder.close()
    assert isinstance(found.batch, RowBatch)
    return list(found.batch.rows), [index for index, _ in found.bad]


def columns_of(format_: Format, values: Sequence[bytes | None]) -> tuple[list[Any], list[int]]:
    """The rows of the columns of some values, and the indices of the bad ones."""
    decoder = format_.decoder("arrow")
    found = decoder.decode(values)
    decoder.close()
    assert isinstance(found.batch, ArrowBatch)
    found.batch.batch.validate(full=True)
    return found.batch.batch.to_pylist(), [index for index, _ in found.bad]


def reason(decoder: Decoder, value: bytes) -> str:
    """The reason why a value is bad."""
    ((_, why),) = decoder.decode([value]).bad
    return why


def same(one: Any, other: Any) -> bool:
    """Equality of values and of their types; NaN is equal to itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
