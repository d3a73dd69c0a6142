"""In-flight data of an unaligned checkpoint: the capture in the outputs, and the file.

`AsyncChannelStateWriter` writes at most one file for each subtask and checkpoint. It collects elements in
memory, where the channels hold them anyway. When the input part and the output part are complete, it encodes
and writes them in the background. Then it calls back in the task's thread.

A checkpoint ends here with its result, its failure, or an abort. After an abort nothing is collected, and the
caller of `result` gets `ChannelStateAborted`. A running write then deletes its own file, even after the task
was closed. Data of a checkpoint that was not started, or has ended, is ignored. The writer must never report
an incomplete result, or keep data of an ended checkpoint. The model is Flink's `ChannelStateWriterImpl`.

`BarrierSender` sends barriers and captures the elements that they overtake in the outputs of a subtask. An
unaligned barrier overtakes elements at once, and completes the sender's part of the in-flight data. An
aligned barrier keeps its position. If it has a timeout, the checkpoint is not acknowledged until the barrier
is sent. If the timeout expires first, the barrier moves to the front, and the overtaken elements are
captured. The sender must never capture an element that was sent before the barrier, because the receiver
captures it. The model is Flink's aligned checkpoint timeout on the output side (FLINK-27251).

The file holds the encoded elements of each channel in order. A channel is identified by its exchange (the
operators that it connects) and the indexes of its two subtasks. These stay valid at another parallelism and
with other chains. Elements are stored one by one, so they can be redistributed by key group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.runtime.errors import PenstockError, StorageError
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.network.channel_state import ChannelStateWriter
from penstock.runtime.network.result_partition import Overtaken
from penstock.runtime.ports import AsyncRunner, Cancellable, SnapshotStorage, TimerService
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import CheckpointBarrier, StreamElement
from penstock.runtime.snapshot.handles import ChannelStateHandle, FileHandle
from penstock.runtime.snapshot.ids import ChannelId, EdgeId
from penstock.runtime.snapshot.metadata import StateFiles, read_state
from penstock.runtime.snapshot.sealed_file import binary, damaged, items, seal, unseal, whole

_MAGIC: Final = b"PSTKFLOW"

_VERSION: Final = 1

_WHAT: Final = "the in-flight data of a subtask"


@dataclass(frozen=True, slots=True)
class ChannelState:
    """In-flight data of one subtask: encoded elements by channel, in order.

    The `inputs` are elements in front of the barriers on the subtask's inputs. The `outputs` are elements
    that barriers overtook before they were sent.
    """

    inputs: Mapping[ChannelId, Sequence[bytes]] = field(default_factory=dict)
    outputs: Mapping[ChannelId, Sequence[bytes]] = field(default_factory=dict)

    @property
    def edges(self) -> tuple[EdgeId, ...]:
        return tuple(dict.fromkeys(channel.edge for channel in (*self.inputs, *self.outputs)))

    @property
    def elements(self) -> int:
        return sum(map(len, self.inputs.values())) + sum(map(len, self.outputs.values()))


def encode_channel_state(state: ChannelState) -> bytes:
    """Encode the file.

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
    """Decode the file; error messages name `path`."""
    body = unseal(_MAGIC, _VERSION, data, _WHAT, path)
    try:
        named, inputs, outputs = body
        edges = [EdgeId.decode(edge) for edge in named]
        return ChannelState(_channels(inputs, edges), _channels(outputs, edges))
    except (TypeError, ValueError, IndexError) as error:
        raise damaged(_WHAT, path, str(error)) from error


def read_channel_state(storage: SnapshotStorage, handle: ChannelStateHandle) -> tuple[ChannelState, str]:
    """Read in-flight data; return it with its location, for error messages. Blocks."""
    where = "the checkpoint's metadata"
    if isinstance(handle.state, FileHandle):
        where = f"{storage.url}/{handle.state.path}"
    return decode_channel_state(read_state(storage, handle.state), where), where


def _channels(part: list[Any], edges: Sequence[EdgeId]) -> dict[ChannelId, list[bytes]]:
    return {
        ChannelId(edges[whole(edge)], whole(sender), whole(receiver)): [*map(binary, items(elements))]
        for edge, sender, receiver, elements in part
    }


class ChannelStateAborted(PenstockError):
    """The checkpoint was aborted while its in-flight data was collected or written."""


