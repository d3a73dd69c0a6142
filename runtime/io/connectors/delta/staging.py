"""`DeltaWriter`: writes the Parquet files of one subtask into the folder of a table.

A Delta table consists of the files that its log names. So a file gets its final name in its final place, and
is invisible until a commit names it. `prepare_commit` ends the open files and returns a `StagedFile` for
each. The committer puts them into the log. Names contain a random number, so no file is ever overwritten.

Files that no commit ever names stay after a failure. A full VACUUM removes them, as it does for other
writers. No job removes them, because they look like files that only older versions of the table name.

Rows with a key are merged into the table, so they are staged in a folder that readers ignore. Files there
belong to no version of the table, so each attempt removes those of earlier attempts.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa

from penstock.runtime.io.connectors.delta.statistics import file_statistics
from penstock.runtime.io.connectors.delta.tables import arrow_schema_of, find_table
from penstock.runtime.io.connectors.delta.writable import check_partitioned
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.files.file_sink_writer import file_safe
from penstock.runtime.io.connectors.files.folders import NULL, Folders
from penstock.runtime.io.connectors.filesystem import FileSystem
from penstock.runtime.io.connectors.tables.parquet_file import OpenFile
from penstock.runtime.io.connectors.tables.types import table_schema
from penstock.runtime.io.connectors.tables.writer import StagingTableWriter
from penstock.runtime.record.elements import ArrowBatch

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.delta.sink import DeltaSink

#: Folder in the table for rows that are merged into it; readers ignore it.
STAGING: Final = "_penstock"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished file that no commit names yet.

    Attributes:
        path: Path in the table's folder.
        partition: Value of each partition column as text; `None` for null.
        written_at: Milliseconds since the epoch.
        statistics: JSON with the number of rows, and the bounds and null counts of columns.
        schema: Serialized Arrow schema of the table's rows, with the partition columns.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    written_at: int
    statistics: str
    schema: bytes


def staged_prefix(job_id: str, operator_id: str) -> str:
    """The beginning of the names of all files that an operator stages; subtask and attempt follow."""
    return f"{job_id}-{file_safe(operator_id)}-"


def attempt_of(name: str, prefix: str) -> int | None:
    """The attempt that has staged a file; `None` for files of others."""
    found = re.fullmatch(rf"part-{re.escape(prefix)}[0-9]+-([0-9]+)-[0-9a-f]{{32}}\..+", name)
    return None if found is None else int(found[1])


class DeltaWriter(StagingTableWriter):
    """Writes files into the folder of a table, one at a time for each partition."""

    def __init__(self, sink: DeltaSink, system: FileSystem, prefix: str, clock: Any) -> None:
        super().__init__(
            str(sink.path),
            partition_by=sink.partition_by,
            key=sink.key,
            adds_columns=sink.adds_columns,
            # A deletion may have only its key, so it may be null in columns that are NOT NULL.
            change_kind=sink.change_kind,
            target_file_size=sink.target_file_size,
        )
        self._sink = sink
        self._system = system
        self._prefix = prefix
        self._clock = clock
        #: Rows with a key are staged elsewhere, because they are merged into the table.
        self._base = STAGING if sink.key else ""
        self._folders = Folders(() if sink.key else sink.partition_by)
        self._made: set[str] = set()
        known = sink.schema or self._schema_of_table()
        if known is not None:
            self.fix(table_schema(known))

    def fix(self, schema: pa.Schema) -> None:
        super().fix(schema)
        check_partitioned(self.table, schema, self._sink.partition_by)

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Hashable, pa.RecordBatch]]:
        for folder, part in self._folders.split(ArrowBatch(batch)):
            assert isinstance(part, ArrowBatch), "Folders keeps the kind of a batch"
            yield self._base or folder, part.batch

    def begin(self, folder: str) -> OpenFile:
        assert self.schema is not None, "the records have a schema"
        for name, value in _values("" if self._base else folder).items():
            if value is None and not self.schema.field(name).nullable:
                msg = (
                    f"table {self.table}: partition column '{name}' is NOT NULL, but a record has an empty "
                    "string in it, which becomes null. Give such records a value before the sink"
                )
                raise BadRecordError(msg)
        place = f"{self.table}/{folder}" if folder else self.table
        if folder not in self._made:
            self._system.make_directory(place, f"_probe-{uuid4()}")
            self._made.add(folder)
        name = f"part-{self._prefix}-{uuid4().hex}.{self._sink.compression}.parquet"
        output = self._system.create(place, name)
        return OpenFile(f"{folder}/{name}" if folder else name, output, self._sink.compression)

    def staged(self, folder: str, file: OpenFile) -> StagedFile:
        assert self.schema is not None, "a file has rows, so its schema is known"
        statistics = file_statistics(file.end(), file.with_nan)
        schema = self.schema.serialize().to_pybytes()
        now = int(self._clock.now() * 1_000)
        values = {} if self._base else _values(folder)
        return StagedFile(file.path, file.size, file.rows, values, now, statistics, schema)

    def first_schema(self, found: pa.Schema) -> pa.Schema:
        return table_schema(self._schema_of_table() or found)

    def added_to(self, known: pa.Schema, new: Sequence[pa.Field]) -> pa.Schema:
        return table_schema(pa.schema([*known, *new]))

    def _schema_of_table(self) -> pa.Schema | None:
        table = find_table(self.table, self._sink.storage_options)
        return None if table is None else arrow_schema_of(table)


def _values(folder: str) -> dict[str, str | None]:
    """The values of the partition columns in a folder's path.

    Example:
        >>> _values("day=1%2F5/city=__HIVE_DEFAULT_PARTITION__")
        {'day': '1/5', 'city': None}
    """
    found: dict[str, str | None] = {}
    for part in folder.split("/") if folder else ():
        name, _, value = part.partition("=")
        text = unquote(value)
        found[unquote(name)] = None if text == NULL else text
    return found
