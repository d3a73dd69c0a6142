"""`read_state` and `write_state`: state of a snapshot as an Arrow table, and a savepoint made of one.

    totals = read_state("/data/savepoint-orders-7-1", "total")
    write_state(table, "/data/start", "total", max_parallelism=128)
    env.run(restore_from="/data/start")

The DataFrame versions are in `penstock.bridge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, StorageError
from penstock.runtime.io.savepoint_draft import SavepointDraft, StateKind
from penstock.runtime.io.state_columns import parts_of_columns, table_of_blocks
from penstock.runtime.io.state_parts import (
    Conversion,
    Convert,
    PartFiles,
    StateQuery,
    rows_of,
    table_of,
)
from penstock.runtime.io.storage import absolute_location
from penstock.runtime.misspelt_names import checked_keywords
from penstock.runtime.operators.keyed_reduce import REDUCE_STATE
from penstock.runtime.snapshot.handles import OperatorSubtaskState
from penstock.runtime.state_processor.state_writing import (
    by_subtask,
    listed_by_subtask,
    write_keyed,
    write_listed,
)


class PandasFrame(Protocol):
    """A `pandas.DataFrame`, which is not needed otherwise."""

    @property
    def columns(self) -> Any:
        """Its columns."""
        ...

    @property
    def index(self) -> Any:
        """Its index."""
        ...


@checked_keywords
def read_state(
    snapshot: str | Path,
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
    """One state of one operator as a table; no job runs.

    Keyed state has the columns `key_group`, `key` and `value`, list state `subtask` and `value`. See
    `penstock.runtime.record.arrow_values` for the types.

    Args:
        snapshot: Path or URL: a savepoint, a checkpoint, or a job's folder for its newest one.
        state: `"reduce"` for that of `reduce(...)`, else the name that `value_state` was given.
        key: Makes of each key what the table is to hold.
        value: Makes of each value what the table is to hold, for example `dataclasses.asdict`.
        encoded: Leave values in the bytes of the value codec: for those that no Arrow type carries.
        columns: The state of an aggregation over columns as it is: a column for each part of the key and of
            the value, beside `key_group`. `write_state(kind="columns")` takes it back.
        classes: Classes of values that can't be found through a module that is imported here.
        allow_pickle: Unpickle values and import modules that the snapshot names: only for one you trust.

    Raises:
        RestoreError: There is no such snapshot, or it is not whole.
        ConfigurationError: It has no such operator or state; names those that it has.
        NoArrowTypeError: No Arrow type carries the keys or values; names one.
        CorruptSnapshotError: A file is damaged, or a value can't be decoded here.
    """
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    opened = StateQuery(absolute_location(snapshot), operator, state, conversion).open()
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
    target: str | Path,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    kind: StateKind = "keyed",
    base: str | Path | None = None,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    keys: Sequence[str] | None = None,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
) -> str:
    """Make a savepoint whose state is the rows of a table.

    Without `base` it holds this one state. With it, it holds everything that the base holds, and this state
    replaces the one of the same name. So several states are written one after the other.

    Args:
        table: Has the columns `key` and `value` (list state: `value`); others are not looked at.
        target: Folder of the new savepoint: a path or URL. It must hold none.
        operator: Id of the operator that is to have the state.
        state: `"reduce"` for that of `reduce(...)`, else the name that `value_state` is given.
        kind: `"keyed"`, or how a list state is redistributed. `"columns"` is for the state of an aggregation
            over columns: the table has a column for each part of key and value.
        base: A snapshot that the new one is made from; it stays as it is.
        parallelism: Over how many subtasks' files the state is split; 1, or that of the base. A job starts
            from it at any other.
        max_parallelism: Number of key groups, which the job must have too: that of the base, else 128 or
            more as in `StreamEnvironment`.
        key: Makes of each key of the table the key of the stream.
        value: Makes of each value of the table the value of the state, for example `lambda v: Account(**v)`.
        encoded: The values are bytes of the value codec, as `read_state(encoded=True)` gives them.
        keys: With `kind="columns"` the key's columns; not needed where `read_state` has made the table.
        classes: As in `read_state`.
        allow_pickle: Whether values that have no codec of their own may be pickled.

    Returns:
        The savepoint's URL, for `env.run(restore_from=...)`.

    Raises:
        ConfigurationError: A column is missing, a key comes twice, the target holds a snapshot already, or
            an argument does not fit the base.
        KeyTypeError: A key can't be one.
        CodecError: A value can't be encoded.
        StorageError: A file could not be written; nothing is left then.
    """
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    if kind == "columns":
        _refuse_conversion('kind="columns"', conversion)
    elif keys is not None:
        msg = 'keys=... goes with kind="columns" alone'
        raise ConfigurationError(msg)
    draft = SavepointDraft(target, operator, state, kind, base, parallelism, max_parallelism)
    files = draft.files()
    try:
        if kind == "columns":
            parts = parts_of_columns(_as_table(table), keys, draft, conversion.codec(), files)
        else:
            parts = parts_of_table(_as_table(table), draft, conversion, files)
        return draft.finish(parts, files)
    except BaseException:
        with suppress(StorageError):  # the first error is the one to tell
            files.remove()
        raise


def parts_of_table(
    table: pa.Table, draft: SavepointDraft, conversion: Conversion, files: PartFiles
) -> dict[int, OperatorSubtaskState]:
    """Write the rows of a table as the state of a draft, by subtask.

    Args:
        table: Has the columns `key` and `value`, or `value` alone for list state.
        draft: The savepoint that is made.
        conversion: Makes keys and values of the columns.
        files: Makes places for the files.

    Raises:
        ConfigurationError: A column is missing, or a key comes twice.
        StorageError: A file could not be written.
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
    refuse_doubles(keys)
    return {
        index: OperatorSubtaskState(
            (
                write_keyed(
                    files.of(place.operator, index),
                    place,
                    index,
                    [keys[i] for i in some],
                    [values[i] for i in some],
                    codec,
                ),
            )
        )
        for index, some in positions.items()
    }


def refuse_doubles(keys: Sequence[Any], before: AbstractSet[Any] = frozenset()) -> None:
    """See that every key comes once, and that none came before.

    Raises:
        ConfigurationError: One comes twice.
    """
    distinct = set(keys)
    if len(distinct) == len(keys) and distinct.isdisjoint(before):
        return
    seen = set(before)
    double = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    msg = f"key {double!r:.100} comes in several rows, and a state has one value a key: aggregate them first"
    raise ConfigurationError(msg)


def _refuse_conversion(what: str, conversion: Conversion) -> None:
    if conversion.encoded or conversion.key is not None or conversion.value is not None:
        msg = f"{what} takes columns as they are: leave key=, value= and encoded= out"
        raise ConfigurationError(msg)


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "columns") and hasattr(table, "index"):
        return pa.Table.from_pandas(table, preserve_index=False)
    msg = f"{type(table).__name__} is no table: give a pyarrow.Table or a pandas.DataFrame"
    raise ConfigurationError(msg)
