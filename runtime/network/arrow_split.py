"""Splits an Arrow batch by key over channels, without a Python object for any row.

The keys' hashes give key groups, and a table gives the channel of each group. The rows of a channel keep
their order: records of one key must not pass each other.

For a few channels each one's rows are looked up and taken. For more, a stable sort of the channel numbers
brings the rows of each channel together. They are taken once and cut. The numbers are small: numpy has a
radix sort for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.state.key_groups import check_parallelism, subtask_of_key_group
from penstock.runtime.state.mix64 import HashArray
from penstock.runtime.state.stable_hash_arrays import key_hashes

#: Up to so many channels a look for each one's rows is faster than a sort.
_FEW: Final = 4


class ArrowSplitter:
    """Finds the channel of each row by the key group of its key.

    Args:
        key: Names the key's columns.
        max_parallelism: Number of key groups of the receiver.

    Example:
        >>> splitter = ArrowSplitter(ColumnKey(("k",)), channels=2, max_parallelism=128)
        >>> batch = ArrowBatch(pa.record_batch({"k": ["word", "line", "word"], "n": [1, 2, 3]}))
        >>> [(channel, part.batch["n"].to_pylist()) for channel, part in splitter.split(batch)]
        [(0, [2]), (1, [1, 3])]
    """

    def __init__(self, key: ColumnKey, channels: int, max_parallelism: int) -> None:
        check_parallelism(channels, max_parallelism)
        self._key = key
        self._channels = channels
        self._max_parallelism = max_parallelism
        owners = [subtask_of_key_group(group, channels, max_parallelism) for group in range(max_parallelism)]
        self._owners: NDArray[Any] = np.array(owners, np.uint8 if channels <= 256 else np.uint16)
        self._checked: pa.Schema | None = None

    def split(self, batch: ArrowBatch) -> Sequence[tuple[int, ArrowBatch]]:
        """Pairs of channel and the rows that go there, in the batch's order; no empty ones.

        Raises:
            KeyTypeError: A key column is not there, or its type has no stable hash; names it.
        """
        if not len(batch):
            return []
        if self._channels == 1:
            self._check(batch.batch)
            return [(0, batch)]
        targets = self._targets(key_hashes(self._key.columns(batch.batch)))
        counts = np.bincount(targets, minlength=self._channels)
        used = np.flatnonzero(counts)
        if len(used) == 1:
            return [(int(used[0]), batch)]
        if self._channels <= _FEW:
            return [(int(channel), _rows(batch, np.flatnonzero(targets == channel))) for channel in used]
        together = _rows(batch, np.argsort(targets, kind="stable"))
        ends = np.cumsum(counts)
        return [(int(c), together.slice(int(ends[c] - counts[c]), int(counts[c]))) for c in used]

    def _targets(self, hashes: HashArray) -> NDArray[Any]:
        count = self._max_parallelism
        groups: NDArray[Any]
        if count & (count - 1):
            groups = (hashes % np.uint64(count)).astype(np.uint16)
        else:  # the remainder is the low bits, and the last bytes are all that has to be read
            groups = hashes.astype(np.uint8 if count <= 256 else np.uint16)
            groups &= count - 1
        targets: NDArray[Any] = self._owners.take(groups)
        return targets

    def _check(self, batch: pa.RecordBatch) -> None:
        """Refuse keys that have no hash also where nothing needs to be hashed."""
        if batch.schema is not self._checked and batch.schema != self._checked:
            self._key.columns(batch.slice(0, 0))
        self._checked = batch.schema


def _rows(batch: ArrowBatch, places: NDArray[np.intp]) -> ArrowBatch:
    return batch.take(pa.array(places))
