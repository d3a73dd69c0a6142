"""Builds a `Subtask` from its descriptor: makes operators, restores state, opens everything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from penstock.runtime.barrier.factory import (
    BarrierSettings,
    InFlightCapture,
    channels_to_align,
    create_input_gate,
)
from penstock.runtime.checkpoint.channel_state_writer import AsyncChannelStateWriter, BarrierSender, InFlight
from penstock.runtime.config.job_config import HeapState, Semantics, StateBackend
from penstock.runtime.errors import (
    CodecError,
    ConfigurationError,
    CorruptSnapshotError,
    OperatorError,
    OperatorLocation,
    StateMismatchError,
)
from penstock.runtime.graph.job_graph import OperatorSpec
from penstock.runtime.network.buffer_storage import BufferStorage
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.operators.operator_state import ListStates, RawState, RestoredRawState, read_raw_keyed
from penstock.runtime.operators.source import ConnectorContext, EnumeratesSplits
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.user_code.failure import OPERATOR_ERRORS, close_after, error_at
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.ports import (
    AsyncRunner,
    Clock,
    EventLoopOpener,
    SnapshotStorage,
    SpillFileOpener,
    StorageOpener,
)
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import Batch
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import OperatorRestore
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend, StateBackendOpener
from penstock.runtime.task.channel_restore import restore_channels
from penstock.runtime.task.descriptor import SnapshotFiles, SubtaskGateway, TaskDescriptor
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.task.subtask_checkpoints import SentEvents, SubtaskParts
from penstock.runtime.task.task_input import EndsOnlyInput, NetworkInput, SourceInput, TaskInput
from penstock.runtime.task.task_time import TaskTimers
from penstock.runtime.time.durations import as_seconds


def build_subtask(
    descriptor: TaskDescriptor,
    gateway: SubtaskGateway,
    runner: AsyncRunner,
    clock: Clock,
    storage: SnapshotStorage | None,
    open_location: StorageOpener | None = None,
    open_spill_file: SpillFileOpener | None = None,
    open_state_backend: StateBackendOpener | None = None,
    open_event_loop: EventLoopOpener | None = None,
    *,
    inline_limit: int | None = None,
) -> Subtask:
    """Build a subtask that is ready to run; blocks, because it reads the state.

    Args:
        storage: The checkpoint storage; `None` when the job takes no checkpoints.
        open_location: Opens locations of snapshots outside the checkpoint storage.
        open_spill_file: Makes files for alignments that store more than fits into memory.
        open_state_backend: Makes backends that keep state outside of the heap.
        open_event_loop: Makes event loops for coroutines of users.
        inline_limit: Maximum bytes of a state that is kept in the metadata; `None` for the default.

    Raises:
        StorageError: State can't be read, or is damaged.
        ValueError: The job's alignments may spill, and `open_spill_file` is missing.
    """
    places = storage or MemoryStorage(), open_location, open_spill_file, open_state_backend, open_event_loop
    return _Builder(descriptor, gateway, clock, *places, inline_limit).build(runner)


class _Builder:
    def __init__(
        self,
        descriptor: TaskDescriptor,
        gateway: SubtaskGateway,
        clock: Clock,
        storage: SnapshotStorage,
        open_location: StorageOpener | None,
        open_spill_file: SpillFileOpener | None,
        open_state_backend: StateBackendOpener | None,
        open_event_loop: EventLoopOpener | None,
        inline_limit: int | None,
    ) -> None:
        self._open_event_loop = open_event_loop
        self._inline_limit = inline_limit
        self._descriptor = descriptor
        self._open_spill_file = open_spill_file
        self._open_state_backend = open_state_backend
        self._vertex = descriptor.subtask.vertex
        self._gateway = gateway
        self._clock = clock
        self._storage = storage
        self._paths = SnapshotPaths(descriptor.job_id)
        self._files = SnapshotFiles(
            self._paths, descriptor.id, descriptor.attempt, storage, open_location, inline_limit
        )
        self._key_groups = key_group_range(
            descriptor.id.index, self._vertex.parallelism, self._vertex.max_parallelism
        )
        self._values = ValueCodec(descriptor.config.pickles_state, descriptor.classes)
        self._batches = BatchCodec(descriptor.config.pickles_records, descriptor.classes)
        trusts = descriptor.config.pickles_state
        self._kept_batches = BatchCodec(trusts, descriptor.classes, thorough=not trusts)
        self._trusts_snapshots = descriptor.config.pickles_state
        self._locations = descriptor.locations
        self._sent_events = SentEvents(gateway.operator_event, self._values)

    def build(self, runner: AsyncRunner) -> Subtask:
        operators = self._vertex.operators
        ids = [operator.id for operator in operators]
        outputs = self._outputs(ids)
        head = operators[0]
        source = None if head.source is None else SourceOperator(head.source, head.watermarks)
        finished = self._descriptor.finished_before

        def emit(index: int, tag: str | None, batch: Batch) -> None:
            outputs.emit(ids[index], tag, batch)

        timers = TaskTimers(self._clock)
        writer = self._channel_state_writer(runner)
        made = self._make_operators(0 if source is None else 1, only_sinks=finished)
        isolates = not self._only_reads(source, [operator for _, operator in made])
        if source is not None:
            source.isolates = isolates
        for _, operator in made:
            operator.isolates = isolates
        if finished:
            source = None  # it has read everything
        located_source = None if source is None else (self._locations[0], source)
        producers, emitting = self._shape(len(operators) - len(made))
        chain = OperatorChain(made, emit, outputs.broadcast_event, located_source, producers, emitting)
        backends: dict[str, KeyedStateBackend] = {}
        try:
            for location, spec in zip(self._locations, operators, strict=True):
                if spec.keyed and not finished:
                    backends[spec.id] = self._backend(location, spec, isolates=isolates)
            network = self._network_input(timers, writer)
            parts = SubtaskParts(
                self._descriptor,
                chain,
                outputs,
                source,
                network,
                self._input(source, network),
                backends,
                self._values,
                self._batches,
                self._files.written,
                timers,
                self._sent_events,
                None if writer is None else InFlight(BarrierSender(outputs, writer, timers), writer),
            )
            self._restore_channels(parts)
        except BaseException as error:
            for backend in backends.values():
                close_after(error, backend.close)
            raise
        self._open(parts)
        return Subtask(parts, self._gateway, runner, self._clock)

    def _shape(self, left_out: int) -> tuple[Sequence[int] | None, Collection[int] | None]:
        """Producers and emitting operators of the chain, which lacks the first `left_out` operators."""
        if self._descriptor.finished_before:
            return None, None  # no record passes through the chain
        vertex = self._vertex
        indices = range(len(vertex.operators))
        with_edge = {spec.operator for spec in self._descriptor.subtask.outputs if spec.tag is None}
        emitting = [i for i in indices if vertex.operators[i].id in with_edge or not vertex.readers(i)]
        producers = [vertex.producer(i) for i in indices[left_out:]]
        return [max(producer - left_out, -1) for producer in producers], [i - left_out for i in emitting]

    def _input(self, source: SourceOperator | None, network: NetworkInput | None) -> TaskInput:
        if self._descriptor.finished_before:
            return EndsOnlyInput(self._locations[0], network)
        if network is not None:
            return network
        if source is None:
            msg = f"{self._descriptor.id} has neither a source nor channels"
            raise ValueError(msg)
        return SourceInput(source)

    def _outputs(self, ids: Sequence[str]) -> SubtaskOutputs:
        return SubtaskOutputs(
            self._descriptor.subtask.outputs,
            self._descriptor.id.index,
            self._batches,
            self._gateway.send,
            self._descriptor.config,
            dict(zip(ids, self._locations, strict=True)),
        )

    def _restore_channels(self, parts: SubtaskParts) -> None:
        """Put the in-flight data of the checkpoint before new data."""
        restore = self._descriptor.restore
        if restore is not None and restore.channels is not None:
            trusted = self._trusts_snapshots
            careful = None if trusted else BatchCodec(False, self._descriptor.classes, thorough=True)
            restore_channels(
                restore.channels,
                self._descriptor.subtask,
                self._files.place(restore.location),
                careful or self._batches,
                parts.network,
                parts.outputs,
                decode_all=not trusted,
            )

    def _make_operators(self, first: int, *, only_sinks: bool) -> Sequence[tuple[OperatorLocation, Operator]]:
        """Make the operators from index `first`; with `only_sinks` only sinks, which may have to commit."""
        made = []
        for location, spec in list(zip(self._locations, self._vertex.operators, strict=True))[first:]:
            if only_sinks and not spec.has_transactions:
                continue
            assert spec.factory is not None, f"{spec.id} has no factory"
            try:
                made.append((location, spec.factory()))
            except OPERATOR_ERRORS:
                raise
            except BaseException as error:  # users' objects are copied here
                raise error_at(location, f"making {spec.name}", error) from error
        return made

    def _open(self, parts: SubtaskParts) -> None:
        contexts = {spec.id: self._context(index, parts) for index, spec in enumerate(self._vertex.operators)}
        try:
            parts.chain.open({id: context for id, context in contexts.items() if id in parts.chain.ids})
            if parts.source is not None:
                head = self._descriptor.operators[0]
                has_enumerator = isinstance(head.source, EnumeratesSplits)
                parts.source.open(
                    contexts[head.id],
                    self._descriptor.splits,
                    self._sent_events.sender_of(head.id, is_counted=False) if has_enumerator else None,
                    lambda report: self._gateway.operator_event(head.id, report),
                )
        except BaseException as error:
            close_after(error, parts.close)
            raise

    def _context(self, index: int, parts: SubtaskParts) -> OperatorContext:
        spec = self._vertex.operators[index]
        restore = self._restored(spec.id)
        lists: dict[str, list[Any]] = {}
        if restore is not None:
            lists = {name: list(map(self._values.loads, atoms)) for name, atoms in restore.lists.items()}
        return OperatorContext(
            location=self._locations[index],
            connector=ConnectorContext(
                self._descriptor.job_id,
                self._descriptor.job_name,
                spec.id,
                self._descriptor.id.index,
                self._vertex.parallelism,
                self._descriptor.attempt,
                self._clock,
            ),
            keyed_state=parts.backends.get(spec.id),
            restored=lists,
            is_restored=restore is not None,
            transactional=self._descriptor.config.checkpointing is not None,
            restored_permit=self._descriptor.restored_permit,
            restored_raw=RestoredRawState(self._raw(restore)),
            send=None if spec.coordinator is None else self._sent_events.sender_of(spec.id),
            lists=ListStates(
                {} if restore is None else restore.unasked,
                self._values.loads,
                lists,
                "" if spec.stateful else f'state needs an operator with an id: {spec.name}, id="..."',
            ),
            watermark_of=None if index or parts.network is None else parts.network.watermarks.of_input,
            batches=self._kept_batches,
            open_event_loop=self._open_event_loop,
            warn=partial(self._gateway.warn, spec.id),
        )

    def _restored(self, operator: str) -> OperatorRestore | None:
        restore = self._descriptor.restore
        return None if restore is None else restore.operators.get(operator)

    def _raw(self, restore: OperatorRestore | None) -> RawState:
        task = self._descriptor.restore
        if restore is None or task is None:
            return RawState()
        files = self._files.restored(task.location)
        return RawState(restore.raw_operator, read_raw_keyed(restore.raw_keyed, self._key_groups, files))

    def _only_reads(self, source: SourceOperator | None, operators: Sequence[Operator]) -> bool:
        """Whether no user code in this subtask can change or keep a record."""
        selectors = [spec.partitioner.key_selector for spec in self._descriptor.subtask.outputs]
        return (
            (source is None or source.only_reads)
            and all(operator.only_reads for operator in operators)
            and all(selector is None or only_reads(selector) for selector in selectors)
        )

    def _backend(
        self, location: OperatorLocation, spec: OperatorSpec, *, isolates: bool
    ) -> KeyedStateBackend:
        takes_snapshots = self._descriptor.config.checkpointing is not None
        setup = BackendSetup(
            spec.id,
            self._vertex.max_parallelism,
            self._key_groups,
            self._values,
            takes_snapshots,
            self._clock,
            isolates,
        )
        backend = self._empty_backend(spec.state_backend or self._descriptor.config.state_backend, setup)
        try:
            self._restore_backend(backend, location)
        except BaseException as error:
            close_after(error, backend.close)
            raise
        return backend

    def _empty_backend(self, config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
        if isinstance(config, HeapState):
            return HeapKeyedStateBackend(setup)
        if self._open_state_backend is None:
            msg = f"operator {setup.operator!r} keeps its state in {config}, which this process can't open"
            raise ConfigurationError(msg)
        return self._open_state_backend(config, setup)

    def _restore_backend(self, backend: KeyedStateBackend, location: OperatorLocation) -> None:
        restore, task = self._restored(location.operator), self._descriptor.restore
        if restore is None or task is None or not restore.keyed:
            return
        files = self._files.restored(task.location)
        shared_id = None if task.is_savepoint else task.checkpoint_id
        try:
            backend.restore(restore.keyed, files, restored_checkpoint_id=shared_id)
        except StateMismatchError as error:
            raise OperatorError(location, str(error)) from error
        except CorruptSnapshotError as error:
            if not isinstance(error.__cause__, CodecError):
                raise
            # The checksum matches, so the bytes are intact, but this program can't decode them.
            what = (
                f"its state can't be read here: {error}. Keep classes of values under the names that they "
                "had when the snapshot was taken, or give the operator a new id; it then starts empty"
            )
            raise OperatorError(location, what) from StateMismatchError(what)

    def _channel_state_writer(self, runner: AsyncRunner) -> AsyncChannelStateWriter | None:
        checkpointing = self._descriptor.config.checkpointing
        if checkpointing is None or not checkpointing.unaligned:
            return None

        def files(checkpoint_id: int) -> StateFiles:
            path = self._paths.channel_state(
                checkpoint_id=checkpoint_id,
                attempt=self._descriptor.attempt,
                vertex=self._vertex.id,
                subtask=self._descriptor.id.index,
            )
            return StateFiles(self._storage, lambda: path, inline_limit=self._inline_limit)

        subtask = self._descriptor.subtask
        return AsyncChannelStateWriter(subtask.input_ids, subtask.output_ids, files, runner)

    def _network_input(
        self, timers: TaskTimers, writer: AsyncChannelStateWriter | None
    ) -> NetworkInput | None:
        inputs = self._descriptor.subtask.inputs
        if not inputs:
            return None
        config = self._descriptor.config
        semantics = Semantics(end_of_partition=config.end_of_partition)
        settings = BarrierSettings.of_job(config.checkpointing, semantics)
        capture = None if writer is None else InFlightCapture(writer, timers, channels_to_align(inputs))
        gate = InputGate.of_specs(inputs, self._clock, as_seconds(config.advanced.gap_timeout))
        checkpointed = create_input_gate(settings, gate, self._clock, capture, self._alignment_storage())
        return NetworkInput(checkpointed, [spec.edge.input_index for spec in inputs], self._batches)

    def _alignment_storage(self) -> Callable[[], BufferStorage] | None:
        config, open_file = self._descriptor.config, self._open_spill_file
        checkpointing, memory = config.checkpointing, config.advanced.alignment_memory
        if checkpointing is None or open_file is None:
            return None
        return lambda: BufferStorage(open_file, memory, checkpointing.max_alignment_bytes)
