"""`Sum`: exact for whole numbers and decimals, and an error where the result does not fit.

pyarrow's sums wrap around silently: int64 at 64 bits, `decimal128` near 38 digits. So each batch is checked
first. If its largest value times its length might not fit, it is summed in wider numbers. Whole numbers are
summed in two halves of 32 bits, decimals as `decimal256`. Few batches need this.

A sum must fit when it is emitted. Until then a sum of whole numbers or decimals may have more digits, in a
separate column. So the result does not depend on how a window's records are split into batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.column_aggregate import (
    Accumulators,
    Grouping,
    Partial,
    PartialAggregate,
    SumOverflowError,
    refuse_others,
    values_in,
    widened,
)
from penstock.runtime.state.typed_columns import GrowingColumn, Slots

#: Adds decimals exactly; Arrow holds at most 76 digits.
_EXACT: Final = Context(prec=76)
#: Type of intermediate sums of whole numbers that do not fit 64 bits.
_WIDE: Final = pa.decimal256(76, 0)
#: Digits of intermediate sums of decimals that do not fit `_DIGITS`; must differ from the digits of `_WIDE`.
_WIDE_DIGITS: Final = 75
_INT64: Final = np.iinfo(np.int64)
_SOME: Final = pc.ScalarAggregateOptions(min_count=1)

#: Digits of a decimal sum.
_DIGITS: Final = 38


@dataclass(frozen=True)
class Sum(PartialAggregate):
    """The sum of a column: int64 for whole numbers and booleans, double for floats, exact for decimals.

    A sum that does not fit fails the job, and the error names the key. Sums of whole numbers have 64 bits,
    and sums of decimals have 38 digits.
    """

    column: str
    keeps_types = True

    def prepared(self, column: pa.Array) -> pa.Array:
        return widened(column, self)

    def accumulator_types(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"sum": pa.decimal128(_DIGITS, kind.scale) if kinds.is_decimal128(kind) else kind}

    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        """The sum, in wider numbers if it might not fit."""
        if kinds.is_decimal(column.type):
            if _may_have(column, 10 ** (_DIGITS - column.type.scale)):
                wide = column.cast(pa.decimal256(76, column.type.scale))
                return [Grouping(wide, "sum", _SOME)]
        elif kinds.is_integer(column.type) and _may_have(column, _INT64.max + 1):
            low = pc.bit_wise_and(column, 0xFFFFFFFF)
            return [
                Grouping(pc.shift_right(column, 32), "sum", _SOME),
                Grouping(low, "sum", _SOME),
            ]
        return [Grouping(column, "sum", _SOME)]

    def partial_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Partial:
        if len(results) == 1:
            return {"sum": self._narrowed(column.type, results[0])}
        sums = [
            None if high is None else (high << 32) + low
            for high, low in zip(*(half.to_pylist() for half in results), strict=True)
        ]
        fit = all(total is None or _INT64.min <= total <= _INT64.max for total in sums)
        return {"sum": pa.array(sums, pa.int64()) if fit else _wide(sums)}

    def partial_of_each(self, column: pa.Array) -> Partial | None:
        """Return the values; decimals are Python objects in state, so they are grouped first."""
        return None if kinds.is_decimal(column.type) else {"sum": column}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        total = accumulators["sum"]
        if kinds.is_null(partial["sum"].type):
            return
        total.adopt(partial["sum"].type)
        more, valid = total.arrays_of(partial["sum"])
        had = total.valid.take(slots)
        add = self._decimals if total.is_object else self._numbers
        new = add(total, slots, had, more, valid)
        total.values[slots], total.valid[slots] = new, had | valid

    def wider(self, partial: Partial) -> Partial | None:
        part = partial["sum"]
        if kinds.is_decimal128(part.type):
            return {"sum": part.cast(_wide_decimal(part.type))}
        return {"sum": _wide(part.to_pylist())} if kinds.is_integer(part.type) else None

    def merge_beside(
        self, own: Accumulators, others: Sequence[GrowingColumn], slots: Slots, partial: Partial
    ) -> None:
        """Add to the sum of this type; decimals and floats have no exact sum in common."""
        (part,) = partial.values()
        wrong = kinds.is_floating if kinds.is_decimal(part.type) else kinds.is_decimal
        strange = [other for other in others if wrong(other.kind) and not _is_whole(other.kind)]
        strange = [] if _is_whole(part.type) else strange
        refuse_others(self, "which have no exact sum", part, strange, slots)
        self.merge(own, slots, partial)

    def result_of_types(
        self, columns: Sequence[GrowingColumn], slots: Slots
    ) -> list[tuple[Any, pa.DataType]]:
        """The sum of all types: int64 for whole numbers alone, a double with floats, else a decimal."""
        found: list[tuple[Any, pa.DataType]] = [(None, columns[0].kind)] * len(slots)
        # Whole numbers first, so that others are added to them.
        for column in sorted(columns, key=lambda column: not _is_whole(column.kind)):
            for row, value in values_in(column, slots):
                old, kind = found[row]
                if _is_whole(column.kind):
                    found[row] = (int(value) + (old or 0), pa.int64())
                elif old is None:
                    found[row] = (value, column.kind)
                else:
                    found[row] = self._added(old, kind, value, column.kind, row)
        for row, (total, kind) in enumerate(found):
            if kinds.is_integer(kind) and total is not None and not _INT64.min <= total <= _INT64.max:
                raise _too_large(self.column, total, row)
            if kinds.is_decimal(kind):
                target = pa.int64() if kind.equals(_WIDE) else pa.decimal128(_DIGITS, kind.scale)
                if not kinds.is_integer(target):
                    _check_digits(self.column, np.array([total], np.object_), target, row)
                found[row] = (total, target)
        return found

    def _added(
        self, old: Any, kind: pa.DataType, value: Any, other: pa.DataType, row: int
    ) -> tuple[Any, pa.DataType]:
        if isinstance(value, float):
            if float(old) != old:
                msg = (
                    f"Sum({self.column!r}) adds up to {old} for whole numbers and to {value} for floats; no "
                    f"double equals {old}. Convert the values to one type with map before key_by"
                )
                raise SumOverflowError(msg, row)
            return float(old) + value, pa.float64()
        scale = max(other.scale, kind.scale if kinds.is_decimal(kind) else 0)
        return _EXACT.add(Decimal(old), value), pa.decimal128(_DIGITS, scale)

    def _decimals(
        self,
        total: GrowingColumn,
        slots: Slots,
        had: NDArray[np.bool_],
        more: NDArray[Any],
        valid: NDArray[np.bool_],
    ) -> NDArray[Any]:
        pairs = zip(total.values[slots], more, had, valid, strict=True)
        new = np.array(
            [b if not old else a if not some else _EXACT.add(a, b) for a, b, old, some in pairs], np.object_
        )
        _check_digits(self.column, new, total.kind)
        return new

    def _numbers(
        self,
        total: GrowingColumn,
        slots: Slots,
        had: NDArray[np.bool_],
        more: NDArray[Any],
        valid: NDArray[np.bool_],
    ) -> NDArray[Any]:
        zero = total.values.dtype.type(0)
        old = total.values.take(slots)
        if not had.all():
            old[~had] = zero
        if not valid.all():
            more = np.where(valid, more, zero)
        with np.errstate(over="ignore", invalid="ignore"):
            new: NDArray[Any] = old + more
        if new.dtype.kind == "i":
            wrong = np.flatnonzero(((old ^ new) & (more ^ new)) < 0)
            if wrong.size:
                at = int(wrong[0])
                raise _too_large(self.column, int(old[at]) + int(more[at]), at)
        return new

    def _narrowed(self, kind: pa.DataType, sums: pa.Array) -> pa.Array:
        if not kinds.is_decimal256(sums.type):
            return sums
        limit = Decimal(10) ** (_DIGITS - kind.scale)
        fit = all(total is None or total.copy_abs() < limit for total in sums.to_pylist())
        return sums.cast(pa.decimal128(_DIGITS, kind.scale) if fit else _wide_decimal(kind))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kind.equals(_WIDE))


def _wide_decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal256(_WIDE_DIGITS, kind.scale)


def _wide(sums: Sequence[int | None]) -> pa.Array:
    return pa.array([None if total is None else Decimal(total) for total in sums], _WIDE)


def _may_have(column: pa.Array, limit: int) -> bool:
    extremes = pc.min_max(column).as_py()
    largest = max(abs(Fraction(extremes[end] or 0)) for end in ("min", "max"))
    return largest * len(column) >= limit


def _too_large(column: str, total: Any, position: int) -> SumOverflowError:
    msg = (
        f"Sum({column!r}) is {total}, which does not fit 64 bits; cast the column to double or to a decimal, "
        "or sum over windows"
    )
    return SumOverflowError(msg, position)


def _check_digits(column: str, sums: NDArray[np.object_], kind: pa.DataType, first: int = 0) -> None:
    limit = Decimal(10) ** (kind.precision - kind.scale)
    for position, total in enumerate(sums, first):
        if total is not None and total.copy_abs() >= limit:
            msg = (
                f"Sum({column!r}) is {total}, which has more than the {_DIGITS} digits of {kind}; cast the "
                "column to double or to a decimal of a smaller scale, or sum over windows"
            )
            raise SumOverflowError(msg, position)
