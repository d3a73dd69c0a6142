"""`UserJob`: a user's graph as a job of the simulation, shrunk to a short run.

Settings keep their meaning: the mode, unaligned checkpoints, failover. Durations and sizes become small. So a
run of a few dozen records has many checkpoints, full channels and restarts.

Users' objects are copied as on a cluster: pickled once, unpacked for each attempt of a subtask. Data that one
subtask keeps in its function, its closure or its sink is then unknown to the others, and lost with its
attempt. Modules, classes, code and the globals of functions are shared. On a cluster every process imports
its own, so state that users' code keeps there is not simulated. The *world*, which is everything that
`output` reads, is shared too. It outlives all processes, and must not be copied.

Faults strike operators through replaced methods. In most runs rows come one by one, so a slice may end after
any row. In other runs rows come two at a time, or in whole batches. The process may die before a sink takes a
batch, before each flush, event, snapshot and notification of an operator, and after a commit. Users' code may
be slow, or fail.

A user's source is slowed down, so that checkpoints and failures happen while it still reads. Otherwise it
would read a test's input of a few dozen records in one step. Only `poll` changes: it returns fewer records,
and no records during a pause.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from penstock.runtime.config.checkpointing import Alignment, Checkpointing, KeepAfter
from penstock.runtime.config.job_config import ALIGNMENT_MEMORY, JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.executor import check_job
from penstock.runtime.graph.job_graph import JobGraph, OperatorSpec, Partitioning
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.operators.functions.record_functions import MapBatchesOperator
from penstock.runtime.operators.operator import Operator, OperatorFactory, Output
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import ConnectorContext, Polled, Source
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.testing.simulation.world.faults import Moment
from penstock.runtime.testing.simulation.world.world import World


@dataclass(frozen=True, slots=True)
class Strikes:
    """Hooks of the simulation around users' code.

    Attributes:
        record: Hook before users' code takes a record; it takes time and may fail.
        effect: Hook before users' code has an effect outside; the process may die.
        committed: Hook after a commit.
    """

    record: Callable[[], None]
    effect: Callable[[], None]
    committed: Callable[[], None]


def watched(operator: Operator, strikes: Strikes, rows: int = 1) -> Operator:
    """Let faults strike an operator, which takes up to `rows` records at a time (0 for no limit)."""
    is_sink = isinstance(operator, SinkOperator)
    takes_batches = isinstance(operator, MapBatchesOperator)
    process_part, notify = operator.process, operator.notify_checkpoint_complete

    def process(batch: Batch) -> Iterator[Output]:
        is_whole = takes_batches or not isinstance(batch, RowBatch)
        for part in [batch] if is_whole else batch.slices(rows or max(1, len(batch))):
            for _ in range(len(part)):
                strikes.record()
            if is_sink:
                strikes.effect()
            yield from process_part(part)

    def notify_checkpoint_complete(permit: CommitPermit) -> None:
        strikes.effect()
        notify(permit)
        if is_sink:
            strikes.committed()
            strikes.effect()

    def after_effect(call: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*arguments: Any) -> Any:
            strikes.effect()
            return call(*arguments)

        return struck

    replaced: dict[str, Any] = {
        "process": process,
        "notify_checkpoint_complete": notify_checkpoint_complete,
        "flush": after_effect(operator.flush),
        "prepare_snapshot_pre_barrier": after_effect(operator.prepare_snapshot_pre_barrier),
        "handle_event": after_effect(operator.handle_event),
        "snapshot": after_effect(operator.snapshot),
    }
    for name, method in replaced.items():
        object.__setattr__(operator, name, method)
    return operator


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of sources.

    Attributes:
        chunk: Maximum records of one poll.
        pause: Virtual seconds between two polls.
        rows: Maximum records of an operator at a time; 0 for no limit.
    """

    chunk: int
    pause: float
    rows: int = 1


def paced(source: Source[Any], pace: Pace) -> Source[Any]:
    """Return the source with this pace, or unchanged if its class can't be extended."""

    def reader(self: Any, context: ConnectorContext, splits: Any) -> Any:
        return _paced_reader(kind.reader(self, context, splits), context, pace)

    kind = type(source)
    _extend(source, {"reader": reader})
    return source


def _paced_reader(reader: Any, context: ConnectorContext, pace: Pace) -> Any:
    kind = type(reader)
    ready_at = [0.0]

    def poll(self: Any, max_rows: int) -> Any:
        now = context.clock.monotonic()
        if now < ready_at[0]:
            return Polled(ready_at=ready_at[0])
        ready_at[0] = now + pace.pause
        return kind.poll(self, min(max_rows, pace.chunk))

    _extend(reader, {"poll": poll})
    return reader


def _extend(thing: Any, methods: dict[str, Any]) -> None:
    """Override methods of one object, if its class can be extended; errors still show that class."""
    kind = type(thing)
    try:
        extended = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})
        object.__setattr__(thing, "__class__", extended)
    except TypeError:  # a C class, a final class, or one that checks subclass arguments
        return


