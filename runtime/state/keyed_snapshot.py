"""The asynchronous half of a snapshot of keyed state.

A `KeyedSnapshot` holds everything it needs: the captured changes and the handle of the files that it builds
on. It runs in another thread and must never touch a live table. That thread takes the interpreter's lock from
the task, too. So everything here works on blocks of some thousand entries, and none of its calls into C takes
long.

# Increments: which files a snapshot may build on, and which changes must be written again

**The rule.** The files of a checkpoint belong to that checkpoint until it is known to be complete. When it is
aborted they are deleted, whatever was built on them. A subtask does not learn in time which checkpoints
completed: notices may be late or lost. So the barrier itself carries `confirmed_id`, the newest completed
checkpoint at the moment of the trigger, and the state of a checkpoint is

    the chain of `confirmed_id`  +  one new file with every change since `confirmed_id`.

Changes that were written for younger checkpoints, complete or not, are written again. For this the changes of
all checkpoints above `confirmed_id` (*deltas*) stay in memory until a barrier confirms them.

**Why it is right.** At any moment `base + deltas, oldest first + changed keys` is the live state. It holds at
the start. Each snapshot turns the changed keys into a new delta. Confirming an id replaces the deltas up to
it by the chain that was written from exactly the base and those deltas. Deltas that pile up are merged, newer
keys winning and deletions remembered. A merged delta that straddles a confirmed id is kept: rewriting some
older keys with their newer values changes nothing. When the confirmed id is unknown here, there is no chain
to build on. Then everything is forgotten, also what could be confirmed later: an older chain does not know
which keys were deleted since. All live state counts as changed, which is slower but never wrong.

**What it must never do.** It must not name a file of a checkpoint above `confirmed_id`. It must not name an
older chain when `confirmed_id` is unknown or -1, not even the one of the restore. That chain may have been
subsumed and deleted. It must not build on a savepoint, whose files are the user's. And it must not build on a
file that was found damaged: then everything is forgotten, as with an unknown id.

The coordinator's part of the bargain: while a checkpoint is pending, the files of its `confirmed_id` are
kept, also when a younger checkpoint completes meanwhile.

# Compaction: when to merge the files of a chain, and which of them

A chain is a base and changes, oldest first. Merging everything whenever the chain is long would rewrite a
large base for a few small changes. Never merging would make restores slow and keep dead values for ever. So
this merges a *suffix* of the chain, size-tiered as in log-structured stores. Once the changes outweigh the
base, it merges all. When there are too many files, it merges from the oldest change that is no larger than
what came after it. Sizes then fall from file to file, and a byte is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    SavedState,
    SavedTime,
    StateHandle,
)
from penstock.runtime.state.keyed_blocks import PackedBlock, bytes_of
from penstock.runtime.state.keyed_chunk import (
    Block,
    Changes,
    apply_blocks,
    chunk_of,
    encode_changes,
    iter_blocks,
    pack_blocks,
)


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """Time at which a chain is merged.

    Attributes:
        growth: A chain whose changes are more than this many times its base is merged whole.
    """

    max_files: int = 8
    growth: float = 1.0


def first_to_merge(sizes: Sequence[int], policy: CompactionPolicy) -> int | None:
    """Index of the first piece to merge with all later ones; `None` when nothing need be merged.

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
        self_contained: Merge everything into a file of this snapshot's own (a savepoint).
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


_NOTHING: Final = -1
#: Finished snapshots that are remembered while none of them is confirmed.
_MAX_FINISHED: Final = 64
#: How many deltas wait in memory until they are merged.
_PENDING_POLICY: Final = CompactionPolicy(max_files=8)


class Increments:
    """The confirmed base and the unconfirmed changes of one backend.

    Attributes:
        base: The confirmed state; `None` when the deltas are the whole state.
        base_id: Its checkpoint; -1 for none.
        deltas: The changes since, oldest first.
    """

    def __init__(self, codec: ValueCodec) -> None:
        self._codec = codec
        self.clear()

    def clear(self) -> None:
        """Know nothing: all live state must be in the next delta."""
        self.base: KeyedStateHandle | None = None
        self.base_id = _NOTHING
        self.deltas: list[Delta] = []
        self._in_flight: set[int] = set()
        self._finished: dict[int, KeyedStateHandle] = {}

    def start_from(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        self.clear()
        self.base, self.base_id = handle, checkpoint_id

    def confirm(self, confirmed_id: int) -> bool:
        """Build on this checkpoint from now on.

        Returns:
            False when nothing is known of it. Everything is forgotten then, and the next delta must hold all
            live state.
        """
        handle = self._finished.get(confirmed_id)
        if handle is not None:
            self.base, self.base_id = handle, confirmed_id
            self.deltas = [delta for delta in self.deltas if delta.last_id > confirmed_id]
            self._finished = {known: h for known, h in self._finished.items() if known > confirmed_id}
            self._in_flight = {known for known in self._in_flight if known > confirmed_id}
            return True
        if self.base is None or confirmed_id == self.base_id:
            return True  # without a base the deltas are the whole state
        self.clear()
        return False

    def add(self, delta: Delta) -> None:
        """Append the newest changes; merges deltas when there are many.

        That happens only when checkpoints go unconfirmed for long, and then by size tiers: over time a change
        is merged a logarithmic number of times.
        """
        if delta.blocks:
            self.deltas.append(delta)
        if len(self.deltas) <= _PENDING_POLICY.max_files:
            return
        first = first_to_merge([known.weight for known in self.deltas], _PENDING_POLICY)
        if first is None:
            return
        changes: Changes = {}
        for known in self.deltas[first:]:
            apply_blocks(changes, known.blocks, self._codec)
        last_id = self.deltas[-1].last_id
        self.deltas[first:] = [Delta.of(last_id, encode_changes(changes))]

    def begun(self, checkpoint_id: int) -> None:
        """A snapshot that later ones may build on is being written."""
        self._in_flight.add(checkpoint_id)
        if len(self._in_flight) > _MAX_FINISHED:
            self._in_flight.remove(min(self._in_flight))

    def finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """Its files are written; ignored for a snapshot that is not (or no longer) to be built on."""
        if checkpoint_id not in self._in_flight:
            return
        self._in_flight.remove(checkpoint_id)
        self._finished[checkpoint_id] = handle
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[min(self._finished)]

    def forget(self, checkpoint_id: int) -> None:
        """The job gave this snapshot up, so no barrier will ever confirm it; its changes are kept."""
        self._in_flight.discard(checkpoint_id)
        self._finished.pop(checkpoint_id, None)
