"""`read_state` and `write_state`: a snapshot's state as an Arrow table, and savepoints made from tables.

    totals = read_state("/data/savepoint-orders-7-1", "total")
    write_state(table, "/data/start", "total", max_parallelism=128)
    env.run(restore_from="/data/start")

The versions for Spark DataFrames are in `bridge/state.py`.

**Columns** (`read_state(columns=True)`, `write_state(kind="columns")`): the table has a column for each part
of the key and of the value, and `key_group`. Its metadata names the key columns, so a table that was read
and changed can be written directly. Names of parts that do not decide the key group, such as the start of a
window, begin or end with a colon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.runtime.config.checks import Location
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.state_parts import (
    MAP_KEY,
    POSITION,
    Conversion,
    Convert,
    PartFiles,
    SavepointDraft,
    StateKind,
    StateQuery,
    rows_of,
    stamps_of,
    table_of,
)
from penstock.runtime.io.storage import absolute_location
from penstock.runtime.names import checked_keywords
from penstock.runtime.operators.functions.keyed_folds import REDUCE_STATE
from penstock.runtime.record.arrow_values import from_arrow
from penstock.runtime.record.column_key import canonical_column, one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import OperatorSubtaskState, SavedState
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.keyed_chunk import ColumnBlock, key_list
from penstock.runtime.state.stable_hash import stable_hash
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import TypedColumns, plain_name
from penstock.runtime.state_processor.states import (
    by_subtask,
    listed_by_subtask,
    write_block,
    write_keyed,
    write_listed,
)

_KEYS: Final = b"penstock.keys"

_GROUP: Final = "key_group"


def table_of_blocks(blocks: Iterable[ColumnBlock]) -> pa.Table:
    """Return a table of all blocks of a state; without blocks its only column is `key_group`."""
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
                found = " and ".join(str(column.kind) for column in keys[name].all)
                msg = (
                    f"the keys of state {block.table!r} have values of the types {found} in {name!r}, but a "
                    "column of a table has one type; read the state without columns=True"
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
    """Write a table as the columnar state of a draft; return the state of each subtask.

    The call blocks, because it writes files.
    """
    names = _key_names(table, keys)
    extra = sum(_is_extra(name) for name in names[1:])
    if any(map(_is_extra, names[1 : len(names) - extra])):
        msg = (
            f"the key's columns are {names}: put columns whose names begin or end with a colon after all "
            "others"
        )
        raise ConfigurationError(msg)
    columns = {name: canonical_column(_one(table[name]), name) for name in names}
    block = _block(table, columns, extra, draft)
    place = draft.place
    _refuse_repeated_keys(block)
    owners = block.key_groups.astype(np.int64) * place.parallelism // place.max_parallelism
    return {
        index: OperatorSubtaskState(
            (
                write_block(
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
        what = f"no key column {missing[0]!r}" if missing else "no key column"
        msg = f"the table has {what}; its columns are {', '.join(map(repr, table.schema.names))}"
        raise ConfigurationError(msg)
    return names


def _block(table: pa.Table, keys: dict[str, pa.Array], extra: int, draft: SavepointDraft) -> ColumnBlock:
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


def _refuse_repeated_keys(block: ColumnBlock) -> None:
    slots = ColumnTable("doubles", 1, tracks_changes=False).put(
        ColumnBlock(block.table, block.keys, block.key_groups, None, block.extra)
    )
    _, first = np.unique(slots, return_index=True)
    if len(first) < len(slots):
        double = np.setdiff1d(np.arange(len(slots)), first)[0]
        (key,) = key_list(block.keys.slice(int(double), 1))
        msg = (
            f"key {key!r:.100} is in several rows, but a state has one row per key: aggregate the rows first"
        )
        raise ConfigurationError(msg)


def _is_extra(name: str) -> bool:
    return name.startswith(":") or name.endswith(":")


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


class PandasFrame(Protocol):
    """Protocol of a `pandas.DataFrame`, so that pandas need not be installed."""

    @property
    def columns(self) -> Any: ...

    @property
    def index(self) -> Any: ...


@checked_keywords
def read_state(
    snapshot: Location,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    columns: bool = False,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
) -> pa.Table:
    """Return one state of one operator as a table; no job runs.

    Keyed state has the columns `key_group`, `key` and `value`. A `MapState` has a row per entry, with
    `map_key`. A `ListState` has a row per element, with `position`. State with a TTL also has `last_used`.
    List state of an operator has `subtask` and `value`. The types are in
    `penstock.runtime.record.arrow_values`.

    Args:
        snapshot: Path or URL of a savepoint, a checkpoint, or a job's folder for its newest snapshot.
        state: Name of the state, such as the name given to `value_state`. The state of `reduce(...)` has the
            name `"reduce"`.
        key: Converts each key for the table.
        value: Converts each value for the table, for example `dataclasses.asdict`.
        encoded: Keep values as bytes of the value codec, for values without an Arrow type.
        columns: Return the state of an aggregation over columns unchanged: a column for each part of the key
            and of the value, and `key_group`. `write_state(kind="columns")` accepts that table.
        classes: Classes of values that are not found in an imported module.
        allow_pickle: Unpickle values and import modules that the snapshot names; only for trusted snapshots.

    Raises:
        RestoreError: The snapshot does not exist or is incomplete.
        ConfigurationError: The snapshot lacks this operator or state; the message names the existing ones.
        NoArrowTypeError: No Arrow type fits the keys or values; the message shows such a value.
        CorruptSnapshotError: A file is damaged, or a value can't be decoded here.
    """
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    opened = StateQuery(absolute_location("snapshot", snapshot), operator, state, conversion).open()
    if columns:
        _refuse_conversion("columns=True", conversion)
        blocks = opened.blocks()
        if blocks is None:
            opened.check()
        return table_of_blocks(blocks or ())
    found = opened.columns(opened.whole())
    if found is None:
        opened.check()
        found = {"key_group": [], "key": [], "value": []}
    return table_of(found)


@checked_keywords
def write_state(
    table: pa.Table | pa.RecordBatch | PandasFrame,
    savepoint: Location,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    kind: StateKind = "keyed",
    base: Location | None = None,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    keys: Sequence[str] | None = None,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
) -> str:
    """Make a savepoint from the rows of a table.

    Without `base` the savepoint holds only this state. With a base, it also holds all state of the base. This
    state replaces a state of the base with the same name. To write several states, call this several times.

    Args:
        table: A table with the columns that `kind` requires; list state of an operator has only `value`.
        savepoint: Path or URL of the new savepoint's folder, which must not hold a snapshot yet.
        operator: Id of the operator that gets the state.
        state: Name of the state, as for `read_state`.
        kind: `"keyed"` for a `key` and its `value`. `"map"` for a `MapState`: a row for each entry, with
            `map_key`. `"list"` for a `ListState`: a row for each element, in the order of `position`, or of
            the rows. `"split_distribute"`, `"union"` or `"broadcast"` for a list state of an operator.
            `"columns"` for an aggregation over columns: a column for each part of key and value. State with a
            TTL has the column `last_used`.
        base: A snapshot to extend; it stays unchanged.
        parallelism: Number of subtasks whose files hold the state; by default that of the operator in the
            base, else 1. A job may start from the savepoint at any parallelism.
        max_parallelism: Number of key groups; the job must have the same number. By default that of the
            operator in the base, else 128 or more as in `StreamEnvironment`.
        key: Converts each key of the table to the stream's key.
        value: Converts each value of the table to the state's value, for example `lambda v: Account(**v)`.
        encoded: Whether values are bytes of the value codec, as from `read_state(encoded=True)`.
        keys: With `kind="columns"` the key columns; not needed for a table made by `read_state`.
        classes: See `read_state`.
        allow_pickle: Whether values without a codec may be pickled.

    Returns:
        The savepoint's absolute path or URL, for `env.run(restore_from=...)`.

    Raises:
        ConfigurationError: A column is missing, a key is repeated, the folder holds a snapshot already, or an
            argument does not fit the base.
        KeyTypeError: A value can't be a key.
        CodecError: A value can't be encoded.
        StorageError: A file could not be written; the files written so far are deleted.
    """
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    if kind == "columns":
        _refuse_conversion('kind="columns"', conversion)
    elif keys is not None:
        msg = 'keys=... needs kind="columns"'
        raise ConfigurationError(msg)
    draft = SavepointDraft(savepoint, operator, state, kind, base, parallelism, max_parallelism)
    codec, rows = conversion.codec(), _as_table(table)
    if kind == "columns":
        return draft.write(lambda files: parts_of_columns(rows, keys, draft, codec, files))
    return draft.write(lambda files: parts_of_table(rows, draft, conversion, files))


def parts_of_table(
    table: pa.Table, draft: SavepointDraft, conversion: Conversion, files: PartFiles
) -> dict[int, OperatorSubtaskState]:
    """Write the rows of a table as the state of a draft; return the state of each subtask.

    The call blocks, because it writes files.
    """
    codec, place = conversion.codec(), draft.place
    keys, columns = rows_of(table, keyed=draft.mode is None)
    values = conversion.decode(columns, codec)
    if draft.mode is not None:
        lists = listed_by_subtask(values, draft.mode, place.parallelism)
        return {
            index: OperatorSubtaskState(
                operator=(
                    write_listed(files.of(place.operator, index), place.state, draft.mode, some, codec),
                )
            )
            for index, some in enumerate(lists)
        }
    keys = list(conversion.keys(keys))
    positions = by_subtask(keys, place) or {0: []}
    entries, rank = _entries(table, draft.kind, keys)
    refuse_repeated_keys(entries)
    stamps = stamps_of(table)
    if stamps is not None:
        values = list(zip(stamps, values, strict=True))
    saved = None
    if draft.kind != "keyed" or stamps is not None:
        kind = draft.kind if draft.kind in ("list", "map") else ""
        saved = SavedState(place.state, kind, has_stamps=stamps is not None)
    parts = {}
    for index, some in positions.items():
        rows = some if rank is None else sorted(some, key=rank.__getitem__)
        written, held = [entries[i] for i in rows], [values[i] for i in rows]
        place_of_files = files.of(place.operator, index)
        parts[index] = OperatorSubtaskState(
            (write_keyed(place_of_files, place, index, written, held, codec, saved),)
        )
    return parts


def _entries(table: pa.Table, kind: StateKind, keys: list[Any]) -> tuple[list[Any], dict[int, int] | None]:
    """Return the entry of each row, and each row's rank in the written order.

    That order keeps the rows of one key together. Without ranks (`None`), the rows keep the table's order.
    """
    if kind not in ("list", "map"):
        return keys, None
    if kind == "map" and MAP_KEY not in table.schema.names:
        msg = f"the table has no column {MAP_KEY!r}, only {table.schema.names}: each row is an entry of a map"
        raise ConfigurationError(msg)
    rows_of_key: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of_key.setdefault(key, []).append(row)
    if kind == "map":
        map_keys = one_nan(from_arrow(table[MAP_KEY]))
        entries = list(zip(keys, map_keys, strict=True))
        for map_key in map_keys:
            stable_hash(map_key)
    else:
        if POSITION in table.schema.names:
            place = table[POSITION].to_pylist()
            rows_of_key = {key: sorted(rows, key=place.__getitem__) for key, rows in rows_of_key.items()}
        numbers = {row: number for rows in rows_of_key.values() for number, row in enumerate(rows)}
        entries = [(key, numbers[row]) for row, key in enumerate(keys)]
    order = (row for rows in rows_of_key.values() for row in rows)
    return entries, {row: rank for rank, row in enumerate(order)}


def refuse_repeated_keys(keys: Sequence[Any], before: AbstractSet[Any] = frozenset()) -> None:
    """Refuse repeated keys, and keys of earlier calls."""
    distinct = set(keys)
    if len(distinct) == len(keys) and distinct.isdisjoint(before):
        return
    seen = set(before)
    double = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    msg = (
        f"key {double!r:.100} is in several rows, but a state has one value per key: aggregate the rows first"
    )
    raise ConfigurationError(msg)


def _refuse_conversion(what: str, conversion: Conversion) -> None:
    if conversion.encoded or conversion.key is not None or conversion.value is not None:
        msg = f"{what} takes columns unchanged: omit key=, value= and encoded="
        raise ConfigurationError(msg)


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "columns") and hasattr(table, "index"):
        return pa.Table.from_pandas(table, preserve_index=False)
    msg = f"{type(table).__name__} is not a table: give a pyarrow.Table or a pandas.DataFrame"
    raise ConfigurationError(msg)
