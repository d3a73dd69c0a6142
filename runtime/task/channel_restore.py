"""Puts in-flight data of an unaligned checkpoint back into the channels of a subtask.

A channel first delivers the data that the receiver had buffered, then the data that the sender had buffered,
then new data. In a job of the same shape the receiver's part goes into the input channel. The sender's part
goes into the output and is sent first.

With another parallelism a stored channel has no counterpart, so both parts become input. A receiver reads all
in-flight data of its exchanges and takes its part of each stored channel. In a keyed exchange its part is the
records of its key groups. In a rebalance the number of a channel's old receiver decides which subtask takes
the whole channel. The part of one stored channel stays together and in order, on the channel of one sender.
The gate returns restored elements of all channels before new elements. So a record never overtakes an older
record of the same key.

Watermarks, statuses and ends of data are not redistributed, because restored senders send new ones. Until
then event time does not advance, which is safe.

In a job of the same shape a status is not restored, either. A restored sender is active until it sends a
status, so a stored `IDLE` would let event time run ahead of its records.

A restore must never duplicate a record or lose one. Every record has exactly one receiver, because all
receivers read the same files by the same rule. A restore also refuses an element that no checkpoint stores: a
forged barrier could write a savepoint to any folder that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.runtime.checkpoint.channel_state_writer import ChannelState, read_channel_state
from penstock.runtime.errors import CodecError, CorruptSnapshotError, StreamCorruptError
from penstock.runtime.graph.execution_graph import ExecutionSubtask, InputChannelSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.network.channel_state import CAPTURED
from penstock.runtime.network.result_partition import channel_selector
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.element_codec import BatchCodec, ElementKind, decode_element, kind_of
from penstock.runtime.record.elements import Buffer, StreamElement, StreamStatus
from penstock.runtime.snapshot.completed_checkpoint import ChannelRestore
from penstock.runtime.snapshot.ids import ChannelId, EdgeId
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.task_input import NetworkInput


def restore_channels(
    restore: ChannelRestore,
    subtask: ExecutionSubtask,
    storage: SnapshotStorage,
    codec: BatchCodec,
    network: NetworkInput | None,
    outputs: SubtaskOutputs,
    *,
    decode_all: bool = False,
) -> None:
    """Put in-flight data back, before anything arrives or is sent; blocks, because it reads files.

    Args:
        codec: Decodes the in-flight data; it trusts the data as much as the job trusts snapshots.
        decode_all: Decode every buffer now. The codec of the exchanges may trust more, because they carry
            data of the job's own subtasks.

    Raises:
        CorruptSnapshotError: A file is damaged, names an unknown channel, or holds an element that is never
            stored or values that `codec` refuses.
    """
    inputs: dict[int, list[StreamElement]] = {}
    states = [read_channel_state(storage, handle) for handle in restore.handles]
    for state, where in states:
        _check_kinds(subtask, state, where)
    try:
        if decode_all:
            _decode(codec, [state for state, _ in states])
        if restore.is_rescaled:
            inputs = _part_of(subtask, [state for state, _ in states], codec)
        else:
            for state, _ in states:
                inputs |= _own_inputs(subtask, state)
                _restore_outputs(subtask, state, outputs)
    except (KeyError, CodecError, StreamCorruptError) as error:
        where = ", ".join(dict.fromkeys(where for _, where in states))
        msg = f"the in-flight data of {subtask.id} in {where} can't be restored: {error}"
        raise CorruptSnapshotError(msg) from error
    for channel, elements in inputs.items():
        assert network is not None, f"{subtask.id} has no input channels"
        network.gate.restore(channel, elements)


def _check_kinds(subtask: ExecutionSubtask, state: ChannelState, where: str) -> None:
    for channel, elements in (*state.inputs.items(), *state.outputs.items()):
        try:
            strange = next((kind for kind in map(kind_of, elements) if kind not in CAPTURED), None)
        except StreamCorruptError as error:
            msg = f"the in-flight data of {subtask.id} in {where} can't be restored: {error}"
            raise CorruptSnapshotError(msg) from error
        if strange is not None:
            msg = (
                f"the in-flight data of {subtask.id} in {where} can't be restored: the channel from "
                f"{channel.sender} to {channel.receiver} holds an element of kind {strange.name}, which no "
                "checkpoint stores. The snapshot was changed after it was taken"
            )
            raise CorruptSnapshotError(msg)


def _decode(codec: BatchCodec, states: Iterable[ChannelState]) -> None:
    for state in states:
        for elements in (*state.inputs.values(), *state.outputs.values()):
            for element in map(decode_element, elements):
                if isinstance(element, Buffer):
                    codec.decode(element)


def _own_inputs(subtask: ExecutionSubtask, state: ChannelState) -> dict[int, list[StreamElement]]:
    numbers = {channel: index for index, channel in enumerate(subtask.input_ids)}
    restored: dict[int, list[StreamElement]] = {}
    for channel, elements in state.inputs.items():
        decoded = map(decode_element, elements)
        restored[numbers[channel]] = [e for e in decoded if not isinstance(e, StreamStatus)]
    return {number: elements for number, elements in restored.items() if elements}


def _restore_outputs(subtask: ExecutionSubtask, state: ChannelState, outputs: SubtaskOutputs) -> None:
    specs = {channel: spec for spec, channel in subtask.output_ids.items()}
    for channel, elements in state.outputs.items():
        kept = [element for element in elements if kind_of(element) is not ElementKind.STREAM_STATUS]
        if kept:
            outputs.restore(specs[channel], kept)


def _part_of(
    subtask: ExecutionSubtask, states: Sequence[ChannelState], codec: BatchCodec
) -> dict[int, list[StreamElement]]:
    """This subtask's part of the in-flight data on its exchanges, by its own channels."""
    by_edge: dict[EdgeId, list[InputChannelSpec]] = {}
    for spec in subtask.inputs:
        by_edge.setdefault(spec.edge, []).append(spec)
    stored: dict[ChannelId, list[bytes]] = {}
    for part in ([s.inputs for s in states], [s.outputs for s in states]):  # receivers' parts before senders'
        for channels in part:
            for channel, elements in channels.items():
                if channel.edge in by_edge:
                    stored.setdefault(channel, []).extend(elements)
    taken: dict[int, list[StreamElement]] = {}
    for channel in sorted(stored, key=lambda c: (c.sender, c.receiver)):
        specs = by_edge[channel.edge]
        mine = _mine(subtask, specs[0].partitioner, channel, stored[channel], codec)
        taken.setdefault(specs[channel.sender % len(specs)].index, []).extend(mine)
    return {index: elements for index, elements in taken.items() if elements}


def _mine(
    subtask: ExecutionSubtask,
    partitioner: Partitioner,
    channel: ChannelId,
    elements: Iterable[bytes],
    codec: BatchCodec,
) -> Iterator[Buffer]:
    """Yield the records of one stored channel that belong to this subtask after the rescale, in order."""
    vertex, index = subtask.vertex, subtask.id.index
    buffers = (element for element in map(decode_element, elements) if isinstance(element, Buffer))
    if partitioner.partitioning is not Partitioning.KEY_GROUP:
        if channel.receiver % vertex.parallelism == index:
            yield from buffers
        return
    selector = channel_selector(partitioner, vertex.parallelism, vertex.max_parallelism, channel.sender)
    assert selector is not None, "a keyed exchange selects"
    for buffer in buffers:
        batch = codec.decode(buffer)
        for receiver, part in selector.select(batch):
            if receiver == index:
                yield buffer if len(part) == len(batch) else codec.encode(part)
