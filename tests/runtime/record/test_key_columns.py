"""The canonical form of key columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.record.column_key import canonical_column

QUIET, NEGATIVE, SIGNALLING = 0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])), pa.string()),
        (pc.run_end_encode(pa.array([1, 1, None])), pa.int64()),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.array([b"a", None], pa.binary_view()), pa.binary()),
        (pa.chunked_array([[1], [None]]), pa.int64()),
        (pa.array([1, 2], pa.timestamp("s", "Europe/Berlin")), pa.timestamp("us", "Europe/Berlin")),
        (pa.array([1000, None], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([5], pa.duration("ms")), pa.duration("us")),
        (pa.array([5], pa.time32("s")), pa.time64("us")),
        (pa.array([86_400_000], pa.date64()), pa.date32()),
        (pa.array([True, None]).cast(pa.bool8()), pa.bool_()),
    ],
    ids=lambda given: str(getattr(given, "type", given)),
)
def test_other_encodings_of_the_same_values_become_the_plain_one(column: Any, kind: pa.DataType) -> None:
    canonical = canonical_column(column, "k")
    assert canonical.type == kind
    assert canonical.to_pylist() == [None if v is None else v for v in column.to_pylist()]


@pytest.mark.parametrize(
    "column", [pa.array([1, None]), pa.array(["a"]), pa.array([1.5, 0.0, -2.0])], ids=str
)
def test_a_column_that_is_canonical_is_not_copied(column: pa.Array) -> None:
    assert canonical_column(column, "k") is column


@pytest.mark.parametrize("nulls", [False, True], ids=["no nulls", "nulls"])
def test_nan_has_one_bit_pattern_and_zero_no_sign(nulls: bool) -> None:
    bits = np.array([QUIET, NEGATIVE, SIGNALLING, 1 << 63, 0], dtype=np.uint64)
    mask = np.array([False, False, False, False, nulls])
    column = pa.array(bits.view(np.float64), mask=mask if nulls else None, from_pandas=False)
    canonical = canonical_column(column, "k")
    assert canonical.null_count == nulls
    got = np.frombuffer(canonical.buffers()[1], np.uint64)[:4]
    assert set(got[:3].tolist()) == {QUIET}
    assert got[3] == 0


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([[1]]), r"list<item: int64> can't be a key: it has no stable hash"),
        (pa.array([{"a": 1}]), r"struct<a: int64> can't be a key"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), r"map<string, int64> can't be a key"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), r"no fixed length"),
        (pa.array([b"0123456789abcdef"], pa.uuid()), r"arrow.uuid> can't be a key: cast it to text"),
        (pa.array([1], pa.timestamp("ns")), r"whole microseconds"),
        (pa.array([1 << 62], pa.timestamp("s")), r"whole microseconds"),
    ],
    ids=["list", "struct", "map", "interval", "uuid", "nanoseconds", "too far"],
)
def test_a_type_without_a_stable_hash_is_refused_with_the_column_and_its_type(column: Any, why: str) -> None:
    with pytest.raises(KeyTypeError, match=rf"column 'k' of type .*{why}"):
        canonical_column(column, "k")
