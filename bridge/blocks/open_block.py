"""Gathers Arrow batches into blocks of a useful size.

Each block becomes a partition of Spark, which copies it into one Java array of at most two gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from penstock.bridge.arrow.batch_pieces import cut_strictly, message_size

#: A block has this many bytes, or one row.
BLOCK_BYTES: Final = 16 * 1024 * 1024
#: Bytes after the rows of a block: the end of its last message, and of the stream.
_END_BYTES: Final = 64


class GatheredBlocks:
    """Gathers batches into blocks.

    Args:
        size: Bytes of a block. A larger row has a block of its own.

    Example:
        >>> blocks = GatheredBlocks(size=2_000)
        >>> full = list(blocks.add(pa.record_batch({"a": ["x" * 700] * 5})))
        >>> [block.rows for block in full], blocks.rest().rows
        ([2, 2], 1)
    """

    def __init__(self, size: int = BLOCK_BYTES) -> None:
        self._size = size - _END_BYTES
        self._open = OpenBlock()

    def add(self, batch: pa.RecordBatch) -> Iterator[OpenBlock]:
        """Add a batch; gives the blocks that are full."""
        # Quarters leave little of a block empty.
        for piece in cut_strictly(batch, self._size // 4):
            if self._open.rows and self._open.size + message_size(piece) > self._size:
                yield self._begin()
            self._open.add(piece)

    def rest(self) -> OpenBlock | None:
        """The last block, which is not full; the next row begins another one."""
        return self._begin() if self._open.rows else None

    def _begin(self) -> OpenBlock:
        full, self._open = self._open, OpenBlock()
        return full


class OpenBlock:
    """An Arrow IPC stream that is being written.

    Example:
        >>> block = OpenBlock()
        >>> block.add(pa.record_batch({"a": [1, 2]}))
        >>> block.rows, pa.ipc.open_stream(block.close()).read_all()["a"].to_pylist()
        (2, [1, 2])
    """

    def __init__(self) -> None:
        #: Schema of its batches; empty before the first one.
        self.schema: pa.Schema = pa.schema([])
        self.rows = 0
        self._sink = pa.BufferOutputStream()
        self._stream: Any = None

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._sink.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        if self._stream is None:
            self.schema = batch.schema
            self._stream = pa.ipc.new_stream(self._sink, batch.schema)
        self._stream.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> bytes:
        """End the stream and return its bytes."""
        self._stream.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data
