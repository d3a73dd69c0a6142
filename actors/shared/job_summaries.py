"""Summaries of a job's report: work of its vertices, fill of its edges, and its bottleneck.

A vertex is as slow as its slowest subtask, so shares of time have an average and a maximum. Sums of rates
leave out subtasks whose rates are not known yet.

**The bottleneck.** A subtask that can't keep up is busy nearly all of the time. Its senders run out of
credits and are back-pressured, and so are their senders, up to the sources. A back-pressured vertex is not
the cause, because it waits. So the bottleneck is a vertex that is busy, is not back-pressured itself, and has
a back-pressured vertex directly upstream. Among several such vertices, the busiest is the bottleneck. Without
such a vertex, a vertex that is busy nearly all of the time limits the job, for example a source.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, VertexInfo

if TYPE_CHECKING:
    from penstock.actors.shared.job_report import SubtaskInfo
    from penstock.runtime.task.statistics import OutputFill

#: A vertex limits vertices that wait for it if its busiest subtask works at least this share of the time.
BUSY: Final = 0.5
#: The same limit for a vertex that no other vertex waits for.
BUSY_ALONE: Final = 0.9
#: A vertex is back-pressured if a subtask of it has no credit for at least this share of the time.
BACKPRESSURED: Final = 0.1


@dataclass(frozen=True, slots=True)
class VertexSummary:
    """The work of all subtasks of a vertex together.

    Attributes:
        parallelism: Number of its subtasks.
        running: Number of its running subtasks.
        busy: Average share of the time at work. All shares and rates are `None` until one subtask has rates.
        busy_max: Share of the busiest subtask.
        backpressured: Average share of the time in which an output had no credit.
        backpressured_max: Share of the most back-pressured subtask.
        idle: Average share of the time with nothing to do.
        records_in: Records per second from the source or from channels.
        records_out: Records per second to channels.
        bytes_in: Encoded bytes per second from channels.
        bytes_out: Encoded bytes per second to channels.
        total_records_in: Records from the source or from channels in this attempt.
        total_records_out: Records to channels in this attempt.
        watermark: Lowest watermark of its active subtasks, in microseconds since the epoch; `None` while an
            active subtask has none, and if no subtask is active.
        state_bytes: Bytes of its state in the newest completed checkpoint.
    """

    id: str
    parallelism: int
    running: int = 0
    busy: float | None = None
    busy_max: float | None = None
    backpressured: float | None = None
    backpressured_max: float | None = None
    idle: float | None = None
    records_in: float | None = None
    records_out: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    total_records_in: int = 0
    total_records_out: int = 0
    watermark: int | None = None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class EdgeSummary:
    """Fill of the channels of an edge.

    Attributes:
        source: Id of the vertex that sends.
        target: Id of the vertex that receives.
        fill: Share of all channels' credits that is in use; `None` while unknown.
        fill_max: Fill of the fullest channel.
        queued: Elements that wait for a credit.
    """

    source: str
    target: str
    fill: float | None = None
    fill_max: float | None = None
    queued: int = 0


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The vertex that limits a job.

    Attributes:
        busy: Share of the time in which its busiest subtask is at work.
        waiting: Back-pressured vertices upstream of it, the nearest first.

    Example:
        >>> str(Bottleneck("enrich", 0.984, ("parse", "lines")))
        '`enrich` is busy 98 % of the time; `parse` and `lines` wait for it.'
    """

    vertex: str
    busy: float
    waiting: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"`{self.vertex}` is busy {self.busy * 100:.0f} % of the time"
        if not self.waiting:
            return f"{text}; nothing waits for it."
        *others, last = (f"`{vertex}`" for vertex in self.waiting)
        names = f"{', '.join(others)} and {last}" if others else last
        return f"{text}; {names} {'wait' if others else 'waits'} for it."


def summarize_vertices(graph: GraphInfo, subtasks: Sequence[SubtaskInfo]) -> tuple[VertexSummary, ...]:
    of_vertex: defaultdict[str, list[SubtaskInfo]] = defaultdict(list)
    for info in subtasks:
        of_vertex[info.subtask.vertex].append(info)
    return tuple(_vertex(vertex, of_vertex[vertex.id]) for vertex in graph.vertices)


