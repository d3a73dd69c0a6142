"""The statistics of a Parquet file, as the log of a Delta table has them: rows, bounds and nulls of columns.

Readers skip files by them. Bounds that are too narrow would make readers lose rows. Some readers also take a
missing bound for an empty range. So each column that can have bounds has some. Bounds are wider than the
values for long strings, for infinite numbers, and for columns with NaN, which Parquet's bounds ignore. Bytes
and nested columns have no bounds in Delta.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

#: Maximum characters of a text in the bounds.
_LONGEST_TEXT: Final = 64
#: No character is greater; it follows a shortened upper bound.
_LAST_CHARACTER: Final = "\U0010ffff"
_LARGEST: Final = 1.7976931348623157e308


def file_statistics(metadata: Any, with_nan: Container[str] = ()) -> str:
    """JSON of a file's statistics.

    Args:
        metadata: Metadata of the file, by `pyarrow.parquet`.
        with_nan: Columns that contain NaN.
    """
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
        filled = [each for each in found if each.num_values]  # a group of nulls needs no bounds
        if filled:
            bounds = _bounds(column, filled, has_nan=column.name in with_nan)
            if bounds is not None:
                smallest[column.name], largest[column.name] = bounds
    rows = metadata.num_rows
    return _json({"numRecords": rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls})


def _bounds(column: Any, found: list[Any], *, has_nan: bool) -> tuple[Any, Any] | None:
    if not all(each.has_min_max for each in found):
        # Parquet leaves out bounds of very long strings and bytes, and of numbers that are all NaN.
        if column.physical_type in ("FLOAT", "DOUBLE"):
            return -_LARGEST, _LARGEST
        return ("", _LAST_CHARACTER * _LONGEST_TEXT) if column.logical_type.type == "STRING" else None
    low, high = min(each.min for each in found), max(each.max for each in found)
    match low:
        case bool() | int():
            return low, high
        case float():
            is_exact = not has_nan and math.isfinite(low) and math.isfinite(high)
            return (low, high) if is_exact else (-_LARGEST, _LARGEST)
        case str():
            is_short = len(high) <= _LONGEST_TEXT
            return low[:_LONGEST_TEXT], high if is_short else high[:_LONGEST_TEXT] + _LAST_CHARACTER
        case Decimal():
            return low, high
        case datetime():
            return _moment(low), _moment(high)
        case date():
            return low.isoformat(), high.isoformat()
    return None


def _json(value: Any) -> str:
    """JSON with all digits of decimals."""
    match value:
        case dict():
            return (
                "{" + ", ".join(f"{_json(name)}: {_json(of_name)}" for name, of_name in value.items()) + "}"
            )
        case Decimal():
            return format(value, "f")
    # Some readers misread the escapes of characters beyond U+FFFF.
    return json.dumps(value, ensure_ascii=False)


def _moment(value: datetime) -> str:
    # strftime would write the year 987 with three digits.
    text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
    return text if value.tzinfo is None else f"{text}Z"
