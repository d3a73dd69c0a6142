"""`stable_hash` of many keys at once: sequences, numpy arrays and Arrow columns.

Every function gives exactly what `stable_hash` gives for each value. So rows and Arrow batches of one stream
agree on where a key lives. Whole numbers are vectorised; of everything else in an Arrow column each distinct
value is hashed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.state.mix64 import HashArray, mix64_array
from penstock.runtime.state.stable_hash import stable_hash

_INTS: Final = frozenset([int])
_INT64: Final = np.iinfo(np.int64)


def stable_hashes(keys: Sequence[Any]) -> HashArray:
    """`stable_hash` of every key, as an array.

    Raises:
        KeyTypeError: One of them can't be a key.

    Example:
        >>> stable_hashes([7, "a"]).tolist() == [stable_hash(7), stable_hash("a")]
        True
    """
    if keys and set(map(type, keys)) == _INTS and min(keys) >= _INT64.min and max(keys) <= _INT64.max:
        return mix64_array(np.array(keys, dtype=np.int64))
    return np.fromiter(map(stable_hash, keys), dtype=np.uint64, count=len(keys))


def stable_hash_array(values: NDArray[Any]) -> HashArray:
    """`stable_hash` of every element of a one-dimensional array.

    Raises:
        KeyTypeError: An element can't be a key, or the array has several dimensions or holds numpy times.

    Example:
        >>> stable_hash_array(np.array([1, 2], dtype=np.int16)).tolist() == [stable_hash(1), stable_hash(2)]
        True
    """
    if values.ndim != 1:
        msg = f"an array of {values.ndim} dimensions is no column of keys; pass one dimension"
        raise KeyTypeError(msg)
    if values.dtype.kind in "iub":
        return mix64_array(values)
    if values.dtype.kind in "mM":
        msg = f"numpy's {values.dtype} can't be a key; convert it to integers or to Python's datetime"
        raise KeyTypeError(msg)
    return stable_hashes(values.tolist())


def stable_hash_column(column: pa.Array | pa.ChunkedArray) -> HashArray:
    """`stable_hash` of every value of an Arrow column; nulls hash as `None`.

    Raises:
        KeyTypeError: A value can't be a key.

    Example:
        >>> stable_hash_column(pa.array(["a", None])).tolist() == [stable_hash("a"), stable_hash(None)]
        True
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_integer(column.type):
        return _hash_integers(column)
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return stable_hashes(column.to_pylist())
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    distinct = stable_hashes(encoded.dictionary.to_pylist())
    if encoded.indices.null_count == 0:
        hashes: HashArray = distinct[encoded.indices.to_numpy(zero_copy_only=False)]
        return hashes
    with_null: HashArray = np.append(distinct, np.uint64(stable_hash(None)))
    hashes = with_null[encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)]
    return hashes


def _hash_integers(column: pa.Array) -> HashArray:
    if column.null_count == 0:
        return mix64_array(column.to_numpy(zero_copy_only=False))
    hashes = mix64_array(column.fill_null(0).to_numpy(zero_copy_only=False))
    hashes[column.is_null().to_numpy(zero_copy_only=False)] = stable_hash(None)
    return hashes


def key_hashes(columns: Sequence[pa.Array]) -> HashArray:
    if len(columns) == 1:
        return stable_hash_column(columns[0])
    return stable_hashes(list(zip(*(c.to_pylist() for c in columns))))
