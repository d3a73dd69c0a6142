"""Reads data files of a table batch by batch, with the columns that a schema of the table has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.runtime.io.connectors.iceberg.columns import arrow_columns

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata


def batches_of(
    metadata: TableMetadata, io: FileIO, task: FileScanTask, wanted: Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted, in Arrow's usual types."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = arrow_columns(wanted)
    scan = ArrowScan(metadata, io, wanted, AlwaysTrue())
    # The public method holds a whole file in memory, but it also applies deletes.
    batches = (
        scan.to_record_batches([task])
        if task.delete_files
        else scan._record_batches_from_scan_tasks_and_deletes([task], {})
    )
    for batch in batches:
        yield batch.cast(schema)