#: Markers of an empty and of a filled closure cell.
_EMPTY: Final = "empty"

_FILLED: Final = "filled"


class PackedCode:
    """Pickled objects; each `unpack` returns new copies.

    Args:
        world: Objects that all copies share.

    Raises:
        GraphError: An object can't be sent to another process.

    Example:
        >>> def counter(results):
        ...     seen = []
        ...     return lambda n: (seen.append(n), results.append(n), len(seen))[-1]
        >>> results = []
        >>> packed = PackedCode(counter(results), world=[results])
        >>> packed.unpack()(1), packed.unpack()(2), results
        (1, 1, [1, 2])
    """

    def __init__(self, what: Any, world: Iterable[Any] = ()) -> None:
        self._shared: list[Any] = []
        file = io.BytesIO()
        try:
            _Packer(file, self._shared, set(map(id, world))).dump(what)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            msg = (
                f"the job can't be sent to another process: {error}. If output() reads this object, "
                "let build() return it together with the environment"
            )
            raise GraphError(msg) from error
        self.data = file.getvalue()

    def unpack(self) -> Any:
        return _Unpacker(io.BytesIO(self.data), self._shared).load()


class _Packer(pickle.Pickler):
    """Pickles functions by value, and refers to shared objects by number."""

    def __init__(self, file: io.BytesIO, shared: list[Any], world: set[int]) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared
        self._world = world
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not self._is_shared(obj):
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self._shared)
            self._shared.append(obj)
        return self._numbers[id(obj)]

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, FunctionType):
            return NotImplemented
        cells = obj.__closure__ or ()
        self._world.add(id(obj.__globals__))
        made = (obj.__code__, obj.__globals__, obj.__name__, len(cells))
        state = (
            obj.__qualname__,
            obj.__defaults__,
            obj.__kwdefaults__,
            obj.__dict__,
            list(map(_read, cells)),
        )
        return _new_function, made, state, None, None, _fill_function

    def _is_shared(self, obj: Any) -> bool:
        if isinstance(obj, CodeType | ModuleType | type) or id(obj) in self._world:
            return True
        if isinstance(obj, FunctionType):
            return not (obj.__closure__ or obj.__defaults__ or obj.__kwdefaults__ or obj.__dict__)
        return _refuses_to_travel(obj)


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]


def _refuses_to_travel(obj: Any) -> bool:
    """Whether an object's `__reduce__` refuses pickling, as that of a collector does."""
    reduce = getattr(type(obj), "__reduce__", None)
    if not isinstance(reduce, FunctionType):
        return False
    try:
        reduce(obj)
    except TypeError:
        return True
    return False


def _read(cell: CellType) -> tuple[str, Any]:
    try:
        return _FILLED, cell.cell_contents
    except ValueError:
        return _EMPTY, None


def _new_function(code: CodeType, names: dict[str, Any], name: str, cells: int) -> FunctionType:
    return FunctionType(code, names, name, None, tuple(CellType() for _ in range(cells)))


def _fill_function(function: FunctionType, state: tuple[Any, ...]) -> None:
    qualname, defaults, keyword_defaults, attributes, cells = state
    function.__qualname__ = qualname
    function.__defaults__ = defaults
    function.__kwdefaults__ = keyword_defaults
    function.__dict__.update(attributes)
    for cell, (kind, value) in zip(function.__closure__ or (), cells, strict=True):
        if kind == _FILLED:
            cell.cell_contents = value


def world_of(world: Any, output: Any) -> list[Any]:
    """Objects that outlive processes: `build`'s world, the objects that `output` names, and their parts."""
    found: list[Any] = []
    for shared in (world, getattr(output, "__self__", None), *_named_by(output)):
        found.append(shared)
        if isinstance(shared, Mapping):
            found.extend(shared.values())
        elif isinstance(shared, tuple | list | set | frozenset):
            found.extend(shared)
        elif hasattr(shared, "__dict__") and not isinstance(shared, ModuleType | type | FunctionType):
            found.extend(vars(shared).values())
    return [shared for shared in found if not isinstance(shared, int | float | str | bytes | None)]


def _named_by(function: Any) -> list[Any]:
    if not isinstance(function, FunctionType):
        return []
    named = [value for kind, value in map(_read, function.__closure__ or ()) if kind == _FILLED]
    known = function.__globals__
    named += [known[name] for name in function.__code__.co_names if name in known]
    return [value for value in named if not isinstance(value, ModuleType | type | FunctionType)]


#: Exchanges whose records depend on the number of subtasks.
_FIXED = (Partitioning.BROADCAST, Partitioning.GLOBAL)


