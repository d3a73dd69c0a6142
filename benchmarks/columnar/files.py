"""The Parquet files that all contenders of `columns.py` read, and their expected sums.

By default only one file is written, and the others are hard links to it, so billions of rows take little
space. Files with event time are all different, because time advances from file to file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

#: Maximum rows in a row group.
_GROUP: Final = 1 << 20
#: Event time that a file of `moments` covers for each of its rows, in microseconds: 100,000 rows a second.
_STEP: Final = 10
#: Maximum out-of-orderness of records, in microseconds.
_JITTER: Final = 2_000_000
#: The earliest event time of a row in microseconds: 1 January 2026.
_BEGIN: Final = 1_767_225_600_000_000


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of Parquet files with equal numbers of rows.

    Attributes:
        each: Rows in each file.
        count: Number of files.
    """

    folder: Path
    each: int
    count: int

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return self.each * self.count

    @property
    def paths(self) -> list[Path]:
        """The files in the order of their names."""
        return sorted(self.folder.iterdir())


def numbers(
    folder: Path,
    *,
    keys: int,
    rows: int,
    each: int,
    different: int = 1,
    all_keys_first: bool = False,
    texts: int = 0,
) -> Files:
    """Write files with columns `k` and `v`, both 64-bit integers.

    Args:
        folder: Folder to create.
        keys: Number of different keys.
        rows: Rows of all files, rounded up to whole files.
        each: Rows in each file.
        different: Number of files with different content; the others are hard links to these, in turn.
        all_keys_first: Whether the first files contain each key once; `keys` is then a multiple of `each`.
        texts: Number of further columns, with texts of 12 characters.
    """
    order = np.random.default_rng(8).permutation(keys) if all_keys_first else np.empty(0, np.int64)

    def columns(draws: np.random.Generator, number: int) -> dict[str, object]:
        drawn: dict[str, object] = {**_keys_and_values(draws, keys, each)}
        for index in range(texts):
            drawn[f"text{index}"] = pc.utf8_lpad(
                pa.array(draws.integers(0, rows, each)).cast("string"), 12, "0"
            )
        some = order[number * each : (number + 1) * each]
        return {**drawn, "k": some} if len(some) == each else drawn

    return _written(folder, rows, each, different, columns)


def moments(folder: Path, *, keys: int, rows: int, each: int) -> Files:
    """Write files with columns `k`, `v` and `ts`; time advances from file to file. See `numbers`."""

    def columns(draws: np.random.Generator, number: int) -> dict[str, object]:
        at = _BEGIN + _STEP * np.arange(number * each, (number + 1) * each)
        at += draws.integers(0, _JITTER // 1000, each) * 1000
        return {
            **_keys_and_values(draws, keys, each),
            "ts": pa.array(at - at % 1000).view(pa.timestamp("us", "UTC")),
        }

    return _written(folder, rows, each, -(-rows // each), columns)


def sums(data: Path, keys: Sequence[str], function: str = "sum", column: str = "v") -> pa.Table:
    """The sum, or the largest value, of each key in the files below a folder; sorted by key."""
    found = [str(path) for path in sorted(data.rglob("*.parquet"))]
    grouped = ds.dataset(found, format="parquet").to_table(columns=[*keys, column]).group_by(list(keys))
    table = grouped.aggregate([(column, function)])
    table = table.select([*keys, f"{column}_{function}"]).rename_columns([*keys, "total"])
    return table.sort_by([(name, "ascending") for name in keys])


def minute_sums(data: Path) -> pa.Table:
    """The sum of each key and minute of files of `moments`; sorted."""
    table = ds.dataset(str(data), format="parquet").to_table()
    minute = table.column("ts").cast(pa.int64()).to_numpy() // 60_000_000 * 60_000_000
    table = table.append_column("window_start", pa.array(minute).view(pa.timestamp("us", "UTC")))
    grouped = table.group_by(["k", "window_start"]).aggregate([("v", "sum")])
    ordered = grouped.rename_columns(["k", "window_start", "total"])
    return ordered.sort_by([("k", "ascending"), ("window_start", "ascending")])


def require_equal(found: pa.Table, right: pa.Table, who: str) -> None:
    """Compare results exactly.

    Raises:
        RuntimeError: The results differ.
    """
    if not found.cast(right.schema).equals(right):
        raise RuntimeError(f"the {found.num_rows} sums of {who} differ from pyarrow's {right.num_rows} sums")


def _keys_and_values(draws: np.random.Generator, keys: int, rows: int) -> dict[str, object]:
    return {"k": draws.integers(0, keys, rows), "v": draws.integers(0, 1000, rows)}


def _written(
    folder: Path,
    rows: int,
    each: int,
    different: int,
    columns: Callable[[np.random.Generator, int], dict[str, object]],
) -> Files:
    folder.mkdir()
    draws = np.random.default_rng(7)
    files = Files(folder, each, -(-rows // each))
    for number in range(files.count):
        path = folder / f"part-{number:05}.parquet"
        if number < different:
            pq.write_table(pa.table(columns(draws, number)), path, row_group_size=_GROUP)
        else:
            os.link(folder / f"part-{number % different:05}.parquet", path)
    return files
