"""Reads a snapshot's state as a DataFrame, and makes a savepoint from a DataFrame, in Spark's executors.

Reading: each subtask's range of key groups is one partition, which a task reads from the storage. Without a
schema, a first pass over the state finds the types of the columns.

Writing: Python workers hash the keys, and Spark repartitions the rows by subtask. Each task writes the files
of its subtasks, and the program writes the metadata. A retried or speculative task writes files with other
names. Only files that are named in Spark's result become part of the savepoint. Other files are deleted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.bridge.arrow import UnsupportedTypeError, arrow_schema_of, readable_schema, spark_schema_of
from penstock.runtime.config.checks import Location
from penstock.runtime.errors import ConfigurationError, StorageError
from penstock.runtime.io.state_frames import parts_of_table, refuse_repeated_keys
from penstock.runtime.io.state_parts import (
    Conversion,
    Convert,
    OpenState,
    PartFiles,
    SavepointDraft,
    StateKind,
    StateQuery,
    rows_of,
    table_of,
)
from penstock.runtime.io.storage import absolute_location
from penstock.runtime.names import checked_keywords
from penstock.runtime.operators.functions.keyed_folds import REDUCE_STATE
from penstock.runtime.record.arrow_types import unified_type
from penstock.runtime.record.arrow_values import from_arrow
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    OperatorSubtaskState,
    StateHandle,
)
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state_processor.states import StatePlace, by_subtask, write_keyed
from penstock.runtime.trust.data import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Schemas of the rows that tasks return, in Spark's DDL format.
TYPES: Final = "schema binary"

ROWS: Final = "data binary"

_WRITTEN: Final = pa.schema(
    [
        ("subtask", pa.int32()),
        ("entries", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("checksum", pa.string()),
        ("data", pa.binary()),
    ]
)
#: Maximum rows of a batch for Spark.
_BATCH_ROWS: Final = 10_000

#: Number of a subtask's rows in memory at which they are written to a file.
_FILE_ROWS: Final = 1 << 18

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Reads parts of a state, or the schema of each part.

    Attributes:
        parts: All parts of the state; an input row is the index of a part.
        schema: Schema of the rows; `None` to return the schema of each part with rows.
    """

    query: StateQuery
    parts: tuple[tuple[int, int], ...]
    schema: pa.Schema | None = None

    def __call__(self, numbers: Batches) -> Iterator[pa.RecordBatch]:
        chosen = [self.parts[number] for batch in numbers for number in batch.column(0).to_pylist()]
        opened = self.query.open() if chosen else None
        for part in chosen:
            columns = None if opened is None else opened.columns(part)
            if columns is None:
                continue
            table = table_of(columns, self.schema)
            if self.schema is not None:
                yield from table.to_batches(_BATCH_ROWS)
            elif table.num_rows:
                yield pa.record_batch([[table.schema.serialize().to_pybytes()]], ["schema"])


@dataclass(frozen=True, slots=True)
class RouteRows:
    """Adds to each row the column `subtask`: the index of the subtask that owns its key."""

    place: StatePlace
    conversion: Conversion

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys = self.conversion.keys(from_arrow(batch.column("key")))
            subtasks = [0] * len(keys)
            for subtask, positions in by_subtask(keys, self.place).items():
                for position in positions:
                    subtasks[position] = subtask
            yield pa.record_batch(
                [*batch.columns, pa.array(subtasks, pa.int32())], [*batch.schema.names, "subtask"]
            )


