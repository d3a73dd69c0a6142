"""Runs in Spark's Python workers when state is read or written: functions for `DataFrame.mapInArrow`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.errors import StorageError
from penstock.runtime.io.state_frames import refuse_doubles
from penstock.runtime.io.state_parts import Conversion, PartFiles, StateQuery, rows_of, table_of
from penstock.runtime.record.arrow_values import from_arrow
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    OperatorSubtaskState,
    StateHandle,
)
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state_processor.state_writing import StatePlace, by_subtask, write_keyed

#: Schemas of the tasks' reports, as Spark writes schemas.
TYPES: Final = "schema binary"
ROWS: Final = "data binary"
WRITTEN: Final = "subtask int, entries long, path string, size long, checksum string, data binary"
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
#: Rows of a batch for Spark, and of a file of state.
_BATCH_ROWS: Final = 10_000
_FILE_ROWS: Final = 1 << 18

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ReadTypes:
    """Finds the types of some parts of a state: a schema for each part that has keys.

    Attributes:
        parts: All its parts; a row of the input is the number of one.
    """

    query: StateQuery
    parts: tuple[tuple[int, int], ...]

    def __call__(self, numbers: Batches) -> Iterator[pa.RecordBatch]:
        """The schemas, serialised."""
        for table in _tables(self.query, self.parts, numbers, None):
            if table.num_rows:
                yield pa.record_batch([[table.schema.serialize().to_pybytes()]], ["schema"])


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Reads some parts of a state.

    Attributes:
        parts: All its parts; a row of the input is the number of one.
        schema: The schema of the rows.
    """

    query: StateQuery
    parts: tuple[tuple[int, int], ...]
    schema: pa.Schema

    def __call__(self, numbers: Batches) -> Iterator[pa.RecordBatch]:
        """The rows."""
        for table in _tables(self.query, self.parts, numbers, self.schema):
            yield from table.to_batches(_BATCH_ROWS)


def _tables(
    query: StateQuery, parts: Sequence[tuple[int, int]], numbers: Batches, schema: pa.Schema | None
) -> Iterator[pa.Table]:
    chosen = [parts[number] for batch in numbers for number in batch.column(0).to_pylist()]
    opened = query.open() if chosen else None
    for part in chosen:
        columns = None if opened is None else opened.columns(part)
        if columns is not None:
            yield table_of(columns, schema)


@dataclass(frozen=True, slots=True)
class RouteRows:
    """Adds to each row the subtask that its key belongs to.

    Attributes:
        place: Which state is written.
        conversion: Converts keys to those of the stream.
    """

    place: StatePlace
    conversion: Conversion
    schema: pa.Schema

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The rows with the column `subtask`."""
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
    """Writes the state of the subtasks whose rows come to one task.

    Attributes:
        folder: URL of the savepoint's folder.
        token: Names this try to write the savepoint.
        place: Which state is written.
        conversion: Converts keys and values to those of the stream.
    """

    folder: str
    token: str
    place: StatePlace
    conversion: Conversion

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Write the state; gives a row for each file."""
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        files = PartFiles(self.folder, f"{self.token}-{task.taskAttemptId()}")
        try:
            yield from self._write(batches, files)
        except BaseException:
            with suppress(StorageError):  # the program deletes the rest
                files.remove()
            raise

    def _write(self, batches: Batches, files: PartFiles) -> Iterator[pa.RecordBatch]:
        waiting: dict[int, tuple[list[Any], list[Any]]] = {}
        seen: dict[int, set[Any]] = {}
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
                known = seen.setdefault(subtask, set())
                mine = [keys[position] for position in positions]
                refuse_doubles(mine, known)
                known.update(mine)
                part = waiting.setdefault(subtask, ([], []))
                part[0].extend(mine)
                part[1].extend(values[position] for position in positions)
                if len(part[0]) >= _FILE_ROWS:
                    yield write(subtask)
        for subtask in sorted(waiting):
            yield write(subtask)


@dataclass(frozen=True, slots=True)
class Collected:
    """Encodes rows as Arrow IPC streams."""

    schema: pa.Schema

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """A row for each batch."""
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.schema) as writer:
                writer.write_batch(batch.cast(self.schema))
            yield pa.record_batch([[sink.getvalue().to_pybytes()]], ["data"])


def _report(subtask: int, handle: KeyedStateHandle) -> pa.RecordBatch:
    (file,) = handle.files
    if isinstance(file, FileHandle):
        row = [subtask, handle.entries, file.path, file.size, file.checksum, None]
    else:
        row = [subtask, handle.entries, None, None, None, file.data]
    return pa.record_batch([[each] for each in row], schema=_WRITTEN)


def written_parts(place: StatePlace, reports: Sequence[Any]) -> dict[int, OperatorSubtaskState]:
    """The state that the tasks have written, by subtask; files of one subtask have distinct keys."""
    files: dict[int, list[StateHandle]] = {}
    entries: dict[int, int] = {}
    for report in reports:
        handle: StateHandle
        if report.path is None:
            handle = InlineHandle(bytes(report.data))
        else:
            handle = FileHandle(report.path, report.size, report.checksum)
        files.setdefault(report.subtask, []).append(handle)
        entries[report.subtask] = entries.get(report.subtask, 0) + report.entries
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
