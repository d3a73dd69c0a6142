"""Handles of state, by operator and subtask.

The kinds follow Flink's `OperatorSubtaskState`. A handle is small and goes into the checkpoint's metadata.
The bytes that it stands for are in a file of the checkpoint storage, or inline when they are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias

from penstock.runtime.snapshot.ids import EdgeId

#: States up to this size (bytes) are kept inside the metadata instead of in a file of their own.
INLINE_LIMIT: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class FileHandle:
    """A file of the checkpoint storage.

    Attributes:
        path: Relative to the storage's root, as `SnapshotPaths` formats it.
        size: Bytes.
        checksum: xxh3-128 of the content, hexadecimal.
    """

    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class InlineHandle:
    """State that is so small that it stands in the metadata itself."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


StateHandle: TypeAlias = FileHandle | InlineHandle


@dataclass(frozen=True, slots=True, order=True)
class KeyGroupRange:
    """A contiguous range of key groups, both ends included; empty when `last < first`.

    Attributes:
        first: Not below 0.

    Raises:
        ValueError: The range begins below 0.

    Example:
        >>> KeyGroupRange(0, 63).intersection(KeyGroupRange(32, 127))
        KeyGroupRange(first=32, last=63)
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first < 0:
            msg = f"key groups count from 0; a range can't begin at {self.first}"
            raise ValueError(msg)

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)

    def __contains__(self, key_group: int) -> bool:
        return self.first <= key_group <= self.last

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        return KeyGroupRange(max(self.first, other.first), min(self.last, other.last))


@dataclass(frozen=True, slots=True)
class SavedState:
    """Kind of a state that a function used under a name, as its snapshot says.

    Attributes:
        kind: `value`, `list`, `map`, `reducing` or `aggregating`; empty for one of those with one value a
            key, where it is unknown which.
        is_declared: Whether the function's class declared it; otherwise it was asked for at run time.
        has_stamps: Whether each of its entries is a pair: when it was last used, and the value. That is so
            with a TTL.
    """

    name: str
    kind: str
    is_declared: bool = False
    has_stamps: bool = False


@dataclass(frozen=True, slots=True)
class SavedTime:
    """Time for state with a TTL when it was saved, in microseconds.

    Attributes:
        event: The watermark; `None` before the first one.
        expired: Only for state in the files of RocksDB, which may still hold entries that had expired: by
            table, the latest stamp of these.
    """

    event: int | None
    processing: int
    expired: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KeyedStateHandle:
    """The keyed state of one operator in one subtask: a base and the changes since, in order.

    Later files win over earlier ones key by key. Files are shared between checkpoints: a checkpoint adds a
    file of changes and keeps naming the older ones until they are compacted.

    Attributes:
        files: Base first, newest changes last.
        types: Names of the states whose function has declared a type, each with the type's name.
        states: The states that functions have used; those of operators of Penstock are left out.
        names: Only for state in the files of RocksDB: the name of each file in the database's folder. Such
            files are no chain. They are opened together, and `entries` is an estimate.
        time: What time it was; `None` where no state has a TTL.
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
        """Whether only the backend that has written the state can read it."""
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
    """All state of one operator in one subtask.

    Attributes:
        raw_keyed: Raw keyed state: bytes by key group, which the operator has encoded itself.
        raw_operator: Raw operator state: pieces of bytes.
        channels: In-flight data of the whole subtask; only at the first operator of its chain, and only in
            unaligned checkpoints.
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
    """The state that one subtask acknowledges a checkpoint with, by operator in the chain's order.

    Attributes:
        ended: All that its operators will ever emit is in front of the barrier.
        events: How many events its operators had sent to their coordinators, for those that have one.
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
    """All state of one operator in a checkpoint.

    Attributes:
        subtasks: State by subtask index; a subtask without state has no entry.
        finished: Indices of the subtasks that have finished and do not run again.
        coordinator: State of the operator's coordinator; `None` when it has none.
    """

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
