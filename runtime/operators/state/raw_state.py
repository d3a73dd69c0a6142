"""State that an operator encodes itself (Flink's raw operator state and raw keyed state).

Managed state knows its values, so it is written by changes, inspected and shared out value by value. Raw
state is bytes: the runtime keeps them, redistributes them at another parallelism, and does not look inside.
It is for an operator whose state is in somebody else's format, such as an index or a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgpack

from penstock.runtime.errors import CorruptSnapshotError, PenstockError
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange
from penstock.runtime.snapshot.state_files import StateFiles


@dataclass(frozen=True, slots=True)
class RawState:
    """Bytes that an operator puts into a snapshot, and gets back.

    Attributes:
        operator: Pieces of raw operator state; each goes to exactly one subtask on restore.
        keyed: Raw keyed state by key group; each goes to the subtask that owns the group.

    Example:
        >>> bool(RawState()), bool(RawState(keyed={3: b"index"}))
        (False, True)
    """

    operator: Sequence[bytes] = ()
    keyed: Mapping[int, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.operator or self.keyed)


class RestoredRawState:
    """Raw state that a subtask got from a snapshot, until its operator has read it.

    Args:
        raw: What it got.

    Attributes:
        was_read: Whether the operator has taken it over: from then on it gives it to snapshots itself.
    """

    __slots__ = ("_raw", "was_read")

    def __init__(self, raw: RawState | None = None) -> None:
        self._raw = RawState() if raw is None else raw
        self.was_read = False

    def read(self) -> RawState:
        """Hand it over to the operator."""
        self.was_read = True
        return self._raw

    def with_unread(self, given: RawState) -> RawState:
        """What an operator gives to a snapshot, and in front of it what it has not read.

        Raises:
            PenstockError: Both have state of a key group, and one would replace the other.
        """
        if self.was_read or not self._raw:
            return given
        both = sorted(set(self._raw.keyed).intersection(given.keyed))
        if both:
            msg = (
                f"snapshot_raw gives raw keyed state of key group {both[0]}, but the operator never read "
                "what was restored of it, which would be lost: read context.raw in open"
            )
            raise PenstockError(msg)
        return RawState((*self._raw.operator, *given.operator), {**self._raw.keyed, **given.keyed})


def write_raw_keyed(keyed: Mapping[int, bytes], files: StateFiles) -> tuple[KeyedStateHandle, ...]:
    """Write raw keyed state; blocks.

    Raises:
        StorageError: It could not be written.
    """
    if not keyed:
        return ()
    groups = KeyGroupRange(min(keyed), max(keyed))
    data: bytes = msgpack.packb([[group, keyed[group]] for group in sorted(keyed)])
    return (KeyedStateHandle(groups, (files.write(data),), len(keyed)),)


def read_raw_keyed(
    handles: Iterable[KeyedStateHandle], key_groups: KeyGroupRange, files: StateFiles
) -> dict[int, bytes]:
    """The raw keyed state of a range of key groups; blocks.

    Raises:
        CorruptSnapshotError: A file is damaged.
        StorageError: A file could not be read.
    """
    found: dict[int, bytes] = {}
    for handle in handles:
        for file in handle.files:
            try:
                pairs = msgpack.unpackb(files.read(file))
                found.update((group, data) for group, data in pairs if group in key_groups)
            except (TypeError, ValueError) as error:
                msg = f"the raw keyed state in {file} is damaged: {error}"
                raise CorruptSnapshotError(msg) from error
    return found
