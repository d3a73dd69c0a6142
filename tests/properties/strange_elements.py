"""Elements that an attacker puts in flight: of every kind, with any header, and columns that lie.

A column may point outside of its data, or be of an extension type. The type here does what Ray's type of
pickled objects does: it loads a pickle when a value is taken out. It also does so when a schema is read.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

import msgpack
import pyarrow as pa
from changed_snapshots import Box, closed, opened

from penstock.runtime.checkpoint.channel_state_writer import (
    ChannelState,
    decode_channel_state,
    encode_channel_state,
)
from penstock.runtime.record.element_codec import BatchCodec, encode_element
from penstock.runtime.record.elements import (
    END_OF_TIME,
    ArrowBatch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
    SnapshotKind,
    StreamElement,
    StreamStatus,
    Watermark,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.ids import ChannelId, EdgeId

NAME = "test.loads_pickles"
#: No element has a longer header.
_HEADER = 40
_CODEC = BatchCodec()
#: State of an operator that is too long for the metadata: a savepoint makes a file of it.
_LONG_LIST = ["notes", "split_distribute", 1, msgpack.packb([ValueCodec(False).dumps("x" * 20_000)])]


class LoadsPickles(pa.ExtensionType):  # type: ignore[misc]
    """Loads pickles, as the data says."""

    def __init__(self, storage: pa.DataType, code: bytes = b"") -> None:
        self._code = code
        super().__init__(storage, NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return self._code

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> LoadsPickles:
        if serialized:
            pickle.loads(serialized)  # the test is that this never runs
        return cls(storage)

    def __arrow_ext_scalar_class__(self) -> type:
        return LoadedScalar


class LoadedScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """A value that is loaded when it is taken out."""

    def as_py(self, **_: Any) -> Any:
        return pickle.loads(self.value.as_py())  # the test is that this never runs


def put_in_flight(
    tree: Box, random: Random, edge: EdgeId, operators: tuple[str, str], strings: Sequence[str], code: bytes
) -> Box:
    """Metadata with one to three strange elements in the channels between two operators.

    Args:
        tree: The opened metadata; stays as it is.
        edge: The exchange.
        operators: The one that sends on it, and the one that receives; each has two subtasks.
        strings: Paths that an attacker would try.
        code: A pickle whose loading leaves a mark.
    """
    tree = deepcopy(tree)
    for operator_id, _, _, subtasks in tree.value["operators"]:
        if operator_id == operators[1]:
            for subtask in subtasks:
                subtask[2].append(list(_LONG_LIST))
    sends = random.random() < 0.5
    [subtasks] = [each[3] for each in tree.value["operators"] if each[0] == operators[0 if sends else 1]]
    for subtask in subtasks:
        _put(subtask, random, edge, sends, strings, code)
    return tree


def _put(
    subtask: list[Any], random: Random, edge: EdgeId, sends: bool, strings: Sequence[str], code: bytes
) -> None:
    state = ChannelState()
    if subtask[3] is not None:
        state = decode_channel_state(closed(subtask[3][2]), "here")
    part = {channel: list(each) for channel, each in (state.outputs if sends else state.inputs).items()}
    new = [strange_element(random, strings, code) for _ in range(random.choice([1, 1, 2, 3]))]
    # A barrier of a savepoint has to come on every channel.
    for other in (0, 1):
        channel = ChannelId(edge, subtask[0], other) if sends else ChannelId(edge, other, subtask[0])
        elements = part.setdefault(channel, [])
        at = random.randrange(len(elements) + 1)
        elements[at:at] = new
    state = ChannelState(state.inputs, part) if sends else ChannelState(part, state.outputs)
    edges = [each.encode() for each in state.edges]
    subtask[3] = [state.elements, edges, opened(encode_channel_state(state))]


def strange_element(random: Random, strings: Sequence[str], code: bytes) -> bytes:
    """An encoded element of any kind; some with another header or cut off."""
    data = encode_element(_element(random, strings, code))
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        at = random.randrange(min(len(data), _HEADER)) if data else 0
        data = random.choice(
            [
                data[:at] + bytes([random.randrange(256)]) + data[at + 1 :],
                data[:at] + b"\xff" * 8 + data[at + 8 :],
                data[:at] + data[at + 1 :],
                bytes([random.randrange(9)]) + data[1:],
            ]
        )
    return data


def _element(random: Random, strings: Sequence[str], code: bytes) -> StreamElement:
    number = random.choice([-1, 0, 1, 2, 3, 10**6, END_OF_TIME])
    match random.randrange(10):
        case 0 | 1 | 2:
            kind = random.choice([SnapshotKind.SAVEPOINT, *SnapshotKind])
            options = CheckpointOptions(
                kind,
                random.random() < 0.3,
                random.choice([None, 0.0, 5.0, float("nan")]),
                random.random() < 0.3,
                random.choice([None, *(text for text in strings if text.isprintable())]),
            )
            return CheckpointBarrier(number, 0.0, options, random.choice([-1, number]))
        case 3:
            return CancelCheckpointMarker(number)
        case 4:
            return random.choice([EndOfPartition(), EndOfData(), EndOfData(False), EndOfData(True, number)])
        case 5:
            return random.choice([Watermark(number), *StreamStatus])
        case 6:
            return _CODEC.encode(RowBatch([*strings[:3], random.choice([None, 1, b"", object])]))
    batch = pa.RecordBatch.from_arrays([_column(random, code)], ["line"])
    stamps = pa.array(range(len(batch))) if random.random() < 0.3 else None
    buffer = _CODEC.encode(ArrowBatch(batch, stamps))
    return buffer if random.random() < 0.8 else Buffer(_with_other_bytes(buffer.payload, random), buffer.rows)


def _column(random: Random, code: bytes) -> pa.Array:
    """Three values of a column that is sound, points outside of its data, or loads pickles."""
    # The first and the last one are in the data: with others Arrow itself would not make the column.
    bounds = [0, *(random.choice([0, 2, 8, 1 << 30, -1, -(1 << 31)]) for _ in range(2)), 8]
    texts = pa.Array.from_buffers(
        pa.string(),
        3,
        [None, pa.py_buffer(struct.pack("<4i", *bounds)), pa.py_buffer(b"abcdef\xff\xfe")],
    )
    indices = pa.array([0, random.choice([0, -1, 1_000_000]), 1], pa.int32())
    pickles = pa.ExtensionArray.from_storage(
        LoadsPickles(pa.binary(), random.choice([b"", code])), pa.array([code] * 3, pa.binary())
    )
    return random.choice(
        [
            pa.array(["a", "bb", None]),
            texts,
            pa.StructArray.from_arrays([texts], ["x"]),
            pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False),
            pickles,
            pickles,
            pa.StructArray.from_arrays([pickles], ["x"]),
            pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pickles),
        ]
    )


def _with_other_bytes(payload: bytes, random: Random) -> bytes:
    changed = bytearray(payload)
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)
