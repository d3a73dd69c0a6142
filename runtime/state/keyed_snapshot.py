"""The asynchronous half of a snapshot of keyed state.

A `KeyedSnapshot` holds everything it needs: the captured changes and the handle of the files that it builds
on. It runs in another thread and must never touch a live table. That thread takes the interpreter's lock from
the task, too. So everything here works on blocks of some thousand entries, and none of its calls into C takes
long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    SavedState,
    SavedTime,
    StateHandle,
)
from penstock.runtime.state.compaction import CompactionPolicy, first_to_merge
from penstock.runtime.state.keyed_changes import Block, Changes, apply_blocks, encode_changes
from penstock.runtime.state.keyed_chunk import chunk_of, iter_blocks, pack_blocks
from penstock.runtime.state.packed_blocks import PackedBlock, bytes_of


class StateFileReader(Protocol):
    """Reads what was written for keyed state; blocks."""

    def read(self, handle: StateHandle) -> bytes:
        """The bytes behind a handle.

        Raises:
            CorruptSnapshotError: The file is damaged.
            StorageError: It could not be read.
        """
        ...


class StateFileWriter(StateFileReader, Protocol):
    """Writes keyed state for one checkpoint; blocks."""

    def write(self, data: bytes) -> StateHandle:
        """Keep `data` in a new file, or inline when it is small.

        Raises:
            StorageError: It could not be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes between two snapshots, encoded or captured.

    Attributes:
        last_id: The checkpoint that it ends with.
        blocks: The changes in order.
    """

    last_id: int
    blocks: tuple[Block, ...]

    @property
    def weight(self) -> int:
        """About how many bytes they are."""
        return sum(block.weight for block in self.blocks)

    @staticmethod
    def of(last_id: int, blocks: Iterable[Block]) -> Delta:
        """A delta of these blocks.

        Example:
            >>> from penstock.runtime.state.keyed_blocks import KeyedBlock
            >>> Delta.of(3, [KeyedBlock("counts", ["a"], None)]).weight
            16
        """
        return Delta(last_id, tuple(blocks))


@dataclass(frozen=True, slots=True)
class KeyedSnapshot:
    """Keyed state of one operator in one subtask after the synchronous half.

    Attributes:
        key_groups: The range that the subtask owns.
        base: The completed state that the changes build on; `None` for nothing.
        deltas: The changes since the base, oldest first.
        codec: The task's codec; `finish` uses one of its own with the same settings.
        policy: When files are merged.
        self_contained: Merge everything into a file of this snapshot's own (a savepoint).
        types: Declared types of the tables' values, by table.
        states: Kinds of the states that functions have used.
        time: What time it is for state with a TTL.
    """

    checkpoint_id: int
    key_groups: KeyGroupRange
    max_parallelism: int
    base: KeyedStateHandle | None
    deltas: tuple[Delta, ...]
    codec: ValueCodec
    policy: CompactionPolicy
    self_contained: bool = False
    types: tuple[tuple[str, str], ...] = ()
    states: tuple[SavedState, ...] = ()
    time: SavedTime | None = None

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        """Write the changes as at most one new file, merged with older files when it is time; blocks.

        Returns:
            The state of this checkpoint: files of the base, then the new one.

        Raises:
            StorageError: A file could not be written or read.
            CorruptSnapshotError: A file to be merged is damaged.
            KeyGroupError: A table has a key that is not the subtask's own.
            CodecError: A value can't be encoded; names table and key.
        """
        with self.codec.for_another_thread() as codec:
            return self._finish(files, codec)

    def _finish(self, files: StateFileWriter, codec: ValueCodec) -> KeyedStateHandle:
        chain = () if self.base is None else self.base.files
        entries = 0 if self.base is None else self.base.entries
        blocks = [block for delta in self.deltas for block in delta.blocks]
        packed = self._packed(blocks, codec)
        keep = self._files_to_keep(chain, packed)
        if keep < len(chain):
            blocks, merged = self._merge(chain[keep:], blocks, files, codec, has_older=keep > 0)
            entries -= merged
            packed = self._packed(blocks, codec)
        if not packed:
            return self._handle(chain[:keep], entries)
        entries += sum(block[1] for block in packed)
        return self._handle((*chain[:keep], files.write(chunk_of(packed, self.max_parallelism))), entries)

    def _handle(self, files: tuple[StateHandle, ...], entries: int) -> KeyedStateHandle:
        return KeyedStateHandle(self.key_groups, files, entries, self.types, self.states, time=self.time)

    def _packed(self, blocks: list[Block], codec: ValueCodec) -> list[PackedBlock]:
        return pack_blocks(blocks, self.max_parallelism, self.key_groups, codec)

    def _files_to_keep(self, chain: tuple[StateHandle, ...], packed: list[PackedBlock]) -> int:
        """Compares bytes with bytes: what captured entries weigh is a guess until they are packed."""
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
        """The blocks of these files and the new ones as one, and how many keys the files held."""
        changes: Changes = {}
        read = 0
        for handle in chain:
            for block in iter_blocks(files.read(handle), handle, self.max_parallelism, codec):
                read += len(block)
                apply_blocks(changes, (block,), codec)
        apply_blocks(changes, blocks, codec)
        return encode_changes(changes, with_deleted=has_older), read
