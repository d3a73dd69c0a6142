"""The statistics of a Parquet file, as the log of a Delta table has them: rows, bounds and nulls of columns.

Readers skip files by them. Bounds that are too narrow would make readers lose rows. So only columns whose
bounds are exact and have a plain form in JSON are included. Numbers with a fraction are left out, because NaN
is outside of Parquet's bounds. Columns in structs, lists and maps are left out, too.
"""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any, Final

#: Longest text in the bounds; a column with a longer one has none.
_LONGEST_TEXT: Final = 64


def file_statistics(metadata: Any) -> str:
    """JSON of a file's statistics, from the metadata of `pyarrow.parquet`."""
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        groups = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        found = [group.statistics for group in groups]
        if column.path != column.name or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[column.name] = sum(each.null_count for each in found)
        # A group of nulls has no bounds, and needs none.
        filled = [each for each in found if each.num_values]
        if filled and all(each.has_min_max for each in filled):
            low, high = min(each.min for each in filled), max(each.max for each in filled)
            bounds = _plain(low), _plain(high)
            if None not in bounds:
                smallest[column.name], largest[column.name] = bounds
    rows = metadata.num_rows
    found_all = {"numRecords": rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls}
    return json.dumps(found_all)


def _plain(value: Any) -> Any:
    """A bound in JSON; `None` if it has no exact form."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT:
        return value
    if isinstance(value, datetime):
        # Bounds have milliseconds.
        is_exact = value.microsecond % 1_000 == 0 and value.tzinfo is not None
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if is_exact else None
    return value.isoformat() if isinstance(value, date) else None
