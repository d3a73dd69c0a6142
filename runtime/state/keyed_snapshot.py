"""The heap's incremental snapshots: dirty entries become blocks in a file, which builds on older files.

A snapshot of a million changed keys must not stop the task. A snapshot of few changes must not cost as much
as the whole state.

**Write** (`dirty_entries.py`). Looking up a million values takes 200 ms, encoding them a second. So a write
collects a reference to its value. A snapshot takes the whole collection and leaves an empty one. It copies
nothing: the taken collection keeps the old value when an entry is overwritten. Views copy the mutable values
that they take and return, and the accumulators that a snapshot may hold. So no code changes these either
(`immutable_values.py`). `reduce`, `aggregate` and windows copy in the same way. Other operators may change a
value in place, so the synchronous part encodes their mutable values. Changes are forgotten only after all of
them are encoded.

**Capture** (`captured_rows.py`). A block has some entries of one table. An entry of a nested table is a pair:
the key and a second part (`state_table.py`). Merging treats a pair as a key. So only the changed entries of a
map are written, and a deletion hides only its own entry.

**Encode** (`keyed_chunk.py`). Another thread encodes the blocks (`KeyedSnapshot.finish`), and must never
touch a live table. It takes the interpreter's lock from the task, so a block of rows has at most 16,384
entries. The blocks of a checkpoint are one file.

**Build on older files** (`Increments`). Files of a checkpoint are safe only once the checkpoint is known to
be complete. Files of an aborted checkpoint are deleted, even if another snapshot built on them. A subtask
does not learn in time which checkpoints completed: notices may be late or lost. So the barrier itself carries
`confirmed_id`, the newest completed checkpoint at the time of the trigger. The state of a checkpoint is

    the chain of files of `confirmed_id`  +  one new file with every change since `confirmed_id`.

So changes that were written for newer checkpoints are written again. They stay in memory as *deltas* until
a barrier confirms them.

Why it is correct: at any moment `base + deltas, oldest first + dirty entries` is the live state. This holds
at the start. Each snapshot turns the dirty entries into a new delta. Confirming an id replaces the deltas up
to it with the chain that was written from exactly the base and those deltas. Many deltas are merged: newer
values win, deletions stay. A merged delta that straddles a confirmed id is kept: writing newer values of
older keys again changes nothing. When the confirmed id is unknown here, there is no chain to build on. If
there never was a base, the deltas are the whole state and stay. Otherwise all deltas are forgotten, even
those that might be confirmed later, because an older chain lacks later deletions. All live state then counts
as dirty, which is slower but never wrong.

A snapshot must never refer to

* a file of a checkpoint above `confirmed_id`;
* an older chain when `confirmed_id` is unknown or -1, not even the chain of the restore: it may be deleted;
* a file of a savepoint: it belongs to the user;
* a damaged file: all deltas are forgotten then, too.

The coordinator keeps the files of `confirmed_id` while a checkpoint that was triggered with it is pending.

**Compact** (`first_to_merge`). A chain is a base and changes, oldest first. Merging everything would rewrite
a large base for a few changes. Never merging would make restores slow and keep dead values for ever. So a
*suffix* of the chain is merged, size-tiered as in log-structured stores. The whole chain is merged once the
changes outweigh the base. If there are too many files, the merge begins at the oldest change that is no
larger than all later changes together. So sizes fall from file to file, and a byte is rewritten O(log n)
times.

**Restore** (`KeyedStateBackend.restore`). The files of a chain are applied in order, each entry to its table.
While a file is decoded, the next one is read (`read_in_turn`). No part of a file is decoded before its
checksum is verified: a damaged pickle may do anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    StateHandle,
)
from penstock.runtime.state.captured_rows import Block, CapturedRows, pack_blocks
from penstock.runtime.state.column_table import ColumnChanges
from penstock.runtime.state.keyed_chunk import (
    ColumnBlock,
    PackedBlock,
    RowBlock,
    bytes_of,
    chunk_of,
    read_chunk,
)


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """Limits that decide when a chain is merged.

    Attributes:
        growth: Maximum size of the changes relative to the base; beyond it the whole chain is merged.
    """

    max_files: int = 8
    growth: float = 1.0


def first_to_merge(sizes: Sequence[int], policy: CompactionPolicy) -> int | None:
    """Index of the first piece to merge with all later pieces; `None` for no merge.

    Args:
        sizes: Bytes of each piece, oldest first, the new one last.

    Example:
        >>> first_to_merge([1000, 10, 10], CompactionPolicy(max_files=3)) is None
        True
        >>> first_to_merge([1000, 10, 10, 10], CompactionPolicy(max_files=3))
        1
        >>> first_to_merge([20, 10, 10, 10], CompactionPolicy(max_files=8))
        0
    """
    if len(sizes) < 2:
        return None
    after = sum(sizes) - sizes[0]
    if after > policy.growth * sizes[0]:
        return 0
    if len(sizes) <= policy.max_files:
        return None
    for index in range(1, len(sizes) - 1):
        after -= sizes[index]
        if sizes[index] <= after:
            return index
    return len(sizes) - 2


class StateFileReader(Protocol):
    def read(self, handle: StateHandle) -> bytes: ...


@runtime_checkable
class StartsReading(StateFileReader, Protocol):
    """Reads a file while its caller works."""

    def start_read(self, handle: StateHandle) -> Callable[[], bytes]:
        """Start to read a file; the returned function waits for its bytes."""
        ...


def read_in_turn(
    handles: Sequence[StateHandle], files: StateFileReader
) -> Iterator[tuple[StateHandle, bytes]]:
    """Read files in order; while the caller decodes a file, the next one is read."""
    started = (_start_read(files, handle) for handle in handles)
    current = next(started, None)
    for handle in handles:
        following = next(started, None)
        assert current is not None, "as many files are started as there are handles"
        yield handle, current()
        current = following


def _start_read(files: StateFileReader, handle: StateHandle) -> Callable[[], bytes]:
    return files.start_read(handle) if isinstance(files, StartsReading) else partial(files.read, handle)


class StateFileWriter(StateFileReader, Protocol):
    def write(self, data: bytes) -> StateHandle:
        """Keep `data` in a new file, or inline when it is small."""
        ...


class MergedChanges:
    """Merges blocks: the last value of each entry counts, and deletions are kept."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bool], dict[Any, Any]] = {}
        self._columns: dict[str, ColumnChanges] = {}

    def apply(self, block: Block | RowBlock, codec: ValueCodec) -> None:
        if isinstance(block, ColumnBlock):
            self._columns.setdefault(block.table, ColumnChanges(block.table)).apply(block)
            return
        rows = self._rows.setdefault((block.table, block.nested), {})
        if isinstance(block, CapturedRows):
            block.put_into(rows, codec)
        else:
            block.put_into(rows)

    def blocks(self, *, with_deleted: bool = True) -> list[Block]:
        """Return all changes, not encoded yet; call this once."""
        blocks: list[Block] = [
            CapturedRows(table, rows, nested=nested, with_deleted=with_deleted)
            for (table, nested), rows in self._rows.items()
        ]
        for columns in self._columns.values():
            blocks += columns.blocks(with_deleted=with_deleted)
        return blocks


