"""`ReadAhead`: decodes the next Arrow batch in a thread while the one before it is worked on.

Decoding releases the interpreter. So a source whose chain does not wait for anything else reads nearly twice
as fast where a processor is free. One batch is decoded ahead, never more, so memory is bounded. The batches
and their order are the same as without it, and an error comes where its batch would have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa


class ReadAhead(Iterator[pa.RecordBatch]):
    """Batches of an iterator that a thread of its own calls; nobody else may call it.

    Args:
        batches: They come from a decoder that releases the interpreter while it works.

    Example:
        >>> ahead = ReadAhead(iter([pa.record_batch({"n": [1]}), pa.record_batch({"n": [2]})]))
        >>> [batch["n"].to_pylist() for batch in ahead]
        [[1], [2]]
        >>> ahead.close()
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._coming: Future[pa.RecordBatch | None] = self._thread.submit(next, batches, None)

    def __next__(self) -> pa.RecordBatch:
        """The next batch; what the iterator has raised is raised here."""
        batch = self._coming.result()
        if batch is None:
            raise StopIteration
        self._coming = self._thread.submit(next, self._batches, None)
        return batch

    def close(self) -> None:
        """Wait for the batch that is being decoded, and end the thread."""
        self._thread.shutdown(cancel_futures=True)
