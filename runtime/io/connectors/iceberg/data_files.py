"""`StagedDataFile`: a finished Parquet file that no snapshot names yet, with its metadata for a manifest.

The committer reads no file: the writer takes bounds and counts from the metadata of the file that it has just
written. The values are plain, so that a checkpoint holds them without classes of the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.runtime.io.connectors.tables.parquet_file import OpenFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import StatisticsCollector
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
    plan = compute_statistics_plan(schema, table.properties)
    _leave_out_bounds(metadata, fields, plan)
    found = data_file_statistics_from_parquet_metadata(metadata, plan, fields).to_serialized_dict()
    counts = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    return StagedDataFile(
        path=file.path,
        size=file.size,
        rows=file.rows,
        partition=partition,
        table=str(table.metadata.table_uuid),
        spec=table.spec().spec_id,
        counts={name: found[name] for name in counts},
        lower=dict(found["lower_bounds"]),
        upper=dict(found["upper_bounds"]),
        offsets=tuple(found["split_offsets"]),
    )


def _leave_out_bounds(metadata: Any, fields: Mapping[str, int], plan: dict[int, StatisticsCollector]) -> None:
    """Plan no bounds of columns with a row group whose bounds are unknown, or for which pyiceberg has none.

    Arrow's writer of Parquet leaves out the bounds of a row group with a value of over 4 KiB. Then
    pyiceberg takes those of the other row groups for the bounds of the file.
    """
    from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode

    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(metadata.num_columns):
            column = group.column(index)
            planned = plan[fields[column.path_in_schema]]
            has_bounds = planned.mode.type in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
            if has_bounds and not _knows_bounds(column, planned.mode.length):
                counts = MetricsMode(MetricModeTypes.COUNTS)
                plan[planned.field_id] = replace(planned, mode=counts)


def _knows_bounds(column: Any, length: int | None) -> bool:
    """Whether a row group has bounds of a column, and pyiceberg can express them.

    It reads timestamps as Python's, which end with the year 9999. The upper bound of a text is its first
    `length` characters with a greater last one. After U+D7FF that would be no character.
    """
    from pyiceberg.utils.truncate import truncate_upper_bound_text_string

    found = column.statistics
    if found is None:
        return False
    if not found.has_min_max:
        return bool(found.null_count == column.num_values)
    try:
        least, most = found.min, found.max
        if isinstance(most, str):
            (truncate_upper_bound_text_string(most, length) or "").encode()
    except (OverflowError, UnicodeEncodeError):
        return False
    return least is not None


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
