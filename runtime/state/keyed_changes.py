"""Changes of keyed state, merged: for each entry the newest word counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.captured_entries import CapturedEntries
from penstock.runtime.state.columns.column_blocks import ColumnBlock
from penstock.runtime.state.columns.column_changes import ColumnChanges
from penstock.runtime.state.keyed_blocks import DecodedBlock, KeyedBlock


class NestedChanges(dict[Any, Any]):
    """Merged changes of a nested table: by pair of key and second part a value or `DELETED`."""


#: Merged changes by table: by key a value or `DELETED`, or columns.
Changes: TypeAlias = dict[str, dict[Any, Any] | ColumnChanges]

#: Some changed entries of one table: rows that are encoded or not yet, or columns.
Block: TypeAlias = KeyedBlock | CapturedEntries | ColumnBlock


def encode_changes(changes: Changes, *, with_deleted: bool = True) -> list[Block]:
    """Blocks of merged changes, which are used up; they are encoded when they are packed.

    Args:
        with_deleted: Whether something older is left that a deletion would have to hide.
    """
    blocks: list[Block] = []
    for table, entries in changes.items():
        if isinstance(entries, ColumnChanges):
            blocks += entries.blocks(with_deleted=with_deleted)
        else:
            nested = isinstance(entries, NestedChanges)
            blocks.append(CapturedEntries(table, entries, nested=nested, with_deleted=with_deleted))
    return blocks


def apply_blocks(changes: Changes, blocks: Iterable[Block | DecodedBlock], codec: ValueCodec) -> None:
    """Merge blocks into changes; later ones win, deletions are remembered as `DELETED`.

    Args:
        changes: What is added to.
        blocks: In order.
        codec: Decodes values that are encoded.
    """
    for block in blocks:
        if isinstance(block, ColumnBlock):
            columns = changes.setdefault(block.table, ColumnChanges(block.table))
            assert isinstance(columns, ColumnChanges), f"table {block.table!r} holds rows and columns"
            columns.apply(block)
            continue
        table = changes.setdefault(block.table, NestedChanges() if block.nested else {})
        assert isinstance(table, dict), f"table {block.table!r} holds rows and columns"
        assert isinstance(table, NestedChanges) == block.nested, f"table {block.table!r} is flat and nested"
        if isinstance(block, CapturedEntries):
            block.put_into(table, codec)
        elif isinstance(block, DecodedBlock):
            block.put_into(table)
        else:
            block.put_into(table, codec)