@dataclass(frozen=True, slots=True)
class Delta:
    last_id: int
    blocks: tuple[Block, ...]

    @property
    def weight(self) -> int:
        return sum(block.weight for block in self.blocks)


@dataclass(frozen=True, slots=True)
class KeyedSnapshot:
    """Keyed state of one operator in one subtask after the synchronous part.

    Attributes:
        described: The handle, still without files and entries.
        base: Completed state that the changes build on; `None` for none.
        codec: Codec of the task; `finish` uses one of its own with the same settings.
        self_contained: Whether all state is merged into one file of this snapshot, as for a savepoint.
    """

    described: KeyedStateHandle
    max_parallelism: int
    base: KeyedStateHandle | None
    deltas: tuple[Delta, ...]
    codec: ValueCodec
    policy: CompactionPolicy
    self_contained: bool = False

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        """Write the changes to at most one new file, merged with older files by the policy.

        The call waits for the storage.
        """
        chain = () if self.base is None else self.base.files
        entries = 0 if self.base is None else self.base.entries
        blocks = [block for delta in self.deltas for block in delta.blocks]
        with self.codec.for_another_thread() as codec:
            packed = self._packed(blocks, codec)
            keep = self._files_to_keep(chain, packed)
            if keep < len(chain):
                blocks, merged = self._merge(chain[keep:], blocks, files, codec, has_older=keep > 0)
                entries -= merged
                packed = self._packed(blocks, codec)
            kept = chain[:keep]
            if packed:
                entries += sum(block[1] for block in packed)
                kept = (*kept, files.write(chunk_of(packed, self.max_parallelism)))
        return replace(self.described, files=kept, entries=entries)

    def _packed(self, blocks: list[Block], codec: ValueCodec) -> list[PackedBlock]:
        return pack_blocks(blocks, self.max_parallelism, self.described.key_groups, codec)

    def _files_to_keep(self, chain: tuple[StateHandle, ...], packed: list[PackedBlock]) -> int:
        """Choose by packed sizes, because sizes before packing are estimates."""
        if self.self_contained:
            return 0
        if not packed:
            return len(chain)
        sizes = [handle.size for handle in chain]
        first = first_to_merge([*sizes, sum(map(bytes_of, packed))], self.policy)
        return len(chain) if first is None else first

    def _merge(
        self,
        chain: tuple[StateHandle, ...],
        blocks: list[Block],
        files: StateFileReader,
        codec: ValueCodec,
        has_older: bool,
    ) -> tuple[list[Block], int]:
        """Merge file blocks with new blocks; return the result and the number of entries in the files."""
        changes, read = MergedChanges(), 0
        for handle in chain:
            for block in read_chunk(files.read(handle), handle, self.max_parallelism, codec):
                read += len(block)
                changes.apply(block, codec)
        for taken in blocks:
            changes.apply(taken, codec)
        return changes.blocks(with_deleted=has_older), read


