"""Cuts large Arrow batches into pieces; rows are never cut."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def cut(batch: pa.RecordBatch, size: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of about `size` bytes, by its average row, and at most `rows` rows.

    Example:
        >>> [piece.num_rows for piece in cut(pa.record_batch({"a": ["x" * 3_000_000] * 3}), 4_000_000, 9)]
        [1, 1, 1]
    """
    if not batch.num_rows:
        return
    step = max(1, min(rows, int(size / row_size(batch))))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def cut_strictly(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of at most `size` bytes each as an Arrow message, or of one row.

    Rows may differ much in size, so each piece is measured, and halved while it is too large.

    Example:
        >>> batch = pa.record_batch({"a": ["x"] * 20 + ["z" * 5_000]})
        >>> [piece.num_rows for piece in cut_strictly(batch, 2_000)]
        [8, 8, 2, 1, 1, 1]
    """
    for piece in cut(batch, size, batch.num_rows):
        yield from _halved(piece, size)


def row_size(batch: pa.RecordBatch) -> float:
    """Average bytes of a row of a whole batch; at least one.

    Uses `get_total_buffer_size`, because `nbytes` crashes on the empty maps that Spark writes (Arrow 26).

    Example:
        >>> row_size(pa.record_batch({"a": [1, 2]}))
        8.0
    """
    size, rows = int(batch.get_total_buffer_size()), int(batch.num_rows)
    return max(1.0, size / max(1, rows))


def message_size(batch: pa.RecordBatch) -> int:
    """Bytes of a batch, or of a slice of one, as an Arrow message.

    Example:
        >>> message_size(pa.record_batch({"a": [1] * 1_000}).slice(0, 1)) < 1_000
        True
    """
    return int(pa.ipc.get_record_batch_size(batch))


def _halved(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 1 or message_size(batch) <= size:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half), size)
    yield from _halved(batch.slice(half), size)
