"""Which files a snapshot may build on, and which changes must be written again.

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
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state.compaction import CompactionPolicy, first_to_merge
from penstock.runtime.state.keyed_changes import Changes, apply_blocks, encode_changes
from penstock.runtime.state.keyed_snapshot import Delta

_NOTHING: Final = -1
#: Finished snapshots that are remembered while none of them is confirmed.
_MAX_FINISHED: Final = 64
#: How many deltas wait in memory until they are merged.
_PENDING_POLICY: Final = CompactionPolicy(max_files=8)


class Increments:
    """The confirmed base and the unconfirmed changes of one backend.

    Args:
        codec: Decodes and encodes where deltas are merged.

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
        """Begin with the state of a completed checkpoint whose files may be shared."""
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