_NOTHING: Final = -1
#: Maximum number of finished snapshots that wait for confirmation.
_MAX_FINISHED: Final = 64
#: Maximum number of deltas in memory; more are merged.
_PENDING_POLICY: Final = CompactionPolicy(max_files=8)


class ConfirmableSnapshots:
    """Snapshots of one backend on which later snapshots may build once a barrier confirms them."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all snapshots: the next snapshot holds all state."""
        self.base: KeyedStateHandle | None = None
        self.base_id = _NOTHING
        self._in_flight: set[int] = set()
        self._finished: dict[int, KeyedStateHandle] = {}

    def start_from(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        self.clear()
        self.base, self.base_id = handle, checkpoint_id

    def confirm(self, confirmed_id: int) -> bool:
        """Build on this checkpoint and forget older ones; return whether it is known."""
        handle = self._finished.get(confirmed_id)
        if handle is not None:
            self.base, self.base_id = handle, confirmed_id
            self._finished = {known: h for known, h in self._finished.items() if known > confirmed_id}
            self._in_flight = {known for known in self._in_flight if known > confirmed_id}
        return confirmed_id == self.base_id

    def begun(self, checkpoint_id: int) -> None:
        """Note that a snapshot is being written on which later snapshots may build."""
        self._in_flight.add(checkpoint_id)
        if len(self._in_flight) > _MAX_FINISHED:
            self._in_flight.remove(min(self._in_flight))

    def finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """Note the files of a snapshot; ignored if no later snapshot may build on it."""
        if checkpoint_id not in self._in_flight:
            return
        self._in_flight.remove(checkpoint_id)
        self._finished[checkpoint_id] = handle
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[min(self._finished)]

    def forget(self, checkpoint_id: int) -> None:
        """Forget an aborted snapshot, which no barrier will confirm; its changes are kept."""
        self._in_flight.discard(checkpoint_id)
        self._finished.pop(checkpoint_id, None)


class Increments(ConfirmableSnapshots):
    """`ConfirmableSnapshots` with the changes since the base."""

    def __init__(self, codec: ValueCodec) -> None:
        self._codec = codec
        super().__init__()

    def clear(self) -> None:
        """Forget all snapshots and changes: the next delta must hold all live state."""
        super().clear()
        self.deltas: list[Delta] = []

    def confirm(self, confirmed_id: int) -> bool:
        """Build on this checkpoint and keep only newer deltas.

        Returns `False` if the checkpoint is unknown and there was a base. Then the base and all deltas are
        forgotten, and the next delta must hold all live state.
        """
        if super().confirm(confirmed_id):
            self.deltas = [delta for delta in self.deltas if delta.last_id > confirmed_id]
        elif self.base is not None:
            self.clear()
            return False
        return True

    def add(self, delta: Delta) -> None:
        """Append the newest changes; merges deltas, size-tiered, after many unconfirmed checkpoints."""
        if delta.blocks:
            self.deltas.append(delta)
        if len(self.deltas) <= _PENDING_POLICY.max_files:
            return
        first = first_to_merge([known.weight for known in self.deltas], _PENDING_POLICY)
        if first is None:
            return
        changes = MergedChanges()
        for known in self.deltas[first:]:
            for block in known.blocks:
                changes.apply(block, self._codec)
        self.deltas[first:] = [Delta(self.deltas[-1].last_id, tuple(changes.blocks()))]
