"""Joins small files of a table: a snapshot that replaces them, and changes no rows.

It requires the head of the branch that it has read. So if another writer commits meanwhile, the catalog
refuses the snapshot, and the next compaction repeats the work. The refused snapshot's files stay in the
storage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.runtime.io.connectors.iceberg.catalogs import TableClient
from penstock.runtime.io.connectors.iceberg.scanning import batches_of
from penstock.runtime.io.connectors.iceberg.snapshots import replace_files
from penstock.runtime.io.connectors.iceberg.writer import IcebergWriter
from penstock.runtime.record.elements import ArrowBatch

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table


def compact(
    client: TableClient,
    table: Table,
    branch: str,
    head: int,
    below: int,
    writer: IcebergWriter,
    properties: Mapping[str, str],
) -> None:
    """Join the files of each partition that are smaller than `below` bytes.

    Raises:
        ConnectorError: The catalog has refused the snapshot, or a call has failed.
    """
    from pyiceberg.expressions import AlwaysTrue

    small = client.call("list small files", lambda: _small_files(table, head, below))
    if not small:
        return
    for task in small:
        batches = batches_of(table.metadata, table.io, task, table.schema())
        for batch in client.each("read a small file", batches):
            client.call("write a joined file", lambda batch=batch: writer.write(ArrowBatch(batch)))  # type: ignore[misc]
    files = client.call("end the joined files", writer.prepare_commit)
    replaced = [task.file for task in small]
    client.call(
        "commit a compaction",
        lambda: replace_files(table, branch, replaced, files, AlwaysTrue(), properties, changes_rows=False),
    )


def _small_files(table: Table, head: int, below: int) -> list[FileScanTask]:
    """Small files of partitions that have several of them."""
    groups: dict[tuple[int, Any], list[FileScanTask]] = defaultdict(list)
    for task in table.scan(snapshot_id=head).plan_files():
        if task.file.file_size_in_bytes < below:
            groups[task.file.spec_id, str(task.file.partition)].append(task)
    return [task for group in groups.values() if len(group) > 1 for task in group]
