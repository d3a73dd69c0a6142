"""The Arrow batches of one channel that wait for their buffer to be closed.

A buffer costs its sender and its receiver a millisecond or more, whatever it holds. So small batches of one
schema are collected and leave as one batch. A batch that does not fit any more closes the buffer and begins
the next one. So only a batch that is larger than a buffer is cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.runtime.record.elements import ArrowBatch


class OpenArrowBuffer:
    """Collects batches up to a number of rows or of bytes.

    Args:
        max_rows: Most rows of a buffer.
        max_bytes: Intended most bytes of a buffer, before it is encoded.

    Example:
        >>> buffer = OpenArrowBuffer(max_rows=5, max_bytes=1 << 20)
        >>> one = ArrowBatch(pa.record_batch({"n": [1, 2]}))
        >>> [len(full) for _ in range(4) for full in buffer.add(one)], len(buffer), len(buffer.take()[0])
        ([4], 4, 4)
    """

    def __init__(self, max_rows: int = 256 * 1024, max_bytes: int = 4 * 1024 * 1024) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._parts: list[ArrowBatch] = []
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        """Add a batch; yields those that are to be encoded now, in order."""
        size = batch.batch.nbytes
        most = self.rows_of(batch)
        for part in batch.slices(most):
            weight = size * len(part) // len(batch)
            if self._rows and not self._fits(part, weight):
                yield from self.take()
            self._parts.append(part)
            self._rows += len(part)
            self._bytes += weight
            if self._rows >= most:
                yield from self.take()

    def rows_of(self, batch: ArrowBatch) -> int:
        """How many rows of a batch make a full buffer; each piece has the dictionaries of the whole."""
        columns = batch.batch.columns
        dictionaries = sum(c.dictionary.nbytes for c in columns if isinstance(c, pa.DictionaryArray))
        per_row = (batch.batch.nbytes - dictionaries) / len(batch)
        return max(1, min(self._max_rows, int(self._max_bytes / max(per_row, 1))))

    def take(self) -> list[ArrowBatch]:
        """Empty the buffer: one batch, or several of a type that can't be joined; none when it is empty."""
        parts = self._parts
        self._parts, self._rows, self._bytes = [], 0, 0
        return parts if len(parts) < 2 else _joined(parts)

    def _fits(self, part: ArrowBatch, weight: int) -> bool:
        first = self._parts[0]
        same = (part.timestamps is None) == (first.timestamps is None) and (
            part.batch.schema is first.batch.schema
            or part.batch.schema.equals(first.batch.schema, check_metadata=True)
        )
        return same and self._rows + len(part) <= self._max_rows and self._bytes + weight <= self._max_bytes


def _joined(parts: list[ArrowBatch]) -> list[ArrowBatch]:
    """Batches of one schema as one, copied."""
    stamps = None
    if parts[0].timestamps is not None:
        stamps = pa.concat_arrays([part.timestamps for part in parts])
    if not parts[0].batch.num_columns:
        return parts
    schema = parts[0].batch.schema
    try:
        columns = [
            pa.concat_arrays(pieces) for pieces in zip(*(part.batch.columns for part in parts), strict=True)
        ]
    except pa.ArrowNotImplementedError:
        return parts
    return [ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=schema), stamps)]
