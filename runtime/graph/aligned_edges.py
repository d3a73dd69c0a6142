"""Exchanges on which barriers stay in line, so that no unaligned checkpoint waits for itself.

An exchange is *in line* when barriers never overtake data on it. Forward, broadcast, global and custom
exchanges always are, because their in-flight data can't be redistributed. A subtask with an input in line
begins an unaligned checkpoint when it has consumed the barriers of that input's channels. Until then it
blocks each channel whose barrier it has consumed. So its checkpoint waits for the senders of the exchanges
in line, and the senders of blocked channels wait for its checkpoint.

Example of a deadlock: `split` sends to `count` by key, and both send to `join`; `split` does so by a forward
exchange. A barrier of another sender triggers `count`. The barrier of `count` blocks its channel at `join`
until the barrier of `split` arrives. `split` has data before its own barrier, and no credits from `count`.
`count` has no credits from `join`. The checkpoint waits for its own end, and only its timeout frees the job.
A subtask that has taken the checkpoint (`count`) is *ahead* of an upstream one that has not (`split`).

The rule: where such a circle can close, all exchanges from the upstream subtask to the subtask ahead stay in
line. Then the downstream subtask takes the checkpoint after all subtasks upstream, as in an aligned
checkpoint.

Search for circles: an edge that can be blocked *waits for* the vertices that the other senders in line
depend on. Edge i leads to edge j when i waits for a vertex that the sender of j can be ahead of. That vertex
may need credits from the sender of j, whose channel may be blocked in turn. Only circles of these steps can
close. So steps that lead nowhere, and steps to which no other leads, are dropped. An edge that is newly in
line makes further edges wait, so the search is repeated until nothing changes.

A sender in line depends on its subtasks' running calls of user functions, and on the barriers that these
subtasks miss. The senders of i and j have taken the checkpoint. An exchange that is not forward connects all
subtasks of both sides. So when one subtask of a vertex has taken the checkpoint, the others miss only
barriers of forward exchanges. A subtask whose forward sender has ended begins at the first barrier of an
exchange where barriers may overtake. Ended subtasks send no barriers, and no subtask waits for them.

No other wait closes a circle. A subtask that has not taken the checkpoint has sent no barrier, so its
outgoing channels are open. A subtask that misses no barrier waits only for its running call to end. That call
waits for credits from downstream, and the sinks never wait.

Flink has no such rule. It captures the data before a barrier that stayed in line
(`CheckpointOptions.AlignmentType.FORCED_ALIGNED`), and refuses to rescale with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import product

from penstock.runtime.graph.job_graph import JobGraph, Partitioning


def edges_to_align(job: JobGraph) -> frozenset[int]:
    """Positions of the edges on which barriers of unaligned checkpoints stay in line."""
    aligned = {i for i, e in enumerate(job.edges) if not e.partitioner.partitioning.can_be_redistributed}
    upstream = _upstream(job)
    while True:
        more = _Circles(job, upstream, frozenset(aligned)).edges() - aligned
        if not more:
            return frozenset(aligned)
        aligned |= more


def _upstream(job: JobGraph) -> dict[str, set[str]]:
    """Each vertex with itself and all vertices upstream of it, in topological order."""
    senders: dict[str, set[str]] = {vertex.id: set() for vertex in job.vertices}
    for edge in job.edges:
        senders[edge.target_vertex].add(edge.source_vertex)
    upstream: dict[str, set[str]] = {}
    for vertex in TopologicalSorter(senders).static_order():
        upstream[vertex] = {vertex}.union(*(upstream[sender] for sender in senders[vertex]))
    return upstream


@dataclass(frozen=True, slots=True)
class _Input:
    """An edge as seen by its receiver; single if each receiving subtask has one channel of it."""

    edge: int
    sender: str
    is_aligned: bool
    is_forward: bool
    is_single: bool


class _Circles:
    """The circles that can close when some edges are in line."""

    def __init__(self, job: JobGraph, upstream: Mapping[str, set[str]], aligned: frozenset[int]) -> None:
        self._job = job
        self._upstream = upstream
        self._inputs: dict[str, list[_Input]] = {vertex: [] for vertex in upstream}
        for position, edge in enumerate(job.edges):
            forward = edge.partitioner.partitioning is Partitioning.FORWARD
            single = forward or job.vertex(edge.source_vertex).parallelism == 1
            made = _Input(position, edge.source_vertex, position in aligned, forward, single)
            self._inputs[edge.target_vertex].append(made)
        #: For each vertex: itself, and vertices with a subtask that has taken the checkpoint or ended when a
        #: subtask of this vertex takes the checkpoint.
        self._begun: dict[str, set[str]] = {}
        #: For each vertex: the vertices whose subtasks have all taken the checkpoint or ended at that moment.
        self._over: dict[str, set[str]] = {}
        #: For each vertex: the vertices upstream of it that its subtasks can be ahead of.
        self._ahead: dict[str, set[str]] = {}
        for vertex in upstream:
            self._order(vertex)

    def edges(self) -> set[int]:
        """Edges between a vertex that a channel waits for and a sender that can be ahead of this vertex."""
        edges = self._job.edges
        waiting = [i for i in range(len(edges)) if self._aligned_beside(i)]
        alone = {i: self._waits_for(i) for i in waiting}
        steps = {
            (i, j) for i, j in product(waiting, waiting) if alone[i] & self._ahead[edges[j].source_vertex]
        }
        behind: dict[tuple[int, int], set[str]] = {}
        for i, j in _circling(steps):  # few are left, so they can be examined closely
            ahead = edges[j].source_vertex
            late = self._waits_for(i, ahead) & self._ahead[ahead]
            if late:
                behind[i, j] = late
        ways = {(late, edges[j].source_vertex) for i, j in _circling(behind) for late in behind[i, j]}
        return {
            position
            for late, ahead in ways
            for position, edge in enumerate(edges)
            if late in self._upstream[edge.source_vertex] and edge.target_vertex in self._upstream[ahead]
        }

    def _order(self, vertex: str) -> None:
        """Find when a vertex takes a checkpoint relative to others; upstream vertices must be known."""
        inputs = self._inputs[vertex]
        in_line = [channel for channel in inputs if channel.is_aligned]
        # All senders in line take the checkpoint before this vertex; without such senders, at least one does.
        combine = set.union if in_line else set.intersection
        before = in_line or inputs
        begun = combine(*(self._begun[channel.sender] for channel in before)) if before else set()
        over = combine(*(self._over_by(channel) for channel in before)) if before else set()
        ways = (self._ahead[i.sender] if i.is_aligned else self._upstream[i.sender] for i in inputs)
        self._begun[vertex] = begun | {vertex}
        self._over[vertex] = over
        self._ahead[vertex] = set().union(*ways) - over

    def _over_by(self, channel: _Input) -> set[str]:
        """The vertices whose subtasks have all taken a checkpoint when barriers arrive on this input.

        An input in line waits for the barriers of all senders, any other input for the first barrier.
        """
        waits_for_all = channel.is_aligned and not channel.is_forward
        is_one = self._job.vertex(channel.sender).parallelism == 1
        return self._over[channel.sender] | ({channel.sender} if waits_for_all or is_one else set())

    def _aligned_beside(self, blocked: int) -> list[_Input]:
        """The inputs in line whose barriers may be missing when a channel of this edge is blocked."""
        inputs = self._inputs[self._job.edges[blocked].target_vertex]
        return [i for i in inputs if i.is_aligned and not (i.edge == blocked and i.is_single)]

    def _waits_for(self, blocked: int, *ahead: str) -> set[str]:
        """Vertices that may have to proceed before a blocked channel of this edge is released.

        Args:
            ahead: Vertices with a running subtask that has taken the checkpoint, in addition to the edge's
                sender.
        """
        running = {self._job.edges[blocked].source_vertex, *ahead}
        begun = set().union(*(self._begun[vertex] for vertex in running))
        waited: set[str] = set()
        missing = [channel.sender for channel in self._aligned_beside(blocked)]
        while missing:
            vertex = missing.pop()
            if vertex not in waited:
                waited.add(vertex)
                missing += self._missing_at(vertex, begun, running)
        return waited

    def _missing_at(self, vertex: str, begun: set[str], running: set[str]) -> list[str]:
        """Senders whose barriers a subtask may still need.

        Args:
            begun: Vertices with a subtask that has taken the checkpoint or has ended.
            running: Vertices with a running subtask that has taken the checkpoint.
        """
        inputs = self._inputs[vertex]
        has_barrier = any(channel.sender in running for channel in inputs if not channel.is_aligned)
        # If one subtask has begun, the others have all barriers except those of forward exchanges.
        in_line = [i for i in inputs if (i.is_forward if vertex in begun else i.is_aligned)]
        if vertex in begun and not in_line:
            return []
        return [i.sender for i in inputs if i in in_line or not (i.is_aligned or has_barrier)]


def _circling(steps: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """The steps that follow another step and lead to another step."""
    kept = set(steps)
    while True:
        begins, ends = {i for i, _ in kept}, {j for _, j in kept}
        circling = {(i, j) for i, j in kept if i in ends and j in begins}
        if circling == kept:
            return kept
        kept = circling
