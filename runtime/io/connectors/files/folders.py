"""`Folders`: the folders of a `FileSink` with `partition_by`, as Hive, Spark and Arrow name them.

A folder is `name=value/` for each column, so `FileSource` reads the columns back. Names and values are
URL-encoded. Null and the empty string share one folder. The columns are left out of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

#: Stands for null in the names of folders.
NULL: Final = "__HIVE_DEFAULT_PARTITION__"

#: Maximum length of a file name on disk, in bytes.
_LONGEST: Final = 255


class Folders:
    """Splits batches by the values of columns.

    Example:
        >>> rows = [{"day": "1/5", "n": 1}, {"day": None, "n": 2}, {"day": "1/5", "n": 3}]
        >>> for folder, part in Folders(["day"]).split(RowBatch(rows)):
        ...     print(folder, part.rows)
        day=1%2F5 [{'n': 1}, {'n': 3}]
        day=__HIVE_DEFAULT_PARTITION__ [{'n': 2}]
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """Yield each part of a batch with its folder; without columns, the whole batch with an empty name."""
        if not self._names:
            yield "", batch
        elif isinstance(batch, ArrowBatch):
            yield from self._columns(batch.batch)
        else:
            yield from self._rows(batch.rows)

    def _rows(self, rows: Sequence[Any]) -> Iterator[tuple[str, Batch]]:
        parts: dict[tuple[Any, ...], list[Any]] = {}
        for row in rows:
            if not isinstance(row, dict):
                msg = f"a record is {shown(row)}, but partition_by needs dicts or Arrow batches"
                raise BadRecordError(msg)
            values = tuple([_text(name, row.get(name)) for name in self._names])
            kept = {name: value for name, value in row.items() if name not in self._names}
            parts.setdefault(values, []).append(kept)
        for values, part in parts.items():
            yield self._path(values), RowBatch(part)

    def _columns(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Batch]]:
        codes, values = np.zeros(batch.num_rows, np.int64), []
        for name in self._names:
            if name not in batch.schema.names:
                msg = (
                    f"a batch has no column {name!r} of partition_by: it has {', '.join(batch.schema.names)}"
                )
                raise BadRecordError(msg)
            column = batch.column(name)
            encoded = column.dictionary_encode() if not isinstance(column, pa.DictionaryArray) else column
            texts = [_text(name, value) for value in encoded.dictionary.to_pylist()]
            own = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
            values.append([*texts, NULL])
            codes = codes * (len(texts) + 1) + own
        kept = batch.drop_columns(list(self._names))
        found, of_row = np.unique(codes, return_inverse=True)
        parts: dict[tuple[str, ...], list[int]] = {}
        for number, code in enumerate(found.tolist()):
            parts.setdefault(_decoded(code, values), []).append(number)
        for texts_of_part, numbers in parts.items():
            part = kept if len(parts) == 1 else kept.filter(pa.array(np.isin(of_row, numbers)))
            yield self._path(texts_of_part), ArrowBatch(part)

    def _path(self, values: Sequence[str]) -> str:
        return "/".join(map(_folder, self._names, values))


def _folder(name: str, value: str) -> str:
    try:
        folder = f"{quote(name, safe='')}={quote(value, safe='')}"
    except UnicodeEncodeError as error:
        msg = f"the column {name!r} of partition_by has {shown(value)}, which can't name a folder: {error}"
        raise BadRecordError(msg) from error
    # Fail now: a commit that can't make the folder would fail in each attempt of the job.
    if len(folder) > _LONGEST:
        msg = (
            f"the column {name!r} of partition_by has {shown(value)}, which makes a folder name of "
            f"{len(folder)} bytes. Names have up to {_LONGEST} bytes: shorten the value before the sink"
        )
        raise BadRecordError(msg)
    return folder


def _decoded(code: int, values: Sequence[Sequence[str]]) -> tuple[str, ...]:
    texts = []
    for of_column in reversed(values):
        code, position = divmod(code, len(of_column))
        texts.append(of_column[position])
    return tuple(reversed(texts))


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return NULL
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, date) and not isinstance(value, datetime)):
        return str(value)
    msg = (
        f"the column {name!r} of partition_by has {shown(value)} of type {type(value).__name__}, which can't "
        "name a folder: give text, integers, dates or booleans"
    )
    raise BadRecordError(msg)
