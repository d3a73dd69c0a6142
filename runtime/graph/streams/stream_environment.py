"""`StreamEnvironment`: the start of a program. It makes streams, builds their graph and runs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.checks import Location, location
from penstock.runtime.config.job_config import AllowPickle, JobConfig, StateBackend
from penstock.runtime.config.restart import RestartConfig
from penstock.runtime.errors import GraphError
from penstock.runtime.graph.chaining import build_job_graph
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.drawing import graph_page
from penstock.runtime.graph.executor import (
    Executor,
    HoldsInterrupts,
    JobHandle,
    JobResult,
    check_job,
    find_executor,
)
from penstock.runtime.graph.graph_info import describe, graph_info
from penstock.runtime.graph.job_graph import DEAD_LETTERS, JobGraph
from penstock.runtime.graph.stream_graph import Changes
from penstock.runtime.graph.streams.changes import GivesChanges
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    check_flag,
    check_parallelism,
    checked,
    checked_with_options,
    need_object,
    refusals,
    refuse,
)
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.foreign_names import refuse_foreign_environment
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.names import checked_name, unknown_attribute
from penstock.runtime.operators.source import Source
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.user_location import user_location

T = TypeVar("T")


class StreamEnvironment:
    """Makes the streams of one job and runs it.

    Args:
        name: Name of the job.
        parallelism: Number of subtasks of operators without a parallelism of their own.
        max_parallelism: Number of key groups, and maximum parallelism of every operator. By default 128,
            more for operators with over 85 subtasks; it can't change once a job has saved keyed state.
        checkpointing: Interval and storage of checkpoints; none by default.
        restart: Restart strategy. By default a job with checkpoints is restarted with growing delays. A job
            without them fails for good, because a restart would begin from scratch.
        buffer_timeout: Maximum time for which a record waits for others before it is sent: a `timedelta` or
            seconds, 0.1 by default. If the receiver keeps up, a record waits at most a tenth of that time.
        allow_pickle: Whether values without a codec of their own may be pickled; true by default. See
            `JobConfig`.
        state_backend: Backend of keyed state: `HeapState()`, the default, or `RocksDB()`.
        chaining: `False` runs every operator in separate subtasks, to observe or measure each one.
        config: Further settings; the arguments of this call take precedence.
        executor: Runs the job; by default the installed executor, which is Ray.

    Raises:
        GraphError: An argument is invalid.
        ConfigurationError: A setting has an invalid value.

    Example:
        >>> env = StreamEnvironment("even-numbers", parallelism=2)
        >>> numbers = env.from_collection("numbers", range(10)).filter(lambda n: n % 2 == 0)
        >>> numbers
        DataStream(filter(lambda))
    """

    @checked
    def __init__(
        self,
        name: str = "job",
        *,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        checkpointing: Checkpointing | None = None,
        restart: RestartConfig | None = None,
        buffer_timeout: Duration | None = None,
        allow_pickle: AllowPickle | None = None,
        state_backend: StateBackend | None = None,
        chaining: bool = True,
        config: JobConfig | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._name = _checked_name(name)
        self._defined_at = user_location()
        check_parallelism("StreamEnvironment", parallelism)
        if max_parallelism is not None:
            check_parallelism("StreamEnvironment", max_parallelism, "max_parallelism")
        given: dict[str, Any] = {
            "checkpointing": checkpointing,
            "restart": restart,
            "buffer_timeout": buffer_timeout,
            "allow_pickle": allow_pickle,
            "state_backend": state_backend,
        }
        changes = {setting: value for setting, value in given.items() if value is not None}
        if config is not None:
            need_object("StreamEnvironment: config", config, JobConfig)
        if executor is not None:
            need_object("StreamEnvironment", executor, Executor, ": it has no method `submit(job, config)`")
        check_flag("StreamEnvironment", "chaining", chaining)
        self._config = replace(config if config is not None else JobConfig(), **changes)
        self._chaining = chaining
        self._executor = executor
        self._builder = GraphBuilder(self, DataStream, parallelism, max_parallelism)

    if not TYPE_CHECKING:  # a type checker still refuses unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Suggest the name that Penstock has for a name of other systems, or else the nearest name."""
            refuse_foreign_environment(name)
            raise unknown_attribute(self, name)

    @property
    def name(self) -> str:
        """The job's name."""
        return self._name

    @property
    def config(self) -> JobConfig:
        """The job's settings."""
        return self._config

    @property
    def executor(self) -> Executor:
        """The given executor, or else the installed one.

        Raises:
            ConfigurationError: No executor is installed.
        """
        return self._executor if self._executor is not None else find_executor()

    @property
    def chaining(self) -> bool:
        """Whether operators run in chains."""
        return self._chaining

    @checked_with_options
    def from_source(
        self,
        id: str,
        source: Source[T],
        *,
        watermarks: WatermarkStrategy[T] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T]:
        """A stream of the records of `source`.

        Args:
            id: The source's id; a restore finds the source's position by this id.
            source: An object with the methods of the `Source` protocol.
            watermarks: Strategy that assigns timestamps to records. Event time advances with the slowest
                split; with `assign_timestamps_and_watermarks` it advances with all records of a subtask
                together.
            **options: See `OperatorOptions`.

        Raises:
            GraphError: An argument is invalid; the message names the user's line.
        """
        methods = "methods `splits(parallelism)` and `reader(context, splits)`"
        need_object("from_source", source, Source, f": it must have the {methods}")
        if watermarks is not None:
            need_object("from_source: watermarks", watermarks, WatermarkStrategy)
        what = type(source).__name__
        column = source.change_kind if isinstance(source, GivesChanges) else None
        return self._builder.add(
            "source",
            what,
            None,
            (),
            id,
            options,
            source=source,
            watermarks=watermarks,
            side_outputs=(DEAD_LETTERS,),
            changes=None if column is None else Changes(column),
        )

    @checked_with_options
    def from_collection(
        self, id: str, values: Iterable[T], **options: Unpack[OperatorOptions]
    ) -> DataStream[T]:
        """A stream of values from this program, for tests and first steps.

        Args:
            id: The source's id.
            values: Values of the stream, read once in this call, and sent with the job.
            **options: See `OperatorOptions`.
        """
        if not isinstance(values, Iterable):
            refuse(f"from_collection: can't iterate over {values!r:.80}")
        return self.from_source(id, CollectionSource(values), **options)

    @contextmanager
    def temporarily(self) -> Iterator[None]:
        """Remove the operators added in this block when it ends; only jobs submitted inside have them.

        Example:
            >>> env = StreamEnvironment()
            >>> numbers = env.from_collection("numbers", [1])
            >>> with env.temporarily():
            ...     small = numbers.filter(lambda n: n < 10, id="small")
            >>> numbers.filter(lambda n: n > 10, id="small")
            DataStream(small)
        """
        graph = self._builder.graph
        before = len(graph.nodes)
        try:
            yield
        finally:
            graph.shrink_to(before)

    @checked
    def build(self, *, chaining: bool | None = None) -> JobGraph:
        """Chain the operators into the job graph that would be deployed.

        Records of a stream without a reader are dropped.

        Args:
            chaining: Whether operators are chained; `None` uses the environment's setting.

        Raises:
            GraphError: The graph has no operator, or no sink.
        """
        chained = self._chaining if chaining is None else chaining
        check_flag("build", "chaining", chained)
        nodes = self._builder.graph.nodes
        if not nodes:
            msg = f"{self._defined_at}: the job {self._name!r} is empty; begin with from_source(id, source)"
            raise GraphError(msg)
        if not any(node.operator.is_sink for node in nodes):
            last = nodes[-1].operator
            msg = (
                f"{last.defined_at}: the job {self._name!r} has no sink, so it has no results; "
                f"end a stream with sink(id, sink) (its last operator is {last.name})"
            )
            raise GraphError(msg)
        return build_job_graph(self._builder.graph, self._name, chaining=chained)

    def describe(self) -> str:
        """Return a plain-text drawing of the job graph."""
        return describe(graph_info(self.build()))

    def __repr__(self) -> str:
        return f"StreamEnvironment({self._name!r})"

    def _repr_html_(self) -> str:
        nodes = self._builder.graph.nodes
        if not nodes:
            return graph_page(repr(self), self.build)
        note = "" if any(node.operator.is_sink for node in nodes) else "no sink yet"
        graph, name, chaining = self._builder.graph, self._name, self._chaining
        return graph_page(repr(self), lambda: build_job_graph(graph, name, chaining=chaining), note)

    @checked
    def submit(
        self,
        name: str | None = None,
        *,
        restore_from: Location | None = None,
        allow_non_restored_state: bool = False,
    ) -> JobHandle:
        """Start the job and return at once.

        The job outlives this program, unless the program started the cluster.

        Args:
            name: Name of the job; by default the environment's.
            restore_from: Path or URL of the initial snapshot: a savepoint's folder, a retained
                checkpoint (`<storage>/<job>/chk-...`), or `<storage>/<job>` for a job's newest checkpoint
                or savepoint. State is found by operator id, at any parallelism.
            allow_non_restored_state: Whether to drop the state of operators that this job does not have,
                instead of failing.

        Raises:
            GraphError: The graph can't be built.
            ConfigurationError: No executor is installed, or a state backend is missing.
            DeploymentError: The executor can't place the job on the cluster.
        """
        job = self.build()
        if name is not None:
            job = replace(job, name=_checked_name(name))
        check_flag("submit", "allow_non_restored_state", allow_non_restored_state)
        if restore_from is not None:
            with refusals():
                start = location("restore_from", restore_from)
            job = replace(job, restore_from=start, allow_non_restored_state=allow_non_restored_state)
        elif allow_non_restored_state:
            refuse("allow_non_restored_state=True has no effect without restore_from=...")
        check_job(job, self._config)
        return self.executor.submit(job, self._config)

    @checked
    def run(
        self,
        name: str | None = None,
        *,
        timeout: Duration | None = None,
        progress: bool = True,
        ui: bool = False,
        restore_from: Location | None = None,
        allow_non_restored_state: bool = False,
    ) -> JobResult:
        """Start the job and wait for its end.

        Args:
            name: Name of the job; by default the environment's.
            timeout: Maximum time to wait, as a `timedelta` or seconds; `None` waits for ever.
            progress: Whether to show a live line with records in and out, last checkpoint and restarts.
                Outside terminals and notebooks, a plain line is printed every two seconds.
            ui: Whether to open a browser that shows the job while it runs.
            restore_from: The snapshot to start from; see `submit`.
            allow_non_restored_state: See `submit`.

        Raises:
            GraphError: The graph can't be built.
            JobFailedError: The job failed; the message begins with the root cause.
            JobCancelledError: The job was cancelled.
            JobTimeoutError: The job did not end within `timeout`; it keeps running.
            KeyboardInterrupt: Ctrl-C was pressed. A job that had not begun is ended. Any other job
                continues, unless this program has started its cluster. A note on the exception names the job
                and, if it ends with the program, the command that continues it.
        """
        if timeout is not None:
            seconds_in("timeout", timeout)
        executor = self.executor
        with executor.interrupts_held() if isinstance(executor, HoldsInterrupts) else nullcontext():
            handle = self.submit(
                name, restore_from=restore_from, allow_non_restored_state=allow_non_restored_state
            )
            if ui:
                handle.ui()
            return handle.wait(timeout, progress=progress)


def _checked_name(name: object) -> str:
    with refusals():
        return checked_name("the name of the job", name)
