"""Handles of state, by operator and subtask, as in Flink's `OperatorSubtaskState`.

A handle is small and is stored in the checkpoint's metadata. The bytes of the state are in a file of the
checkpoint storage, or in the handle itself if they are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias

from penstock.runtime.snapshot.ids import EdgeId

#: Maximum bytes of a state that is stored in the metadata instead of in a file.
INLINE_LIMIT: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class FileHandle:
    """A file of the checkpoint storage.

    Attributes:
        path: Path from the storage's root, from `SnapshotPaths`.
        size: Size in bytes.
        checksum: xxh3-128 of the content, hexadecimal.
    """

    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class InlineHandle:
    """State in the metadata itself."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


StateHandle: TypeAlias = FileHandle | InlineHandle


def place_of(handle: StateHandle) -> str:
    """Name the place of a state for an error message."""
    return handle.path if isinstance(handle, FileHandle) else "the checkpoint's metadata"


@dataclass(frozen=True, slots=True, order=True)
class KeyGroupRange:
    """A contiguous range of key groups, both ends included; empty when `last < first`.

    Example:
        >>> KeyGroupRange(0, 63).intersection(KeyGroupRange(32, 127))
        KeyGroupRange(first=32, last=63)
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first < 0:
            msg = f"key groups are numbered from 0; a range can't begin at {self.first}"
            raise ValueError(msg)

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)

    def __contains__(self, key_group: int) -> bool:
        return self.first <= key_group <= self.last

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        return KeyGroupRange(max(self.first, other.first), min(self.last, other.last))


@dataclass(frozen=True, slots=True)
class SavedState:
    """A named state in a snapshot.

    Attributes:
        kind: `value`, `list`, `map`, `reducing` or `aggregating`; empty for an unknown kind with one value
            per key.
        is_declared: Whether the function's class declared the state; else it was requested at run time.
        has_stamps: Whether the state has a TTL: each entry is a pair of the time of its last use and its
            value.
        time: `processing` or `event`, the kind of time of the stamps; empty if it is unknown.
    """

    name: str
    kind: str
    is_declared: bool = False
    has_stamps: bool = False
    time: str = ""


@dataclass(frozen=True, slots=True)
class SavedTime:
    """The time when state with a TTL was saved, in microseconds.

    Attributes:
        event: The watermark; `None` before the first one.
        expired: Latest stamp of expired entries, by table. Only RocksDB's files may still hold such entries.
    """

    event: int | None
    processing: int
    expired: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KeyedStateHandle:
    """The keyed state of one operator in one subtask: a base and later changes, in order.

    Later files overwrite earlier ones key by key. A checkpoint adds a file of changes, and refers to
    the older files until they are compacted.

    Attributes:
        files: Base first, newest changes last.
        types: Names of states with a declared type, each with the type's name.
        states: The states that functions have used; states of Penstock's own operators are left out.
        names: Names of the files in RocksDB's folder; empty for files in the format of all backends. RocksDB
            opens its own files together, and estimates `entries`.
        time: Time of the snapshot; `None` when no state has a TTL.
    """

    key_groups: KeyGroupRange
    files: tuple[StateHandle, ...]
    entries: int = 0
    types: tuple[tuple[str, str], ...] = ()
    states: tuple[SavedState, ...] = ()
    names: tuple[str, ...] = ()
    time: SavedTime | None = None

    @property
    def is_native(self) -> bool:
        """Whether only the backend that wrote the state can read it."""
        return bool(self.names)


class RedistributionMode(Enum):
    """Redistribution of an operator's list state (Flink's `OperatorStateHandle.Mode`)."""

    SPLIT_DISTRIBUTE = "split_distribute"
    UNION = "union"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class OperatorStateHandle:
    name: str
    mode: RedistributionMode
    state: StateHandle
    count: int
    of_type: str = ""
    is_declared: bool = False


@dataclass(frozen=True, slots=True)
class ChannelStateHandle:
    state: StateHandle
    elements: int
    edges: tuple[EdgeId, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorSubtaskState:
    """All state of one operator in one subtask; operators encode raw state themselves.

    `channels` has the in-flight data of the whole subtask, only at the first operator of its chain.
    """

    keyed: tuple[KeyedStateHandle, ...] = ()
    operator: tuple[OperatorStateHandle, ...] = ()
    channels: ChannelStateHandle | None = None
    raw_keyed: tuple[KeyedStateHandle, ...] = ()
    raw_operator: tuple[OperatorStateHandle, ...] = ()

    @property
    def is_empty(self) -> bool:
        return next(self.handles(), None) is None and not (self.keyed or self.operator)

    def handles(self) -> Iterator[StateHandle]:
        for keyed in (*self.keyed, *self.raw_keyed):
            yield from keyed.files
        for state in (*self.operator, *self.raw_operator):
            yield state.state
        if self.channels is not None:
            yield self.channels.state

    def files(self) -> Iterator[FileHandle]:
        for handle in self.handles():
            if isinstance(handle, FileHandle):
                yield handle


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """The state in a subtask's acknowledgement, by operator in the chain's order.

    If the subtask has `ended`, its operators emit nothing more after the barrier. `events` has, by operator,
    the number of events sent to its coordinator.
    """

    operators: Mapping[str, OperatorSubtaskState] = field(default_factory=dict)
    ended: bool = False
    events: Mapping[str, int] = field(default_factory=dict)

    def with_channels(self, channels: ChannelStateHandle | None) -> SubtaskSnapshot:
        if channels is None:
            return self
        head = next(iter(self.operators))
        return replace(
            self, operators={**self.operators, head: replace(self.operators[head], channels=channels)}
        )

    def files(self) -> Iterator[FileHandle]:
        for state in self.operators.values():
            yield from state.files()


@dataclass(frozen=True, slots=True)
class OperatorState:
    """All state of one operator in a checkpoint; `finished` subtasks do not run again."""

    operator_id: str
    parallelism: int
    max_parallelism: int
    subtasks: Mapping[int, OperatorSubtaskState] = field(default_factory=dict)
    finished: frozenset[int] = frozenset()
    coordinator: StateHandle | None = None

    @property
    def is_fully_finished(self) -> bool:
        return len(self.finished) == self.parallelism

    def handles(self) -> Iterator[StateHandle]:
        for state in self.subtasks.values():
            yield from state.handles()
        if self.coordinator is not None:
            yield self.coordinator

    def files(self) -> Iterator[FileHandle]:
        for handle in self.handles():
            if isinstance(handle, FileHandle):
                yield handle


@dataclass(frozen=True, slots=True)
class MasterState:
    identifier: str
    data: bytes