class UserJob:
    """The environment, and the world if there is one, that `build` returns for one run.

    Raises:
        GraphError: The graph can't be built, or can't be sent to processes.
        ConfigurationError: The job's settings can't be simulated.
    """

    def __init__(
        self, build: Callable[[], Any], output: Callable[..., Any], *, chaining: bool = True
    ) -> None:
        built = build()
        self._has_world = isinstance(built, tuple)
        if self._has_world and len(built) != 2:
            msg = f"build() returned a tuple of {len(built)}; return an environment, or (environment, world)"
            raise GraphError(msg)
        self.world: Any
        environment, self.world = built if self._has_world else (built, None)
        if not isinstance(environment, StreamEnvironment):
            msg = f"build() returned {environment!r:.80}; return a StreamEnvironment, or (environment, world)"
            raise GraphError(msg)
        self.graph: JobGraph = environment.build(chaining=chaining and environment.chaining)
        self.config: JobConfig = environment.config
        self._output = output
        self._shared = world_of(self.world, output)
        if self.config.checkpointing is None:
            msg = (
                f"the job {environment.name!r} takes no checkpoints, so it can't recover from a failure; "
                "give its environment checkpointing=Checkpointing(every=...)"
            )
            raise ConfigurationError(msg)
        check_job(self.graph, self.config)

    @property
    def rescalable(self) -> tuple[str, ...]:
        """Vertices whose parallelism may change without changing the records that they receive."""
        fixed = {edge.target_vertex for edge in self.graph.edges if edge.partitioner.partitioning in _FIXED}
        return tuple(v.id for v in self.graph.vertices if v.id not in fixed and v.max_parallelism > 1)

    @property
    def uploading(self) -> frozenset[str]:
        """Vertices with keyed state, whose snapshots may be written as files."""
        return frozenset(v.id for v in self.graph.vertices if any(o.keyed for o in v.operators))

    def code(self, world: World, pace: Pace) -> CarriedCode:
        return CarriedCode(self.graph, self._shared, world, pace)

    def output(self) -> Any:
        """The output of the sinks; iterators are read to their end."""
        left = self._output(self.world) if self._has_world else self._output()
        return list(left) if hasattr(left, "__next__") else left

    def clean_up(self) -> None:
        cleanup = getattr(self.world, "cleanup", None)
        if callable(cleanup):
            cleanup()


class CarriedCode:
    """The `UserCode` of a run; all processes share the objects of `shared`."""

    def __init__(self, graph: JobGraph, shared: list[Any], world: World, pace: Pace) -> None:
        self._world = world
        self._pace = pace
        self._graph = PackedCode(graph, shared)
        self._operators = {v.id: PackedCode(v.operators, shared) for v in graph.vertices}

    def graph_for_master(self) -> ExecutionGraph:
        return build_execution_graph(self._graph.unpack())

    def task_for_process(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        world, vertex = self._world, task.subtask.vertex
        strikes = Strikes(world.record_processed, effect, lambda: world.on_moment(Moment.COMMITTED))
        operators = tuple(_watched(o, strikes, self._pace) for o in self._operators[vertex.id].unpack())
        return replace(task, subtask=replace(task.subtask, vertex=replace(vertex, operators=operators)))


def short_run_config(config: JobConfig, draws: Draws) -> JobConfig:
    given = config.checkpointing
    assert given is not None, "a job without checkpoints is refused"
    stores = given.alignment is Alignment.STORE
    return replace(
        config,
        checkpointing=_short_checkpointing(given, draws),
        restart=FixedDelay(attempts=10_000, delay=draws.pick((0.0, 0.01, 0.5))),
        buffer_timeout=draws.pick((0.0, 0.001, 0.01, 0.1)),
        advanced=replace(
            config.advanced,
            buffer_rows=draws.pick((1, 1, 2, 3, 5, 8, 20)),
            credits=draws.pick((1, 1, 2, 2, 3, 5, 8)),
            slice_duration=draws.pick((0.0005, 0.01)),
            gap_timeout=1000.0,
            alignment_memory=draws.pick((0, 600, 2_000)) if stores else ALIGNMENT_MEMORY,
        ),
    )


def _short_checkpointing(given: Checkpointing, draws: Draws) -> Checkpointing:
    if given.alignment is Alignment.STORE:
        limit = None if given.max_alignment_bytes is None else draws.pick((50, 200))
        given = replace(given, max_alignment_bytes=limit)
    return replace(
        given,
        every=draws.pick((0.003, 0.01, 0.03, 0.1)),
        storage="memory:",
        timeout=draws.pick((0.1, 0.3, 1.0, 10.0)),
        min_pause=draws.pick((0.0, 0.0, 0.005)),
        keep_after=KeepAfter.ALWAYS,
        tolerable_failures=None if given.tolerable_failures is None else draws.pick((None, 0, 2)),
        aligned_timeout=None if given.aligned_timeout is None else draws.pick((0.001, 0.01, 0.05)),
    )


def _watched(spec: OperatorSpec, strikes: Strikes, pace: Pace) -> OperatorSpec:
    if spec.source is not None:
        return replace(spec, source=paced(spec.source, pace))
    assert spec.factory is not None, f"{spec.id} has no factory"

    def make(factory: OperatorFactory = spec.factory) -> Operator:
        return watched(factory(), strikes, pace.rows)

    return replace(spec, factory=make)