@dataclass(frozen=True, slots=True)
class WriteParts:
    """Writes the state of the subtasks whose rows arrive at one task; returns a row for each file."""

    folder: str
    token: str
    place: StatePlace
    conversion: Conversion

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        files = PartFiles(self.folder, f"{self.token}-{task.taskAttemptId()}")
        try:
            yield from self._write(batches, files)
        except BaseException:
            with suppress(StorageError):  # the program deletes leftovers
                files.remove()
            raise

    def _write(self, batches: Batches, files: PartFiles) -> Iterator[pa.RecordBatch]:
        waiting: defaultdict[int, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
        seen: defaultdict[int, set[Any]] = defaultdict(set)
        codec, place = self.conversion.codec(), self.place

        def write(subtask: int) -> pa.RecordBatch:
            keys, values = waiting.pop(subtask)
            handle = write_keyed(files.of(place.operator, subtask), place, subtask, keys, values, codec)
            return _report(subtask, handle)

        for batch in batches:
            read, columns = rows_of(pa.Table.from_batches([batch]), keyed=True)
            keys = self.conversion.keys(read)
            values = self.conversion.decode(columns, codec)
            for subtask, positions in by_subtask(keys, place).items():
                mine = [keys[position] for position in positions]
                refuse_repeated_keys(mine, seen[subtask])
                seen[subtask].update(mine)
                part = waiting[subtask]
                part[0].extend(mine)
                part[1].extend(values[position] for position in positions)
                if len(part[0]) >= _FILE_ROWS:
                    yield write(subtask)
        for subtask in sorted(waiting):
            yield write(subtask)


@dataclass(frozen=True, slots=True)
class Collected:
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([[write_batch(batch.cast(self.schema))]], ["data"])


def _report(subtask: int, handle: KeyedStateHandle) -> pa.RecordBatch:
    (file,) = handle.files
    if isinstance(file, FileHandle):
        row = [subtask, handle.entries, file.path, file.size, file.checksum, None]
    else:
        row = [subtask, handle.entries, None, None, None, file.data]
    return pa.record_batch([[cell] for cell in row], schema=_WRITTEN)


def written_parts(place: StatePlace, reports: Sequence[Any]) -> dict[int, OperatorSubtaskState]:
    """The state that the tasks have written, by subtask; files of one subtask have distinct keys."""
    files: defaultdict[int, list[StateHandle]] = defaultdict(list)
    entries: Counter[int] = Counter()
    for report in reports:
        files[report.subtask].append(
            InlineHandle(bytes(report.data))
            if report.path is None
            else FileHandle(report.path, report.size, report.checksum)
        )
        entries[report.subtask] += report.entries
    return {
        subtask: OperatorSubtaskState(
            (
                KeyedStateHandle(
                    key_group_range(subtask, place.parallelism, place.max_parallelism),
                    tuple(handles),
                    entries[subtask],
                ),
            )
        )
        for subtask, handles in sorted(files.items())
    }


@checked_keywords
def read_state(
    spark: SparkSession,
    snapshot: Location,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
    schema: pa.Schema | None = None,
) -> DataFrame:
    """Return one state of an operator as a DataFrame, with one partition for each subtask that wrote it.

    Other arguments are as in `penstock.state.read_state`. The executors must be able to read the snapshot.

    Args:
        spark: The session whose executors read the state.
        schema: Arrow types of all columns; without it an extra pass over the state finds them.

    Raises:
        RestoreError: The snapshot does not exist, or is incomplete.
        ConfigurationError: The snapshot has no such operator. Without `schema` also: it has no such state, or
            the state is empty. With `schema` the DataFrame is then empty.
        BadRecordError: Spark has no type for a column.
    """
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    query = StateQuery(absolute_location("snapshot", snapshot), operator, state, conversion)
    opened = query.open()
    parts = tuple(opened.parts())
    if schema is None:
        schema = schema_of_state(spark, query, opened)
    schema = readable_schema(schema)
    numbers = spark.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(ReadParts(query, parts, schema), spark_schema_of(schema))


def schema_of_state(spark: SparkSession, query: StateQuery, opened: OpenState) -> pa.Schema:
    """The Arrow types of a state's columns, which the executors find in the state.

    Raises:
        ConfigurationError: The state does not exist, or is empty.
    """
    parts = tuple(opened.parts())
    numbers = spark.range(0, len(parts), 1, len(parts))
    found = numbers.mapInArrow(ReadParts(query, parts), TYPES).collect()
    schema = _unified([pa.ipc.read_schema(pa.py_buffer(bytes(row.schema))) for row in found])
    if schema is None:
        opened.check()
        msg = (
            f"state {query.state!r} of {query.operator!r} is empty, so its types are not known: give schema="
        )
        raise ConfigurationError(msg)
    return schema


@checked_keywords
def write_state(
    df: DataFrame,
    savepoint: Location,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    kind: StateKind = "keyed",
    base: Location | None = None,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
) -> str:
    """Make a savepoint from the rows of a DataFrame; a job can start from it.

    Other arguments are as in `penstock.state.write_state`. The executors must be able to write to the folder.
    They write keyed state, in `parallelism` tasks. This program writes list state, which is small.

    Args:
        df: A DataFrame with the columns `key` and `value` (list state: `value`); others are ignored.
        kind: `"keyed"`, or the redistribution mode of list state.

    Returns:
        The savepoint's URL.

    Raises:
        ConfigurationError: The folder holds a snapshot already, or an argument does not fit the base.
        RestoreError: The base does not exist.
        UnsupportedTypeError: A column is missing, or has a type that can't be transferred.
        Exception: A Spark task failed, for example on a duplicate or an invalid key.
    """
    if kind in ("columns", "list", "map"):
        msg = f'kind="{kind}" is not for DataFrames: give an Arrow table to penstock.state.write_state'
        raise ConfigurationError(msg)
    names = ["key", "value"] if kind == "keyed" else ["value"]
    columns = list(df._jdf.columns())  # `df.columns` fails on types that PySpark can't read
    missing = [name for name in names if name not in columns]
    if missing:
        msg = f"the DataFrame lacks {' and '.join(map(repr, missing))}; its columns are {columns}"
        raise UnsupportedTypeError(msg)
    df = df.select(*names)
    schema = arrow_schema_of(df)  # refuses unsupported types, for keyed state too
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    draft = SavepointDraft(savepoint, operator, state, kind, base, parallelism, max_parallelism)
    folder = draft.write(lambda files: _written(df, schema, draft, conversion, files))
    with suppress(StorageError):  # unused files do no harm
        draft.remove_unused()
    return folder


def _written(
    df: DataFrame, schema: pa.Schema, draft: SavepointDraft, conversion: Conversion, files: PartFiles
) -> Mapping[int, OperatorSubtaskState]:
    """Write and return the state of each subtask; this program writes list state, and state without rows."""
    if draft.mode is None:
        written = _write_in_tasks(df, WriteParts(draft.folder, draft.token, draft.place, conversion))
        if parts := written_parts(draft.place, written):
            return parts
    return parts_of_table(_collected(df, schema), draft, conversion, files)


def _write_in_tasks(df: DataFrame, write: WriteParts) -> Sequence[Any]:
    from pyspark.sql.types import IntegerType, StructField, StructType

    schema = StructType([*df.schema.fields, StructField("subtask", IntegerType())])
    route = RouteRows(write.place, replace(write.conversion, value=None, encoded=False))
    routed = df.mapInArrow(route, schema)
    by_subtask = routed.repartition(write.place.parallelism, "subtask")
    reports: Sequence[Any] = by_subtask.mapInArrow(write, spark_schema_of(_WRITTEN)).collect()
    return reports


def _collected(df: DataFrame, schema: pa.Schema) -> pa.Table:
    blocks = df.mapInArrow(Collected(schema), ROWS).collect()
    tables = [pa.ipc.open_stream(bytes(block.data)).read_all() for block in blocks]
    return pa.concat_tables([schema.empty_table(), *tables])


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema | None:
    if not schemas:
        return None
    types = {name: schemas[0].field(name).type for name in schemas[0].names}
    for other in schemas[1:]:
        types = {name: unified_type(kind, other.field(name).type, name) for name, kind in types.items()}
    return pa.schema(types)
