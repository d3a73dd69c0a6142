"""State in columns as a flat Arrow table: `read_state(columns=True)`, `write_state(kind="columns")`.

The table has a column for each part of the key and of the value, in their own types, beside `key_group`. Its
metadata says which columns are the key's, so that what was read and changed is written without more ado. Some
parts of a key do not decide its key group, as the start of a window. Their names begin or end with a colon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.savepoint_draft import SavepointDraft
from penstock.runtime.io.state_parts import PartFiles
from penstock.runtime.record.key_columns import canonical_column
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import OperatorSubtaskState
from penstock.runtime.state.columns.column_blocks import ColumnBlock, key_list
from penstock.runtime.state.columns.column_table import ColumnTable
from penstock.runtime.state.columns.typed_columns import TypedColumns, plain_name
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state_processor.state_writing import write_columns

_KEYS: Final = b"penstock.keys"
_GROUP: Final = "key_group"


def table_of_blocks(blocks: Iterable[ColumnBlock]) -> pa.Table:
    """One table of all blocks of a state; without columns but `key_group` if there are none.

    Raises:
        ConfigurationError: Keys have several types in one column.
    """
    tables: list[pa.Table] = []
    names: tuple[str, ...] = ()
    keys: dict[str, TypedColumns] = {}
    values: dict[str, TypedColumns] = {}
    for block in blocks:
        columns: dict[str, Any] = {_GROUP: pa.array(block.key_groups.astype(np.int32))}
        names = tuple(block.keys.schema.names)
        for name, column in zip(names, block.keys.columns, strict=True):
            keys.setdefault(name, TypedColumns(name)).of(column.type)
            columns[name] = column
            if len(keys[name].all) > 1:
                found = " and ".join(str(each.kind) for each in keys[name].all)
                msg = (
                    f"the keys of state {block.table!r} have values of the types {found} in {name!r}, and a "
                    "table has one type a column; read it without columns=True"
                )
                raise ConfigurationError(msg)
        assert block.values is not None, "deleted keys are left out"
        for label, column in zip(block.values.schema.names, block.values.columns, strict=True):
            name = plain_name(label, column.type)
            typed = values.setdefault(name, TypedColumns(name))
            columns[typed.label_of(typed.of(column.type))] = column
        tables.append(pa.table(columns))
    if not tables:
        return pa.table({_GROUP: pa.array([], pa.int32())})
    whole = pa.concat_tables(tables, promote_options="permissive")
    return whole.replace_schema_metadata({_KEYS: json.dumps(names).encode()})


def parts_of_columns(
    table: pa.Table,
    keys: Sequence[str] | None,
    draft: SavepointDraft,
    codec: ValueCodec,
    files: PartFiles,
) -> dict[int, OperatorSubtaskState]:
    """Write a table as the state of a draft in columns, by subtask; blocks.

    Args:
        table: Columns of the key and of the value; `key_group` is not looked at.
        keys: Names of the key's columns; `None` where `read_state` has made the table.
        draft: The savepoint that is made.
        codec: Of the savepoint.
        files: Makes places for the files.

    Raises:
        ConfigurationError: It is not known which columns are the key's, one is missing, or a key comes twice.
        KeyTypeError: A column can't be part of a key.
        StorageError: A file could not be written.
    """
    names = _key_names(table, keys)
    extra = sum(_is_extra(name) for name in names[1:])
    if any(map(_is_extra, names[1 : len(names) - extra])):
        msg = f"the columns {names} of the key: those that begin or end with a colon stand behind all others"
        raise ConfigurationError(msg)
    columns = {name: canonical_column(_one(table[name]), name) for name in names}
    block = _block(table, columns, extra, draft)
    place = draft.place
    _refuse_doubles(block)
    owners = block.key_groups.astype(np.int64) * place.parallelism // place.max_parallelism
    return {
        index: OperatorSubtaskState(
            (
                write_columns(
                    files.of(place.operator, index), place, index, block.chosen(owners == index), codec
                ),
            )
        )
        for index in (np.unique(owners).tolist() or [0])
    }


def _key_names(table: pa.Table, keys: Sequence[str] | None) -> list[str]:
    if keys is None:
        saved = (table.schema.metadata or {}).get(_KEYS)
        if saved is None:
            msg = 'kind="columns" needs the names of the key\'s columns: write_state(..., keys=["customer"])'
            raise ConfigurationError(msg)
        keys = json.loads(saved)
    names = [keys] if isinstance(keys, str) else list(keys)
    missing = [name for name in names if name not in table.schema.names]
    if missing or not names:
        what = f"no column {missing[0]!r} of the key" if missing else "no key"
        msg = f"the table has {what}; its columns are {', '.join(map(repr, table.schema.names))}"
        raise ConfigurationError(msg)
    return names


def _block(table: pa.Table, keys: dict[str, pa.Array], extra: int, draft: SavepointDraft) -> ColumnBlock:
    """All rows, sorted by key group."""
    hashes = key_hashes(list(keys.values())[: len(keys) - extra])
    groups = (hashes % np.uint64(draft.place.max_parallelism)).astype(np.uint16)
    order = np.argsort(groups, kind="stable")
    rows = pa.array(order)
    rest = [name for name in table.schema.names if name not in keys and name != _GROUP]
    values = [_plain(_one(table[name])).take(rows) for name in rest]
    return ColumnBlock(
        draft.place.state,
        pa.RecordBatch.from_arrays([column.take(rows) for column in keys.values()], names=list(keys)),
        groups[order],
        pa.RecordBatch.from_arrays(values, names=rest),
        extra,
    )


def _refuse_doubles(block: ColumnBlock) -> None:
    slots = ColumnTable("doubles", 1, tracks_changes=False).put(
        ColumnBlock(block.table, block.keys, block.key_groups, None, block.extra)
    )
    _, first = np.unique(slots, return_index=True)
    if len(first) < len(slots):
        double = np.setdiff1d(np.arange(len(slots)), first)[0]
        (key,) = key_list(block.keys.slice(int(double), 1))
        msg = f"key {key!r:.100} comes in several rows, and a state has one row a key: aggregate them first"
        raise ConfigurationError(msg)


def _is_extra(name: str) -> bool:
    return name.startswith(":") or name.endswith(":")


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
