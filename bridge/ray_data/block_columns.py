"""One schema for the blocks of a dataset, so that Arrow batches of several blocks can be put together.

A block whose values are all null in a column may have no type for it; every other difference is refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.io.connectors.errors import ConnectorError, shown


def with_columns_of(dataset: pa.Schema, block: pa.Table, number: int) -> pa.Table:
    """A block with the columns that all blocks of its dataset have.

    Args:
        number: Of the block, for the message.

    Raises:
        ConnectorError: The block has other columns; the message names the block, the column and both types.

    Example:
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.string()})
        >>> with_columns_of(schema, pa.table({"b": [None], "a": [1]}), 0).schema.types
        [DataType(int64), DataType(string)]
    """
    if block.schema.equals(dataset):
        return block.replace_schema_metadata(None)
    for name in dict.fromkeys([*dataset.names, *block.schema.names]):
        if name not in dataset.names or name not in block.schema.names:
            where = (
                "is not in the dataset's" if name not in dataset.names else "is missing, and in the dataset's"
            )
            raise _refused(number, f"column {name!r} {where} columns {shown(dataset.names)}")
        there, wanted = block.schema.field(name).type, dataset.field(name).type
        if there != wanted and not kinds.is_null(there):
            raise _refused(number, f"column {name!r} is of type {there}, and of type {wanted} in the dataset")
    return block.select(dataset.names).cast(dataset.remove_metadata())


def _refused(number: int, what: str) -> ConnectorError:
    return ConnectorError(
        f"block {number} of the Ray dataset: {what}. Make its blocks alike with Dataset.map_batches or "
        'Dataset.select_columns, or read it with format="rows"'
    )
