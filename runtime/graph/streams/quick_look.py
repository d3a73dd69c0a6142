"""Quick looks: the rows of a stream, in the program that builds it.

`take`, `collect`, `show` and `to_pandas` run the part of the graph that leads to the stream, with a sink that
brings rows back. Other streams and all of the program's sinks are left out, so a look changes nothing
outside. The job of a look takes no checkpoints, is not restarted, and starts from no snapshot. It ends with
the look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import NoRestart
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.chaining import build_job_graph
from penstock.runtime.graph.drawing import graph_page
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode, Upstream
from penstock.runtime.graph.streams.checked_call import refuse
from penstock.runtime.operators.protocols import Sink
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.user_location import user_location

if TYPE_CHECKING:
    import pandas as pd

    from penstock.runtime.graph.streams.graph_builder import GraphBuilder
    from penstock.runtime.graph.streams.stream_environment import StreamEnvironment

#: pandas is not imported before a caller wants one.
DataFrame: TypeAlias = "pd.DataFrame"

_SINK: Final = "quick-look"


@runtime_checkable
class BringsRows(Protocol):
    """An executor that can bring rows of a job back to the program."""

    def rows(
        self,
        job: Callable[[Sink[Any]], JobGraph],
        config: JobConfig,
        limit: int | None,
        timeout: Duration | None,
    ) -> list[Any]:
        """Run a job, and give the records that reach its sink.

        Args:
            limit: Cancel the job when so many are there; `None` waits for its end.
            timeout: Seconds after which the job is cancelled; `None` waits for ever.

        Raises:
            JobFailedError: The job failed.
            JobTimeoutError: The time was over first.
        """
        ...


def look(
    environment: StreamEnvironment,
    graph: StreamGraph,
    inputs: Sequence[Upstream],
    limit: int | None,
    timeout: Duration | None,
) -> list[Any]:
    """The rows of a stream; see the module's text.

    Raises:
        GraphError: The limit can't be meant.
        ConfigurationError: The executor of the environment can't bring rows back.
    """
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        refuse(f"a quick look needs a number of rows from 0 on, not {limit!r:.80}")
    if timeout is not None:
        seconds_in("timeout", timeout)
    executor = environment.executor
    if not isinstance(executor, BringsRows):
        msg = (
            f"{type(executor).__name__} has no method `rows(job, config, limit, timeout)`, so it brings no "
            "rows back; write them with a sink"
        )
        raise ConfigurationError(msg)
    config = replace(environment.config, checkpointing=None, restart=NoRestart())
    job = partial(job_of_part, environment, graph, tuple(inputs))
    return executor.rows(job, config, limit, timeout)


def job_of_part(
    environment: StreamEnvironment, graph: StreamGraph, inputs: Sequence[Upstream], sink: Sink[Any]
) -> JobGraph:
    """The job that has only what leads to a stream, and the sink behind it."""
    part, places = part_before(graph, [upstream.node for upstream in inputs])
    node = StreamNode(
        kind="sink",
        name="sink(quick look)",
        defined_at=user_location(),
        parallelism=1,
        id=_SINK,
        factory=partial(SinkOperator, sink),
        inputs=tuple(replace(upstream, node=places[upstream.node]) for upstream in inputs),
        stateful=True,
        is_sink=True,
    )
    part.add(node)
    return build_job_graph(part, f"{environment.name} (quick look)", chaining=environment.chaining)


def picture_of(builder: GraphBuilder, inputs: Sequence[Upstream], what: str) -> str:
    def build() -> JobGraph:
        environment = builder.environment
        part, _ = part_before(builder.graph, [upstream.node for upstream in inputs])
        return build_job_graph(part, environment.name, chaining=environment.chaining)

    return graph_page(what, build)


def part_before(graph: StreamGraph, ends: Sequence[int]) -> tuple[StreamGraph, dict[int, int]]:
    """The nodes that lead to some nodes, and these; operators keep the ids that they have in the whole job.

    Returns:
        The part, and the number of each of its nodes by its number in the whole graph.
    """
    wanted = set(ends)
    for number in range(len(graph.nodes) - 1, -1, -1):  # producers have lower numbers
        if number in wanted:
            wanted.update(upstream.node for upstream in graph.node(number).inputs)
    ids, part, places = graph.operator_ids(), StreamGraph(), dict[int, int]()
    for number in sorted(wanted):
        node = graph.node(number)
        inputs = tuple(replace(upstream, node=places[upstream.node]) for upstream in node.inputs)
        places[number] = part.add(replace(node, id=ids[number], inputs=inputs))
    return part, places


def check_pandas() -> None:
    """Fail before anything runs if pandas is not installed.

    Raises:
        ConfigurationError: It is not.
    """
    if find_spec("pandas") is None:
        msg = "to_pandas needs pandas: `pip install pandas`, or use take(n) or collect()"
        raise ConfigurationError(msg)


def print_rows(rows: Iterable[Any]) -> None:
    for row in rows:
        print(row)


def frame_of(rows: Sequence[Any]) -> DataFrame:
    """Rows as a `pandas.DataFrame`: dicts give columns by name, anything else the column `item`."""
    import pandas as pd

    if rows and all(isinstance(row, dict) for row in rows):
        return pd.DataFrame.from_records(list(rows))
    return pd.DataFrame({"item": list(rows)})
