"""`Stream`: the base of all streams; methods that return their rows, and pictures of their graph.

`take`, `collect`, `show` and `to_pandas` run the part of the graph that leads to the stream, with a sink that
returns rows to the program. Other streams and all of the program's sinks are left out, so no sink writes
anything. The job takes no checkpoints, is not restarted, and starts from no snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    runtime_checkable,
)

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import NoRestart
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.chaining import build_job_graph
from penstock.runtime.graph.drawing import graph_page
from penstock.runtime.graph.job_graph import JobGraph, OperatorSpec
from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode, Upstream
from penstock.runtime.graph.streams.checked_call import OperatorOptions, checked, need_object, refuse
from penstock.runtime.operators.coordinators import HasCoordinator
from penstock.runtime.operators.operator import BatchFormats, Operator, TwoInputOperator
from penstock.runtime.operators.sinks import Sink, SinkOperator
from penstock.runtime.operators.user_operator import KeySelector, TwoInputUserOperator, UserOperator
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.user_location import user_location

if TYPE_CHECKING:
    import pandas as pd

    from penstock.runtime.graph.streams.data_stream import DataStream
    from penstock.runtime.graph.streams.graph_builder import GraphBuilder
    from penstock.runtime.graph.streams.stream_environment import StreamEnvironment

#: pandas is imported only when it is needed.
DataFrame: TypeAlias = "pd.DataFrame"

T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class BringsRows(Protocol):
    """An executor that can return rows of a job to the program."""

    def rows(
        self,
        job: Callable[[Sink[Any]], JobGraph],
        config: JobConfig,
        limit: int | None,
        timeout: Duration | None,
    ) -> list[Any]:
        """Run a job, and return the records that reach its sink.

        Args:
            limit: Number of records at which the job is cancelled; `None` waits for its end.
            timeout: Seconds, or a `timedelta`, after which the job is cancelled; `None` waits for ever.

        Raises:
            JobFailedError: The job failed.
            JobTimeoutError: The job did not end within `timeout`.
        """
        ...


def job_of_part(
    environment: StreamEnvironment, graph: StreamGraph, inputs: Sequence[Upstream], sink: Sink[Any]
) -> JobGraph:
    """Return a job with the operators that lead to a stream, and with a sink after them."""
    part, places = part_before(graph, [upstream.node for upstream in inputs])
    factory = partial(SinkOperator, sink)
    operator = OperatorSpec(
        "", "sink(quick look)", factory, defined_at=user_location(), stateful=True, is_sink=True
    )
    upstream = tuple(replace(upstream, node=places[upstream.node]) for upstream in inputs)
    part.add(StreamNode("quick-look", operator, 1, upstream))
    return build_job_graph(part, f"{environment.name} (quick look)", chaining=environment.chaining)


def part_before(graph: StreamGraph, ends: Sequence[int]) -> tuple[StreamGraph, dict[int, int]]:
    """Return the graph of some nodes and all their ancestors; operators keep their ids.

    Also returns a dict from the nodes' numbers in the whole graph to their numbers in this part.
    """
    wanted = set(ends)
    for number in range(len(graph.nodes) - 1, -1, -1):  # producers have lower numbers
        if number in wanted:
            wanted.update(upstream.node for upstream in graph.node(number).inputs)
    ids, part, places = graph.operator_ids(), StreamGraph(), dict[int, int]()
    for number in sorted(wanted):
        node = graph.node(number)
        inputs = tuple(replace(upstream, node=places[upstream.node]) for upstream in node.inputs)
        places[number] = part.add(
            replace(node, operator=replace(node.operator, id=ids[number]), inputs=inputs)
        )
    return part, places


def frame_of(rows: Sequence[Any]) -> DataFrame:
    """Return rows as a `pandas.DataFrame`: dicts become named columns, other rows the column `item`."""
    import pandas as pd

    if rows and all(isinstance(row, dict) for row in rows):
        return pd.DataFrame.from_records(list(rows))
    return pd.DataFrame({"item": list(rows)})


class Stream:
    """One or more outputs of operators; base of all streams."""

    def __init__(self, builder: GraphBuilder, inputs: tuple[Upstream, ...]) -> None:
        """Made by a `StreamEnvironment` and by other streams, not by users."""
        self._builder = builder
        self._inputs = inputs

    @property
    def _is_broadcast(self) -> bool:
        return all(upstream.is_broadcast for upstream in self._inputs)

    def _repr_html_(self) -> str:
        def build() -> JobGraph:
            environment = self._builder.environment
            part, _ = part_before(self._builder.graph, [upstream.node for upstream in self._inputs])
            return build_job_graph(part, environment.name, chaining=environment.chaining)

        return graph_page(repr(self), build)

    def _transformed(
        self,
        operator_id: str,
        operator: Operator,
        options: OperatorOptions,
        *key_selectors: KeySelector,
        inputs: int = 1,
    ) -> DataStream[Any]:
        """Add a user-defined operator, which can be keyed only with a key selector."""
        hint = "; for a plain function use map, flat_map or map_batches" if callable(operator) else ""
        kind = Operator if inputs == 1 else TwoInputOperator
        need_object("transform", operator, kind, hint)
        name, known = type(operator).__name__, get_args(BatchFormats)
        has_two = isinstance(operator, TwoInputOperator)
        if has_two and inputs == 1:
            refuse(f"transform: {name} has two inputs: call connect(other) before transform")
        for method in ("process_element1", "process_element2") if has_two else ("process",):
            if getattr(type(operator), method) is getattr(kind, method) and method not in vars(operator):
                refuse(f"transform: {name} has no method {method}(batch): write one that yields batches")
        if operator.batch_format not in known:
            allowed = ", ".join(map(repr, known))
            refuse(f"transform: {name}.batch_format is {operator.batch_format!r}; it is one of {allowed}")
        is_keyed = any(key_selector is not None for key_selector in key_selectors)
        if operator.keyed and not is_keyed:
            refuse(
                f"transform: {name}.keyed is True, so it needs a keyed stream: call key_by(function) first"
            )
        wrapper: Callable[..., Operator] = UserOperator if inputs == 1 else TwoInputUserOperator
        return self._builder.add(
            "transform",
            name,
            partial(wrapper, operator, *key_selectors),
            self._inputs,
            operator_id,
            options,
            stateful=True,
            keyed=is_keyed,
            makes_watermarks=operator.makes_watermarks,
            coordinator=operator if isinstance(operator, HasCoordinator) else None,
            function=operator,
        )


class QuickLooks(Stream, Generic[T_co]):
    """Methods of a `DataStream` that return its rows to the program."""

    @checked
    def take(self, limit: int = 20, *, timeout: Duration | None = None) -> list[T_co]:
        """Run the part of the graph that leads to this stream, and return its first records.

        No sink of the program gets a record, and the job ends with this call, even for unbounded streams.
        With several subtasks the records are those that arrive first.

        Args:
            limit: Maximum number of records.
            timeout: Maximum seconds to wait; `None` waits for ever.

        Raises:
            JobFailedError: The job failed; the message begins with the root cause.
            JobTimeoutError: The records did not arrive within `timeout`.
        """
        return self._look(limit, timeout)

    @checked
    def collect(self, *, timeout: Duration | None = None) -> list[T_co]:
        """Run the part of the graph that leads to this stream to its end, and return all records.

        The records must fit into the memory of this program. For unbounded streams use `take`.

        Args:
            timeout: Maximum seconds to wait; `None` waits for ever.

        Raises:
            JobFailedError: The job failed; the message begins with the root cause.
            JobTimeoutError: The job did not end within `timeout`.
        """
        return self._look(None, timeout)

    @checked
    def show(self, limit: int = 20, *, timeout: Duration | None = None) -> None:
        """Print the records of `take`, one per line; `take` describes the arguments."""
        for row in self._look(limit, timeout):
            print(row)

    @checked
    def to_pandas(self, limit: int | None = None, *, timeout: Duration | None = None) -> DataFrame:
        """Return the records of `collect`, or of `take(limit)`, as a `pandas.DataFrame`.

        Dicts and Arrow batches become named columns; other records are in the column `item`.

        Args:
            limit: Maximum number of records; `None` returns all.
            timeout: Maximum seconds to wait, as in `take`.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        if find_spec("pandas") is None:
            msg = "to_pandas needs pandas: `pip install pandas`, or use take(n) or collect()"
            raise ConfigurationError(msg)
        return frame_of(self._look(limit, timeout))

    def _look(self, limit: int | None, timeout: Duration | None) -> list[T_co]:
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            refuse(f"the limit is a number of rows, at least 0, not {limit!r:.80}")
        if timeout is not None:
            seconds_in("timeout", timeout)
        environment = self._builder.environment
        executor = environment.executor
        if not isinstance(executor, BringsRows):
            msg = (
                f"{type(executor).__name__} has no method `rows(job, config, limit, timeout)`, so it can't "
                "return rows; write them with a sink"
            )
            raise ConfigurationError(msg)
        config = replace(environment.config, checkpointing=None, restart=NoRestart())
        job = partial(job_of_part, environment, self._builder.graph, self._inputs)
        return executor.rows(job, config, limit, timeout)
