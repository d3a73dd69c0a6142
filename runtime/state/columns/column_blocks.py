"""`ColumnBlock`: changed keys of a table in columns, on their way into a snapshot and out of it.

A block lies in the same chunk as blocks of rows (`keyed_chunk.py`). Its keys and its values are each one
record batch in Arrow's IPC format instead of a list. The last parts of a key may be *extra*: they do not
decide its key group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CodecError
from penstock.runtime.record.arrow_streams import check_types, read_batch


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """Some changed keys of one table.

    Attributes:
        keys: The keys, a column for each part; each key occurs once.
        key_groups: The key group of each key.
        values: The values in the order of the keys, without columns where a table has only keys; `None` when
            the keys were deleted.
        extra: How many of the last parts are extra.
    """

    table: str
    keys: pa.RecordBatch
    key_groups: NDArray[np.uint16]
    values: pa.RecordBatch | None
    extra: int = 0

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    @property
    def weight(self) -> int:
        """About how many bytes this is."""
        values = 0 if self.values is None else self.values.nbytes
        return int(self.keys.nbytes) + int(values)

    def chosen(self, rows: NDArray[np.bool_]) -> ColumnBlock:
        """The block of some of its rows."""
        if rows.all():
            return self
        mask = pa.array(rows)
        values = self.values
        if values is not None and values.num_columns:
            values = values.filter(mask)
        return ColumnBlock(self.table, self.keys.filter(mask), self.key_groups[rows], values, self.extra)


def encode_columns(batch: pa.RecordBatch, *, any_type: bool = True) -> bytes:
    """A record batch as an Arrow IPC stream.

    Args:
        any_type: Also columns of extension types that may run code where they are read.

    Raises:
        CodecError: A column has such a type.

    Example:
        >>> decode_columns(encode_columns(pa.record_batch({"n": [1]}))).to_pydict()
        {'n': [1]}
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = bytes(sink.getvalue().to_pybytes())
    if not any_type:
        check_types(data)
    return data


def decode_columns(data: bytes, *, any_type: bool = False) -> pa.RecordBatch:
    """What `encode_columns` wrote; the columns are views into the data.

    Args:
        any_type: Also columns of extension types that may run code.

    Raises:
        CodecError: The bytes are damaged, or a column has such a type.
    """
    try:
        return read_batch(data, any_type=any_type)
    except Exception as error:  # anything: the bytes decide what goes wrong
        why = str(error) if isinstance(error, CodecError) else error_text(error)
        msg = f"{len(data)} bytes of columns can't be decoded: {why}"
        raise CodecError(msg) from error


def key_list(keys: pa.RecordBatch) -> list[Any]:
    """Keys as Python values: of one part the value itself, of several parts tuples.

    Example:
        >>> key_list(pa.record_batch({"a": [1, 2], "b": ["x", None]}))
        [(1, 'x'), (2, None)]
    """
    columns = [column.to_pylist() for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
