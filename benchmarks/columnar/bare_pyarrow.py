"""A keyed sum in one thread of pyarrow: the cost of the work without a runtime."""

from __future__ import annotations

from itertools import cycle

import pyarrow as pa
import pyarrow.parquet as pq
from columnar.files import Files

#: Rows in a batch, as in Penstock's source.
_BATCH = 262_144


def keyed_sum(files: Files, rows: int) -> dict[int, int]:
    """Sum whole batches by key until they have `rows` rows; after the last file, the first one follows."""
    totals: dict[int, int] = {}
    left = rows
    for path in cycle(files.paths):
        for batch in pq.ParquetFile(path).iter_batches(_BATCH, use_threads=False):
            grouped = pa.table(batch).group_by("k", use_threads=False).aggregate([("v", "sum")])
            for key, value in zip(
                grouped.column("k").to_pylist(), grouped.column("v_sum").to_pylist(), strict=True
            ):
                totals[key] = totals.get(key, 0) + value
            left -= batch.num_rows
            if left <= 0:
                return totals
    return totals
