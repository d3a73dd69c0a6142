"""The part of a completed checkpoint that one subtask starts from; plain data, sent with its descriptor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.runtime.snapshot.handles import ChannelStateHandle, KeyedStateHandle, RedistributionMode


@dataclass(frozen=True, slots=True)
class OperatorRestore:
    """The state that one operator of one subtask starts from.

    Attributes:
        keyed: Handles that hold keys of this subtask's range.
        lists: Named list states; each value still encoded.
        raw_keyed: Handles that hold raw keyed state of this subtask's range.
        raw_operator: Pieces of raw operator state.
        unasked: What a snapshot keeps of each list until the operator asks for it, with the list's mode.
    """

    keyed: tuple[KeyedStateHandle, ...] = ()
    lists: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    raw_keyed: tuple[KeyedStateHandle, ...] = ()
    raw_operator: Sequence[bytes] = ()
    unasked: Mapping[str, tuple[RedistributionMode, Sequence[bytes]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelRestore:
    """The in-flight data that one subtask starts with.

    Attributes:
        is_rescaled: The job has another shape now. Then the handles are those of all subtasks that had data
            in flight on an exchange to this one. It takes its part of them.
    """

    handles: tuple[ChannelStateHandle, ...]
    is_rescaled: bool = False


@dataclass(frozen=True, slots=True)
class TaskRestore:
    """The part of a completed checkpoint that one subtask starts from.

    Attributes:
        attempt: The attempt that completed it.
        operators: By operator id; an operator that the checkpoint does not know has no entry.
        is_savepoint: Its files are not the job's own, so no later checkpoint may build on them.
        channels: Data in flight in its channels; `None` for none.
        finished: The subtask had finished: it sends its ends and leaves; its operators do not run again.
        location: URL of the storage that holds its files; `None` for the job's own.
    """

    checkpoint_id: int
    attempt: int
    operators: Mapping[str, OperatorRestore] = field(default_factory=dict)
    is_savepoint: bool = False
    channels: ChannelRestore | None = None
    finished: bool = False
    location: str | None = None
