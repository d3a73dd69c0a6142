"""Number of distinct values of a column: exact, or approximate in bounded memory.

**`ApproxCountDistinct`** keeps a Theta sketch of Apache DataSketches for each key: at most the `2**lg_k`
smallest hashes of its values. The sketch hashes the stable hash of a value (`key_hashes`). So a value counts
once, in rows and in columns of any encoding.

The state is the sketch in the format that the libraries of DataSketches for Java, C++ and Python share. It is
canonical: trimmed to `2**lg_k` hashes and sorted. So it depends on the set of values alone, not on their
order or on the order of merges. The result is the same for rows and columns, for any parallelism, and after
failures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.operators.aggregation.column_aggregate import (
    Accumulators,
    CountingAggregate,
    Grouping,
    Partial,
    PartialAggregate,
    RowAggregate,
    numbers,
)
from penstock.runtime.record.column_key import canonical_column
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import Slots


@dataclass(frozen=True)
class CountDistinct(CountingAggregate, RowAggregate):
    """The exact number of distinct values of a column; the state holds each pair of key and value once.

    No combiner runs before the exchange, so all records cross it.
    """

    column: str
    of_new_pairs = True

    def prepared(self, column: pa.Array) -> pa.Array:
        return canonical_column(column, self.column)

    def add(self, accumulators: Accumulators, slots: Slots, column: pa.Array) -> None:
        count = accumulators["count"]
        count.values[slots] = numbers(count, slots)
        count.valid[slots] = True
        np.add.at(count.values, slots, 1)


@dataclass(frozen=True)
class ApproxCountDistinct(PartialAggregate):
    """Approximate number of distinct values of a column; needs `pip install "penstock[sketches]"`.

    Up to `2**lg_k` distinct values the number is exact. With more values the error is less than
    `1 / sqrt(2**lg_k)` for about two in three keys: 1.6 % with the default. A key takes 8 bytes for each hash
    that is kept.

    Attributes:
        lg_k: Binary logarithm of the maximum number of hashes kept for a key, 5 to 26.

    Example:
        >>> visits.key_by("page").aggregate("visitors", about=ApproxCountDistinct("user"))  # doctest: +SKIP
    """

    column: str
    lg_k: int = 12

    def __post_init__(self) -> None:
        if isinstance(self.lg_k, bool) or not isinstance(self.lg_k, int) or not 5 <= self.lg_k <= 26:
            msg = f"ApproxCountDistinct({self.column!r}): lg_k must be from 5 to 26, not {self.lg_k!r}"
            raise ConfigurationError(msg)
        _library()

    def prepared(self, column: pa.Array) -> pa.Array:
        values = canonical_column(column, self.column)
        mask = values.is_null().to_numpy(zero_copy_only=False)
        return pa.array(key_hashes([values]).view(np.int64), mask=mask)

    def accumulator_types(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        return [Grouping(column, "distinct", pc.CountOptions("only_valid"))]

    def partial_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Partial:
        (lists,) = results
        library, sketches = _library(), []
        for hashes in lists.to_pylist():
            sketch = library.update_theta_sketch(self.lg_k)
            for value in hashes:
                sketch.update(value)
            sketch.trim()
            sketches.append(sketch.compact(True).serialize() if hashes else None)
        return {"sketch": pa.array(sketches, pa.binary())}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        (kept,) = accumulators.values()
        more, valid = kept.arrays_of(partial["sketch"])
        old, had = kept.values[slots], kept.valid[slots]
        for row in np.flatnonzero(valid).tolist():
            kept.values[slots[row]] = self._union(old[row], more[row]) if had[row] else more[row]
        kept.valid[slots[valid]] = True

    def result(self, accumulators: Accumulators, slots: Slots) -> pa.Array:
        (kept,) = accumulators.values()
        load = _library().compact_theta_sketch.deserialize
        numbers = [
            round(load(sketch).get_estimate()) if valid else 0
            for sketch, valid in zip(kept.values[slots], kept.valid[slots], strict=True)
        ]
        return pa.array(numbers, pa.int64())

    def _union(self, one: bytes, other: bytes) -> bytes:
        library = _library()
        union = library.theta_union(self.lg_k)
        for sketch in (one, other):
            union.update(library.compact_theta_sketch.deserialize(sketch))
        merged: bytes = union.get_result(True).serialize()
        return merged


def _library() -> Any:
    """Import Apache DataSketches, which takes a tenth of a second the first time."""
    try:
        import datasketches
    except ImportError as error:
        msg = 'ApproxCountDistinct needs Apache DataSketches: pip install "penstock[sketches]"'
        raise ConfigurationError(msg) from error
    return datasketches
