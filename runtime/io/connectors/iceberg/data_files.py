"""`StagedDataFile`: a finished Parquet file that no snapshot names yet, with its metadata for a manifest.

The committer reads no file: the writer takes bounds and counts from the metadata of the file that it has just
written. The values are plain, so that a checkpoint holds them without classes of the library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.runtime.io.connectors.tables.parquet_file import OpenFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class StagedDataFile:
    """A file of one partition.

    Attributes:
        path: Location of the file.
        partition: Values of the partition fields, as manifests have them: days since the epoch for a date.
        table: Id of the table whose columns the file has.
        spec: Id of the partition spec.
        counts: By the names that manifests use: bytes, or number of values, nulls or NaNs, by column id.
        lower: Smallest value by column id, in Iceberg's single-value serialization.
        upper: Largest value by column id.
        offsets: Offsets of the row groups.
    """

    path: str
    size: int
    rows: int
    partition: tuple[Any, ...]
    table: str
    spec: int
    counts: Mapping[str, Mapping[int, int]]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]
    offsets: tuple[int, ...]

    def as_data_file(self) -> DataFile:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        counts: dict[str, Any] = {name: dict(found) for name, found in self.counts.items()}
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            record_count=self.rows,
            file_size_in_bytes=self.size,
            sort_order_id=None,
            spec_id=self.spec,
            equality_ids=None,
            key_metadata=None,
            lower_bounds=dict(self.lower),
            upper_bounds=dict(self.upper),
            split_offsets=list(self.offsets),
            **counts,
        )


def staged(file: OpenFile, table: Table, partition: tuple[Any, ...]) -> StagedDataFile:
    """End a file, and describe it."""
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )

    schema, metadata = table.schema(), file.end()
    fields = parquet_path_to_id_mapping(schema)
    found = data_file_statistics_from_parquet_metadata(
        metadata, compute_statistics_plan(schema, table.properties), fields
    ).to_serialized_dict()
    without = {fields[path] for path in _without_bounds(metadata)}
    counts = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    return StagedDataFile(
        path=file.path,
        size=file.size,
        rows=file.rows,
        partition=partition,
        table=str(table.metadata.table_uuid),
        spec=table.spec().spec_id,
        counts={name: found[name] for name in counts},
        lower={field: bound for field, bound in found["lower_bounds"].items() if field not in without},
        upper={field: bound for field, bound in found["upper_bounds"].items() if field not in without},
        offsets=tuple(found["split_offsets"]),
    )


def _without_bounds(metadata: Any) -> Iterator[str]:
    """Yield the paths of columns with a row group whose bounds are unknown.

    Arrow's writer of Parquet leaves out the bounds of a row group with a value of over 4 KiB. Then
    pyiceberg takes those of the other row groups for the bounds of the file.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(metadata.num_columns):
            column = group.column(index)
            found = column.statistics
            if found is None or (not found.has_min_max and found.null_count != column.num_values):
                yield column.path_in_schema


class DataFileOutput:
    """A new file of a table, written through the table's own `FileIO`."""

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._stream: Any = io.new_output(path).create()

    def write(self, data: Any) -> None:
        self._stream.write(data)

    def finish(self) -> None:
        self._stream.close()

    def discard(self) -> None:
        self._stream.close()
        self._io.delete(self._path)


def keeping_manifests(io: FileIO) -> FileIO:
    """Wrap a `FileIO` so that it does not delete the manifests of a commit."""
    from pyiceberg.io import FileIO, InputFile, OutputFile

    class KeepingManifests(FileIO):
        def new_input(self, location: str) -> InputFile:
            return io.new_input(location)

        def new_output(self, location: str) -> OutputFile:
            return io.new_output(location)

        def delete(self, location: str | InputFile | OutputFile) -> None:
            if not str(getattr(location, "location", location)).endswith(".avro"):
                io.delete(location)

    return KeepingManifests(io.properties)