def _vertex(vertex: VertexInfo, subtasks: Sequence[SubtaskInfo]) -> VertexSummary:
    counted = [info.statistics for info in subtasks if info.statistics is not None]
    rates = [info.rates for info in subtasks if info.rates is not None]
    sizes = [info.state_bytes for info in subtasks if info.state_bytes is not None]
    active = [counters.current_watermark for counters in counted if not counters.is_idle]
    reached = [watermark for watermark in active if watermark is not None]
    summary = VertexSummary(
        vertex.id,
        vertex.parallelism,
        sum(info.status is SubtaskStatus.RUNNING for info in subtasks),
        total_records_in=sum(counters.records_in for counters in counted),
        total_records_out=sum(counters.records_out for counters in counted),
        watermark=min(reached) if reached and len(reached) == len(active) else None,
        state_bytes=sum(sizes) if sizes else None,
    )
    if not rates:
        return summary
    count = len(rates)
    return replace(
        summary,
        busy=sum(rate.busy for rate in rates) / count,
        busy_max=max(rate.busy for rate in rates),
        backpressured=sum(rate.backpressured for rate in rates) / count,
        backpressured_max=max(rate.backpressured for rate in rates),
        idle=sum(rate.idle for rate in rates) / count,
        records_in=sum(rate.records_in for rate in rates),
        records_out=sum(rate.records_out for rate in rates),
        bytes_in=sum(rate.bytes_in for rate in rates),
        bytes_out=sum(rate.bytes_out for rate in rates),
    )


def summarize_edges(graph: GraphInfo, subtasks: Sequence[SubtaskInfo]) -> tuple[EdgeSummary, ...]:
    """Fill of each edge, in the order of the graph's edges."""
    fills: defaultdict[tuple[Any, ...], list[OutputFill]] = defaultdict(list)
    for subtask in subtasks:
        for fill in () if subtask.statistics is None else subtask.statistics.outputs:
            name = fill.target, fill.operator, fill.side_output, fill.input_index
            fills[*name, fill.copy].append(fill)
    alike: Counter[tuple[Any, ...]] = Counter()
    summaries = []
    for edge in graph.edges:
        name = edge.target, edge.source_operator, edge.side_output, edge.input_index
        summaries.append(_edge(edge, fills[*name, alike[name]]))
        alike[name] += 1
    return tuple(summaries)


def _edge(edge: EdgeInfo, fills: Iterable[OutputFill]) -> EdgeSummary:
    shares = [used / fill.credits for fill in fills for used in fill.outstanding]
    if not shares:
        return EdgeSummary(edge.source, edge.target)
    queued = sum(sum(fill.queued) for fill in fills)
    return EdgeSummary(edge.source, edge.target, sum(shares) / len(shares), max(shares), queued)


def find_bottleneck(graph: GraphInfo, vertices: Iterable[VertexSummary]) -> Bottleneck | None:
    """The vertex that limits the job; see the module's docstring."""
    known = {vertex.id: vertex for vertex in vertices}
    busiest = sorted(known.values(), key=lambda vertex: -(vertex.busy_max or 0.0))
    alone = None
    for vertex in busiest:
        busy, blocked = vertex.busy_max, vertex.backpressured_max
        if busy is None or busy < BUSY or (blocked or 0.0) >= BACKPRESSURED:
            continue
        waiting = _waiting_for(vertex.id, graph, known)
        if waiting:
            return Bottleneck(vertex.id, busy, waiting)
        if alone is None and busy >= BUSY_ALONE:
            alone = Bottleneck(vertex.id, busy)
    return alone


def _waiting_for(vertex: str, graph: GraphInfo, known: Mapping[str, VertexSummary]) -> tuple[str, ...]:
    """Back-pressured vertices that reach this one through back-pressured vertices only, nearest first."""
    found: dict[str, None] = {}
    layer = [vertex]
    while layer:
        senders = [edge.source for target in layer for edge in graph.edges if edge.target == target]
        layer = [
            sender
            for sender in dict.fromkeys(senders)
            if sender in known
            and sender not in found
            and (known[sender].backpressured_max or 0.0) >= BACKPRESSURED
        ]
        found.update(dict.fromkeys(layer))
    return tuple(found)
