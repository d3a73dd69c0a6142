"""`IcebergCommitter`: commits what all subtasks have staged to a table, one snapshot for each checkpoint.

Without a key it adds the staged files to the table (`snapshots.py`). With a key it merges the staged rows
(`merging.py`), and the snapshot replaces the files that had rows with these keys.

**The marker.** A snapshot has properties. Those of this committer name its *lineage* and the number of the
commit in it. A lineage is one committer: job, operator, attempt and a random number. Its numbers count its
checkpoints. A commit is repeated after a lost answer, a failure or a restore. It then finds its marker in a
snapshot of the table, and changes nothing. A job that starts from an older savepoint has a new lineage. So
its checkpoints are never taken for those that came after the savepoint.

**Rollbacks.** A user may take the branch back to an older snapshot. The undone snapshots are still there,
with their markers. So a restored job finds its marker, and does not repeat the last undone commit without the
undone ones before it.

**Two committers at a time.** A process that was declared dead may still commit. Both committers may look for
the marker before either has committed. A commit requires that the head of the branch is still the snapshot in
whose history the committer has looked. The catalog checks this and makes the change in one step, so it
refuses the second commit. The second committer then looks again. pyiceberg would repeat a refused append by
itself, on the new head, without a look at the marker. So its retries are switched off (`snapshots.py`).
A merge is computed for the head that it has read, so it is made again from the start.

**Answers that don't come.** The call is abandoned after `catalog_timeout`, and the attempt fails. If the
commit takes effect later, it either finds the head unchanged and leaves its marker, or is refused. Both are
right.

**Order.** Each checkpoint is a snapshot of its own, in the order of checkpoints, even after an aborted one.
Files of two checkpoints are never in one snapshot. So each snapshot adds exactly what lies between two
barriers.

**Expired history.** Maintenance removes snapshots, and with them markers. A commit knows the last sequence
number of the table at its barrier, `base`, so its marker has a greater one. If snapshots after `base` are not
kept, the marker may have been there. Then the live files decide: if they contain one of the commit's files,
it was made. If they don't, a compaction may have replaced them. The committer then fails instead of guessing.
Files of a merge have the lineage and the number in their names.

**Nothing to change.** A merge that only deletes rows that are not there makes an empty snapshot. Without its
marker a repetition would delete rows that were added later.

It must never commit files of another table, which has another id. It must never commit files that don't
exist: a snapshot with a missing file makes the whole table unreadable.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pyarrow.compute as pc

from penstock.runtime.errors import ConnectorError, LostOutputError
from penstock.runtime.io.connectors.daemon_threads import first_missing
from penstock.runtime.io.connectors.files.file_sink_writer import file_safe
from penstock.runtime.io.connectors.iceberg.catalogs import TableClient
from penstock.runtime.io.connectors.iceberg.compaction import compact
from penstock.runtime.io.connectors.iceberg.data_files import StagedDataFile
from penstock.runtime.io.connectors.iceberg.history import MAIN, ancestors, head_of, sequence_of
from penstock.runtime.io.connectors.iceberg.merging import merge
from penstock.runtime.io.connectors.iceberg.snapshots import append_files, replace_files
from penstock.runtime.io.connectors.iceberg.staged_rows import StagedRows, rows_of
from penstock.runtime.io.connectors.iceberg.writer import IcebergWriter, target_file_size
from penstock.runtime.io.connectors.tables.keys import KeySet
from penstock.runtime.operators.last_commit import LastCommit
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.trust.paths import check_declared

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from penstock.runtime.io.connectors.iceberg.sink import IcebergSink

logger = logging.getLogger(__name__)

LINEAGE: Final = "penstock.lineage"
NUMBER: Final = "penstock.commit"


@dataclass(frozen=True, slots=True)
class IcebergCommit:
    """The files of one checkpoint.

    Attributes:
        lineage: The committer that has pre-committed the files.
        number: Number of the checkpoint among those of this committer, from 1.
        files: Data files; with a key, staged rows.
        table: Id of the table.
        branch: The branch that the sink had, whatever it has now.
        base: Last sequence number of the table when the files were pre-committed.
        key: The key by which the rows are merged; empty if the files become part of the table.
    """

    lineage: str
    number: int
    files: tuple[StagedDataFile, ...] | tuple[StagedRows, ...]
    table: str
    branch: str
    base: int
    key: tuple[str, ...]

    @property
    def merged_prefix(self) -> str:
        """Beginning of the names of the files that a merge writes."""
        return f"part-{file_safe(self.lineage)}-{self.number}-merged"


class IcebergCommitter:
    """Commits the files of all writers, in the order of checkpoints."""

    def __init__(self, sink: IcebergSink, client: TableClient, context: SinkContext) -> None:
        self._sink = sink
        self._client = client
        self._about = {"penstock.job": context.job_id, "penstock.operator": context.operator_id}
        self._lineage = f"penstock-{context.job_id}-{context.operator_id}-{context.attempt}-{uuid4()}"
        self._number = 0
        self._staged: list[StagedDataFile | StagedRows] = []
        self._small = 0
        self._last_commit: LastCommit | None = None

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch), "writers send rows"
        self._staged += batch.rows

    def prepare_commit(self) -> Sequence[IcebergCommit]:
        if not self._staged:
            return ()
        key = tuple(self._sink.key)
        if not key and len({file.spec for file in self._staged}) > 1:
            msg = (
                f"table {self._sink.table}: its partitions have changed during a checkpoint. The next "
                "attempt writes with the new ones"
            )
            raise ConnectorError(msg)
        table = self._client.load()
        table_id, base = str(table.metadata.table_uuid), table.last_sequence_number
        self._check_same(table_id)
        self._check_columns(table)
        self._number += 1
        staged: Any = tuple(self._staged)
        self._staged = []
        return [IcebergCommit(self._lineage, self._number, staged, table_id, self._sink.branch, base, key)]

    def commit(self, committables: Sequence[IcebergCommit], permit: CommitPermit) -> None:
        self._last_commit = None
        for commit in committables:
            self._commit(commit, permit)
        if committables and self._sink.compact_below is not None:
            self._compact(committables[-1].branch, self._sink.compact_below)
        if self._sink.audit is not None:
            self._publish(self._sink.audit)

    def last_commit(self) -> LastCommit | None:
        return self._last_commit

    def close(self) -> None:
        self._client.close()

    def _commit(self, commit: IcebergCommit, permit: CommitPermit) -> None:
        def make(table: Table) -> bool | None:
            if self._client.call("read its history", lambda: self._is_committed(table, commit)):
                return True
            if self._makes_branch(table, commit.branch):
                return None  # look again: another committer may have written the branch meanwhile
            if self._client.call("look for its files", lambda: self._has_lost(table, commit)):
                return None  # look again: the other committer removes staged rows after its commit
            self._append(table, commit, permit)
            return True

        self._client.change(make, lambda: self._table_of(commit))

    def _append(self, table: Table, commit: IcebergCommit, permit: CommitPermit) -> None:
        properties = {
            LINEAGE: commit.lineage,
            NUMBER: str(commit.number),
            **self._about,
            "penstock.checkpoint": str(permit.checkpoint_id),
        }
        if commit.key:
            number, made = self._merge(table, commit, properties)
        else:
            made = cast("Sequence[StagedDataFile]", commit.files)
            number = self._client.call(
                "commit a checkpoint", lambda: append_files(table, commit.branch, made, properties)
            )
        if self._sink.compact_below is not None:
            below = self._small_below(table, self._sink.compact_below)
            self._small += sum(file.size < below for file in made)
        rows = sum(file.rows for file in commit.files)
        self._last_commit = LastCommit(str(number), rows, len(commit.files))

    def _merge(
        self, table: Table, commit: IcebergCommit, properties: Mapping[str, str]
    ) -> tuple[int, Sequence[StagedDataFile]]:
        """Merge staged rows, and return the id of the snapshot and its new files."""
        staged = cast("Sequence[StagedRows]", commit.files)
        rows, deletes = rows_of(self._client, table, staged, commit.key)
        with closing(IcebergWriter(self._sink, self._client, commit.merged_prefix, table)) as writer:
            merged = merge(
                self._client,
                table,
                head_of(table, commit.branch),
                KeySet(rows, commit.key),
                rows.filter(pc.invert(deletes)),
                writer,
            )
            files = self._client.call("end the merged files", writer.prepare_commit)

        def commit_merge() -> int:
            if not merged.replaced:
                return append_files(table, commit.branch, files, properties)
            return replace_files(
                table, commit.branch, merged.replaced, files, merged.where, properties, changes_rows=True
            )

        number = self._client.call("commit a checkpoint", commit_merge)
        self._client.call("remove staged rows", lambda: [table.io.delete(file.path) for file in staged])
        return number, files

    def _compact(self, branch: str, below: int) -> None:
        """Join small files once enough of them were written; another writer's commit puts it off."""
        from pyiceberg.exceptions import CommitFailedException

        if self._small < self._sink.compact_at:
            return
        table = self._client.load()
        head = head_of(table, branch)
        assert head is not None, "the branch has a commit"
        prefix = f"part-{file_safe(self._lineage)}-joined"
        try:
            with closing(IcebergWriter(self._sink, self._client, prefix, table)) as writer:
                below = self._small_below(table, below)
                compact(self._client, table, branch, head, below, writer, self._about)
        except ConnectorError as error:
            if not isinstance(error.__cause__, CommitFailedException):
                raise
            logger.info(
                "table %s: a compaction gave way to another writer; the next one repeats it", self._sink.table
            )
        else:
            self._small = 0

    def _small_below(self, table: Table, below: int) -> int:
        """Files of the target size are never small: a compaction could not make them larger."""
        return min(below, target_file_size(table))

    def _is_committed(self, table: Table, commit: IcebergCommit) -> bool:
        if any(_number_in(snapshot, commit.lineage) >= commit.number for snapshot in table.snapshots()):
            return True
        head = head_of(table, commit.branch)
        head = head_of(table, MAIN) if head is None else head
        oldest: Snapshot | None = None
        for snapshot in ancestors(table, head):
            if sequence_of(snapshot) <= commit.base or _number_in(snapshot, commit.lineage):
                return False
            oldest = snapshot
        if oldest is None or sequence_of(oldest) == commit.base + 1:
            return False
        return self._has_files(table, head, commit)

    def _has_files(self, table: Table, head: int | None, commit: IcebergCommit) -> bool:
        snapshot = table.snapshot_by_id(head) if head is not None else None
        assert snapshot is not None, "the head of a branch never expires"
        paths = {file.path for file in commit.files}
        for manifest in snapshot.manifests(table.io):
            if manifest.sequence_number <= commit.base:
                continue  # it is older than the files
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                path = entry.data_file.file_path
                if path in paths or (commit.key and commit.merged_prefix in path):
                    return True
        msg = (
            f"table {self._sink.table}: the snapshots that may show whether checkpoint number "
            f"{commit.number} of {commit.lineage} was committed have expired, and no live file of it is "
            "left. Let expire_snapshots keep snapshots for longer than the downtime of the job, and restore "
            "an older checkpoint"
        )
        raise LostOutputError(msg)

    def _check_same(self, table_id: str) -> None:
        """Fail before the checkpoint if the table was created again: its columns may have other ids."""
        other = next((file.table for file in self._staged if file.table != table_id), None)
        if other is not None:
            msg = (
                f"table {self._sink.table} was created again while rows were written to it: its id was "
                f"{other}, and is now {table_id}. The next attempt writes to the new table"
            )
            raise ConnectorError(msg)

    def _check_columns(self, table: Table) -> None:
        """Fail before the checkpoint if a column was dropped: its values would never be seen."""
        known = table.schema().field_ids
        for file in self._staged:
            columns = file.columns if isinstance(file, StagedRows) else file.counts["column_sizes"]
            dropped = set(columns) - known
            if dropped:
                msg = (
                    f"table {self._sink.table}: a column of uncommitted rows was dropped, with the id "
                    f"{min(dropped)}. The next attempt writes to the columns that are left"
                )
                raise ConnectorError(msg)

    def _has_lost(self, table: Table, commit: IcebergCommit) -> bool:
        """Whether another committer may have merged rows of the commit, and removed their files.

        Raises:
            LostOutputError: A file is missing.
        """
        places = [table.location(), table.properties.get("write.data.path", table.location())]
        for file in commit.files:
            check_declared(_plain(file.path), map(_plain, places))
        files: Sequence[StagedDataFile | StagedRows] = commit.files
        missing = first_missing(lambda file: table.io.new_input(file.path).exists(), files)
        if missing is None:
            return False
        if commit.key and self._is_committed(self._table_of(commit), commit):
            return True
        msg = (
            f"table {self._sink.table}: committed data is missing. A completed checkpoint covers the "
            f"file {missing.path}, which is neither in the table nor in its folder. remove_orphan_files "
            "removes uncommitted files that are older than its limit. Restore an older checkpoint"
        )
        raise LostOutputError(msg)

    def _table_of(self, commit: IcebergCommit) -> Table:
        table = self._client.find()
        found = None if table is None else str(table.metadata.table_uuid)
        if table is None or found != commit.table:
            what = "there is no table" if table is None else f"the table has the id {found}"
            msg = (
                f"table {self._sink.table}: committed data is missing. Files of a completed checkpoint "
                f"belong to the table with the id {commit.table}, and {what} here. So the catalog or the "
                "name has changed, or the table was created again. Restore with the old settings. Or give "
                "the sink a new id and restore with allow_non_restored_state=True: rows that were not yet "
                "committed are then left out"
            )
            raise LostOutputError(msg)
        return table

    def _makes_branch(self, table: Table, branch: str) -> bool:
        """Make the branch if it does not exist: it begins with the snapshot of `main`."""
        if branch == MAIN or head_of(table, branch) is not None:
            return False

        def make() -> None:
            if head_of(table, MAIN) is None:
                # A branch needs a snapshot, so main gets an empty one.
                with table.transaction() as transaction, transaction.update_snapshot().fast_append():
                    pass
            main = head_of(table, MAIN)
            assert main is not None, "main has a snapshot"
            table.manage_snapshots().create_branch(main, branch).commit()

        self._client.call("make the branch", make)
        return True

    def _publish(self, audit: Any) -> None:
        """Let `main` follow the branch if the user's function approves of it."""
        branch = self._sink.branch
        approved: int | None = None

        def follow(table: Table) -> bool:
            nonlocal approved
            head, main = head_of(table, branch), head_of(table, MAIN)
            if head is None or head == main:
                return True
            self._check_behind(table, head, main)
            if approved != head and not audit(table.scan(snapshot_id=head)):
                logger.warning(
                    "table %s: the audit refused snapshot %s of branch %s; main stays",
                    self._sink.table,
                    head,
                    branch,
                )
                return True
            approved = head
            self._client.call(
                "fast-forward main",
                lambda: table.manage_snapshots().set_current_snapshot(snapshot_id=head).commit(),
            )
            return True

        self._client.change(follow)

    def _check_behind(self, table: Table, head: int, main: int | None) -> None:
        """Fail if `main` is not in the history of the branch."""
        if main is not None and not any(each.snapshot_id == main for each in ancestors(table, head)):
            msg = (
                f"table {self._sink.table}: main has a snapshot that the branch {self._sink.branch!r} lacks, "
                "or the snapshots between both have expired, so it can't be fast-forwarded. Let only this "
                "job write the table, and publish the branch by hand. Or drop the branch: its rows are then "
                "left out"
            )
            raise ConnectorError(msg)


def _number_in(snapshot: Snapshot, lineage: str) -> int:
    """Number of the commit of a lineage that has made a snapshot; 0 for other snapshots."""
    properties: Any = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return int(properties[NUMBER]) if properties.get(LINEAGE) == lineage else 0


def _plain(location: str) -> str:
    """A location whose parts can be compared: a local path without its scheme."""
    return location.removeprefix("file://")
