"""How long a subtask's part of a checkpoint took, and how much was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """What an alignment has stored of the channels that it blocked.

    Attributes:
        stored: Bytes in memory and on the disk of the node.
        spilled: Those of them on the disk.
    """

    stored: int = 0
    spilled: int = 0


#: What an alignment stores that holds its channels.
NOTHING_STORED: Final = StoredBytes()


@dataclass(frozen=True, slots=True)
class CheckpointMetrics:
    """What one subtask measured of one checkpoint; seconds and bytes.

    Attributes:
        start_delay: From the trigger at the coordinator to the first barrier here.
        alignment_duration: From the first barrier to the last.
        sync_duration: The part that stopped the task.
        async_duration: The part beside the task.
        written_bytes: New bytes written for this checkpoint.
        full_bytes: Bytes of all the subtask's state in this checkpoint.
        in_flight_bytes: The part of them that was data between subtasks; 0 when the checkpoint was aligned
            here.
        stored_bytes: Bytes that the alignment stored; 0 when blocked channels were held. Not in the
            checkpoint.
        spilled_bytes: Those of them that went to the disk of the node.
    """

    start_delay: float = 0.0
    alignment_duration: float = 0.0
    sync_duration: float = 0.0
    async_duration: float = 0.0
    written_bytes: int = 0
    full_bytes: int = 0
    in_flight_bytes: int = 0
    stored_bytes: int = 0
    spilled_bytes: int = 0
