"""The file of in-flight data: one for each subtask and checkpoint.

It holds, for each channel, the encoded elements in order: receiver's part by number of the input channel,
sender's part by receiver and number there. The numbers are those of the execution graph at the parallelism
with which the checkpoint was taken, which its metadata names; so a reader with another parallelism can lay
that graph out again and knows the edge of every channel. Elements stay apart, and a buffer of a keyed edge
decodes to records, so they can be dealt out by key group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.runtime.checkpoint.metadata import read_state
from penstock.runtime.checkpoint.sealed_file import damaged, seal, unseal
from penstock.runtime.checkpoint.snapshot import ChannelStateHandle, FileHandle, SubtaskId
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.ports import SnapshotStorage

_MAGIC: Final = b"PSTKFLOW"
_VERSION: Final = 1
_WHAT: Final = "the in-flight data of a subtask"


@dataclass(frozen=True, slots=True)
class ChannelState:
    """In-flight data of one subtask: encoded elements by channel, first one first.

    Attributes:
        inputs: What had arrived in front of the barriers, by number of the input channel.
        outputs: What the barriers had overtaken before it was sent.
    """

    inputs: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    outputs: Mapping[OutputChannelSpec, Sequence[bytes]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was in flight."""
        return not self.inputs and not self.outputs

    @property
    def elements(self) -> int:
        """Number of elements."""
        return sum(map(len, self.inputs.values())) + sum(map(len, self.outputs.values()))


def encode_channel_state(state: ChannelState) -> bytes:
    """The file's bytes.

    Example:
        >>> state = ChannelState({3: [b"a"]}, {OutputChannelSpec(SubtaskId("v", 1), 0): [b"b", b"c"]})
        >>> decode_channel_state(encode_channel_state(state), "x") == state
        True
    """
    inputs = [[channel, list(elements)] for channel, elements in sorted(state.inputs.items())]
    outputs = [
        [spec.receiver.vertex, spec.receiver.index, spec.channel, list(elements)]
        for spec, elements in state.outputs.items()
    ]
    return seal(_MAGIC, _VERSION, [inputs, outputs])


def decode_channel_state(data: bytes, path: str) -> ChannelState:
    """What `encode_channel_state` wrote.

    Args:
        data: The file.
        path: Its path, for messages.

    Raises:
        CorruptSnapshotError: The file is damaged, or something else.
        StorageError: A newer version wrote it.
    """
    body = unseal(_MAGIC, _VERSION, data, _WHAT, path)
    try:
        inputs, outputs = body
        return ChannelState(
            {_number(channel): _elements(elements) for channel, elements in inputs},
            {
                OutputChannelSpec(SubtaskId(vertex, _number(index)), _number(channel)): _elements(elements)
                for vertex, index, channel, elements in outputs
            },
        )
    except (TypeError, ValueError) as error:
        raise damaged(_WHAT, path, str(error)) from error


def read_channel_state(storage: SnapshotStorage, handle: ChannelStateHandle) -> tuple[ChannelState, str]:
    """Read in-flight data, and say where it was; blocks.

    Raises:
        CorruptSnapshotError: The file is missing or damaged.
        StorageError: It could not be read, or a newer version wrote it.
    """
    where = "the checkpoint's metadata"
    if isinstance(handle.state, FileHandle):
        where = f"{storage.url}/{handle.state.path}"
    return decode_channel_state(read_state(storage, handle.state), where), where


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
