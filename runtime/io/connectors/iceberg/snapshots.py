"""Makes snapshots of a table: one that adds files, and one that replaces some, each in one commit.

A commit requires that the head of the branch is the snapshot that the given table has. The library would
repeat a refused commit by itself, on the new head. It does not do so here: only a committer may do that,
after a look at the new head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.runtime.io.connectors.iceberg.data_files import StagedDataFile, keeping_manifests

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


def append_files(
    table: Table, branch: str, files: Sequence[StagedDataFile], properties: Mapping[str, str]
) -> int:
    """Add files of one partition spec, and return the id of the snapshot; it is empty without files."""
    merges = table.properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
    spec = files[0].spec if files else table.spec().spec_id
    with _as_of(table, spec).transaction() as transaction:
        update = transaction.update_snapshot(dict(properties), branch=branch)
        with update.merge_append() if merges else update.fast_append() as snapshot:
            for file in files:
                snapshot.append_data_file(file.as_data_file())
            return snapshot.snapshot_id


def replace_files(
    table: Table,
    branch: str,
    replaced: Sequence[DataFile],
    files: Sequence[StagedDataFile],
    where: BooleanExpression,
    properties: Mapping[str, str],
    *,
    changes_rows: bool,
) -> int:
    """Replace files, and return the id of the snapshot.

    Args:
        files: The new files, with the table's newest partition spec.
        where: A filter that all replaced files pass. Manifests without a file that passes are not read.
        changes_rows: Whether rows differ afterwards; otherwise readers of changes skip the snapshot.
    """
    from pyiceberg.table.snapshots import Operation

    with _as_of(table, table.spec().spec_id).transaction() as transaction:
        kind = _replacing_class()
        with kind(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=table.io,
            branch=branch,
            snapshot_properties=dict(properties),
        ) as snapshot:
            snapshot.changes_rows = changes_rows
            snapshot.delete_by_predicate(where)
            for old in replaced:
                snapshot.delete_data_file(old)
            for file in files:
                snapshot.append_data_file(file.as_data_file())
            return int(snapshot.snapshot_id)


@cache
def _replacing_class() -> Any:
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update import snapshot as producers

    class Replacing(producers._OverwriteFiles):
        changes_rows = True

        def _build_delete_files_partition_predicate(self) -> None:
            """Leave the choice of manifests to the filter, which also selects files without a partition."""

        def _summary(self, snapshot_properties: Mapping[str, str] = {}) -> Summary:
            summary = super()._summary(dict(snapshot_properties))
            if self.changes_rows:
                return summary
            # The library computes totals only for other operations, so they are computed for an overwrite.
            return Summary(Operation.REPLACE, **summary.additional_properties)

    return Replacing


def _as_of(table: Table, spec: int) -> Table:
    """Prepare a table for one commit of files of a partition spec, which the library must not retry.

    The library reads the number of retries and the default spec from the table's metadata. These changes
    of the metadata stay here: the commit does not send them to the catalog.
    """
    properties = {**table.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties, "default_spec_id": spec})
    table.io = keeping_manifests(table.io)
    return table
