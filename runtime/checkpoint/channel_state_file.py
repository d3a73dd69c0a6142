"""The file of in-flight data: one for each subtask and checkpoint.

It holds the encoded elements of each channel in order: the receiver's part and the sender's part. A channel
is named by its exchange (the operators that it connects) and the indexes of its two subtasks. So the name
means the same to a job with another parallelism or other chains. Elements stay apart, and a buffer of a keyed
exchange decodes to records, so they can be redistributed by key group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.handles import ChannelStateHandle, FileHandle
from penstock.runtime.snapshot.ids import ChannelId, EdgeId
from penstock.runtime.snapshot.metadata import read_state
from penstock.runtime.snapshot.sealed_file import damaged, seal, unseal

_MAGIC: Final = b"PSTKFLOW"

_VERSION: Final = 1

_WHAT: Final = "the in-flight data of a subtask"


@dataclass(frozen=True, slots=True)
class ChannelState:
    """In-flight data of one subtask: encoded elements by channel, first one first.

    Attributes:
        inputs: Elements that had arrived in front of the barriers.
        outputs: Elements that the barriers had overtaken before they were sent.
    """

    inputs: Mapping[ChannelId, Sequence[bytes]] = field(default_factory=dict)
    outputs: Mapping[ChannelId, Sequence[bytes]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.inputs and not self.outputs

    @property
    def edges(self) -> tuple[EdgeId, ...]:
        return tuple(dict.fromkeys(channel.edge for channel in (*self.inputs, *self.outputs)))

    @property
    def elements(self) -> int:
        return sum(map(len, self.inputs.values())) + sum(map(len, self.outputs.values()))


def encode_channel_state(state: ChannelState) -> bytes:
    """The file's bytes.

    Example:
        >>> channel = ChannelId(EdgeId("map", None, "count"), sender=0, receiver=1)
        >>> state = ChannelState({channel: [b"a"]}, {channel: [b"b", b"c"]})
        >>> decode_channel_state(encode_channel_state(state), "x") == state
        True
    """
    edges = {edge: number for number, edge in enumerate(state.edges)}
    body = [
        [edge.encode() for edge in edges],
        *(
            [[edges[c.edge], c.sender, c.receiver, list(elements)] for c, elements in part.items()]
            for part in (state.inputs, state.outputs)
        ),
    ]
    return seal(_MAGIC, _VERSION, body)


def decode_channel_state(data: bytes, path: str) -> ChannelState:
    """The state that `encode_channel_state` wrote; `path` is for messages.

    Raises:
        CorruptSnapshotError: The file is damaged, or of another kind.
        StorageError: A newer version wrote it.
    """
    body = unseal(_MAGIC, _VERSION, data, _WHAT, path)
    try:
        named, inputs, outputs = body
        edges = [EdgeId.decode(edge) for edge in named]
        return ChannelState(_channels(inputs, edges), _channels(outputs, edges))
    except (TypeError, ValueError, IndexError) as error:
        raise damaged(_WHAT, path, str(error)) from error


def read_channel_state(storage: SnapshotStorage, handle: ChannelStateHandle) -> tuple[ChannelState, str]:
    """Read in-flight data, and return it with its place; blocks.

    Raises:
        CorruptSnapshotError: The file is missing or damaged.
        StorageError: It could not be read, or a newer version wrote it.
    """
    where = "the checkpoint's metadata"
    if isinstance(handle.state, FileHandle):
        where = f"{storage.url}/{handle.state.path}"
    return decode_channel_state(read_state(storage, handle.state), where), where


def _channels(part: list[Any], edges: Sequence[EdgeId]) -> dict[ChannelId, list[bytes]]:
    return {
        ChannelId(edges[_number(edge)], _number(sender), _number(receiver)): _elements(elements)
        for edge, sender, receiver, elements in part
    }


def _number(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        msg = f"{value!r} is no number of a channel"
        raise ValueError(msg)
    return value


def _elements(value: Any) -> list[bytes]:
    if not isinstance(value, list) or not all(isinstance(element, bytes) for element in value):
        msg = "its elements are no list of bytes"
        raise ValueError(msg)
    return value