@dataclass(slots=True)
class _Waiting:
    on_state: Callable[[ChannelStateHandle | None], None]
    on_error: Callable[[BaseException], None]


@dataclass(slots=True)
class _Collected:
    inputs: dict[int, list[StreamElement]] = field(default_factory=dict)
    outputs: dict[OutputChannelSpec, list[bytes]] = field(default_factory=dict)
    has_input: bool = False
    has_output: bool = False
    is_aborted: bool = False
    is_written: bool = False
    is_done: bool = False
    handle: ChannelStateHandle | None = None
    error: BaseException | None = None
    waiting: _Waiting | None = None
    files: StateFiles | None = None


class AsyncChannelStateWriter:
    """A `ChannelStateWriter` that writes into a checkpoint storage; only the task thread calls it."""

    def __init__(
        self,
        inputs: Sequence[ChannelId],
        outputs: Mapping[OutputChannelSpec, ChannelId],
        files: Callable[[int], StateFiles],
        runner: AsyncRunner,
    ) -> None:
        self._input_ids = inputs
        self._output_ids = outputs
        self._files = files
        self._runner = runner
        self._collected: dict[int, _Collected] = {}
        self._newest_id = -1

    def start(self, checkpoint_id: int) -> None:
        if checkpoint_id > self._newest_id:
            self._newest_id = checkpoint_id
            self._collected[checkpoint_id] = _Collected()

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        collected = self._collected.get(checkpoint_id)
        if collected is not None and not collected.has_input:
            collected.inputs.setdefault(channel, []).extend(elements)

    def finish_input(self, checkpoint_id: int) -> None:
        collected = self._collected.get(checkpoint_id)
        if collected is not None and not collected.has_input:
            collected.has_input = True
            self._write_if_complete(checkpoint_id, collected)

    def add_output(self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        collected = self._collected.get(checkpoint_id)
        if collected is not None and not collected.has_output:
            collected.outputs.setdefault(channel, []).extend(elements)

    def finish_output(self, checkpoint_id: int) -> None:
        collected = self._collected.get(checkpoint_id)
        if collected is not None and not collected.has_output:
            collected.has_output = True
            self._write_if_complete(checkpoint_id, collected)

    def abort(self, checkpoint_id: int) -> None:
        """Abort a checkpoint, started or not; the caller of `result` gets an error."""
        self._newest_id = max(self._newest_id, checkpoint_id)
        collected = self._collected.pop(checkpoint_id, None)
        if collected is None:
            return
        self._abandon(collected)
        if collected.waiting is not None:
            msg = f"checkpoint {checkpoint_id} was aborted while its in-flight data was collected"
            collected.waiting.on_error(ChannelStateAborted(msg))

    def result(
        self,
        checkpoint_id: int,
        on_state: Callable[[ChannelStateHandle | None], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Call back once, perhaps before returning, when the in-flight data of a checkpoint is durable.

        `on_error` is called if the write fails, or if the checkpoint is not running or is aborted first.
        `close` drops the callback.
        """
        collected = self._collected.get(checkpoint_id)
        if collected is None:
            msg = f"the capture of in-flight data was aborted or never started for checkpoint {checkpoint_id}"
            on_error(ChannelStateAborted(msg))
            return
        collected.waiting = _Waiting(on_state, on_error)
        self._report_if_done(checkpoint_id, collected)

    def close(self) -> None:
        """Abort everything without callbacks."""
        for collected in self._collected.values():
            self._abandon(collected)
        self._collected.clear()

    @property
    def running(self) -> int:
        return len(self._collected)

    def _write_if_complete(self, checkpoint_id: int, collected: _Collected) -> None:
        if not (collected.has_input and collected.has_output):
            return
        if not collected.inputs and not collected.outputs:
            self._done(checkpoint_id, collected, None)
            return
        files = collected.files = self._files(checkpoint_id)

        def write() -> ChannelStateHandle:
            state = ChannelState(
                {self._input_ids[i]: list(map(encode_element, e)) for i, e in collected.inputs.items()},
                {self._output_ids[spec]: elements for spec, elements in collected.outputs.items()},
            )
            try:
                written = files.write(encode_channel_state(state))
            except BaseException:
                # A failed write may have stored the file.
                with suppress(StorageError):
                    files.remove_written()
                raise
            # This sets `is_written`, then reads `is_aborted`. `_abandon` sets `is_aborted`, then reads
            # `is_written`. So at least one of them removes the file.
            collected.is_written = True
            if collected.is_aborted:
                files.remove_written()
            return ChannelStateHandle(written, state.elements, state.edges)

        def failed(error: BaseException) -> None:
            if collected.is_aborted:
                return
            collected.error = error
            collected.is_done = True
            self._report_if_done(checkpoint_id, collected)

        def written(handle: ChannelStateHandle) -> None:
            if not collected.is_aborted:
                self._done(checkpoint_id, collected, handle)

        self._runner.run(write, written, failed)

    def _abandon(self, collected: _Collected) -> None:
        """Stop collecting and delete the file; a running write deletes its own."""
        collected.is_aborted = True
        if collected.is_written and collected.files is not None:
            self._remove(collected.files)

    def _remove(self, files: StateFiles) -> None:
        # A later attempt sweeps a file that can't be removed now.
        self._runner.run(files.remove_written, lambda _: None, lambda _: None)

    def _done(self, checkpoint_id: int, collected: _Collected, handle: ChannelStateHandle | None) -> None:
        collected.handle = handle
        collected.is_done = True
        collected.inputs, collected.outputs = {}, {}
        self._report_if_done(checkpoint_id, collected)

    def _report_if_done(self, checkpoint_id: int, collected: _Collected) -> None:
        waiting = collected.waiting
        if not collected.is_done or waiting is None or collected.is_aborted:
            return
        del self._collected[checkpoint_id]
        if collected.error is not None:
            waiting.on_error(collected.error)
        else:
            waiting.on_state(collected.handle)


class BarrierOutputs(Protocol):
    def broadcast_barrier(self, barrier: CheckpointBarrier) -> list[Overtaken]:
        """Put a barrier on every channel in one step; return the elements that it overtakes if unaligned."""
        ...

    def is_barrier_waiting(self, checkpoint_id: int) -> bool: ...

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        """Move the waiting barriers of a checkpoint to the front; return the overtaken elements."""
        ...


@dataclass(frozen=True, slots=True)
class InFlight:
    sender: BarrierSender
    writer: AsyncChannelStateWriter


class BarrierSender:
    """Sends barriers and captures overtaken elements; only the task thread calls it."""

    def __init__(self, outputs: BarrierOutputs, writer: ChannelStateWriter, timers: TimerService) -> None:
        self._outputs = outputs
        self._writer = writer
        self._timers = timers
        self._waiting: dict[int, Cancellable] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def send(self, barrier: CheckpointBarrier) -> bool:
        """Send a barrier; return whether the checkpoint has or may get in-flight data."""
        checkpoint_id, options = barrier.checkpoint_id, barrier.options
        overtaken = self._outputs.broadcast_barrier(barrier)
        if options.unaligned:
            self._writer.start(checkpoint_id)
            self._finish(checkpoint_id, overtaken)
            return True
        if options.aligned_timeout is None or not self._outputs.is_barrier_waiting(checkpoint_id):
            return False
        self._writer.start(checkpoint_id)
        self._writer.finish_input(checkpoint_id)
        self._waiting[checkpoint_id] = self._timers.call_later(
            options.aligned_timeout, lambda: self._turn_unaligned(checkpoint_id)
        )
        return True

    def barriers_may_have_left(self) -> None:
        for checkpoint_id in [i for i in self._waiting if not self._outputs.is_barrier_waiting(i)]:
            self._waiting.pop(checkpoint_id).cancel()
            self._finish(checkpoint_id, ())

    def abort(self, checkpoint_id: int) -> None:
        """Abort the checkpoint; a waiting barrier keeps its position and is still sent."""
        timer = self._waiting.pop(checkpoint_id, None)
        if timer is not None:
            timer.cancel()
        self._writer.abort(checkpoint_id)

    def close(self) -> None:
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _turn_unaligned(self, checkpoint_id: int) -> None:
        if self._waiting.pop(checkpoint_id, None) is not None:
            self._finish(checkpoint_id, self._outputs.turn_unaligned(checkpoint_id))

    def _finish(self, checkpoint_id: int, overtaken: Iterable[Overtaken]) -> None:
        for channel, elements in overtaken:
            if elements:
                self._writer.add_output(checkpoint_id, channel, elements)
        self._writer.finish_output(checkpoint_id)
