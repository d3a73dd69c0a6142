"""Exchanges on which barriers stay in line, so that no unaligned checkpoint waits for itself.

Barriers never overtake on a forward, broadcast or global exchange: what is in flight there can't be
redistributed. A subtask with such an input begins an unaligned checkpoint when those channels have consumed
their barriers. Until then it blocks each channel whose barrier it has consumed. So its checkpoint waits for
the senders of the exchanges in line, and the senders of blocked channels wait for its checkpoint.

What can go wrong: `split` sends to `count` by key, and both send to `join`; `split` does so by a forward
exchange. A barrier of another sender triggers `count`. The barrier of `count` blocks its channel at `join`
until that of `split` comes. `split` has data in front of its own barrier, and no credits of `count`. `count`
has none of `join`. The checkpoint waits for its own end, and only its timeout frees the job. A subtask that
has taken the checkpoint (`count`) was *ahead* of one upstream of it that has not (`split`).

The rule: where such a circle can close, all exchanges between a subtask that is ahead and one upstream of it
stay in line. Then it takes the checkpoint behind everybody upstream, as in an aligned one.

How a circle is found. An edge that can be blocked *waits for* the vertices which the other senders in line
depend on. Edge i leads to edge j when i waits for a vertex that the sender of j can be ahead of. That vertex
may need credits of this sender, whose channel may be blocked. Circles of these steps are what can close.
Steps that no circle has are dropped: those that lead nowhere, and those to which nothing leads. Edges in line
make new ones wait, so this is repeated until nothing changes.

What a sender in line depends on: its own calls, and the barriers that its subtasks miss. The senders of i and
j have taken the checkpoint. An exchange that is not forward connects everybody with everybody. So when one
subtask of a vertex has taken the checkpoint, the others miss only what comes to each one alone: barriers of
forward exchanges. If the forward sender of one has ended, that one waits for any barrier that overtakes.
Subtasks that have ended send no barriers, and no subtask needs one of theirs.

Why no other wait closes a circle. A subtask that has not taken the checkpoint has sent no barrier, so its
outgoing channels are open. One that misses no barrier waits only for its own call to end. That call waits for
credits of others, down to the sinks, which never wait.

Flink has no such rule. It captures what is in front of a barrier that stayed in line
(`CheckpointOptions.AlignmentType.FORCED_ALIGNED`), and refuses to rescale with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import product

from penstock.runtime.graph.job_graph import JobGraph, Partitioning


def edges_to_align(job: JobGraph) -> frozenset[int]:
    """Positions of the edges on which barriers of unaligned checkpoints stay in line.

    Those whose elements can't be redistributed, and those that `job` must align on their account; see the
    module's text.
    """
    aligned = {i for i, e in enumerate(job.edges) if not e.partitioner.partitioning.can_be_redistributed}
    upstream = _upstream(job)
    while True:
        more = _Circles(job, upstream, frozenset(aligned)).edges() - aligned
        if not more:
            return frozenset(aligned)
        aligned |= more


def _upstream(job: JobGraph) -> dict[str, set[str]]:
    """Each vertex with all that its records come from; the first vertices of the job stand first."""
    senders: dict[str, set[str]] = {vertex.id: set() for vertex in job.vertices}
    for edge in job.edges:
        senders[edge.target_vertex].add(edge.source_vertex)
    upstream: dict[str, set[str]] = {}
    for vertex in TopologicalSorter(senders).static_order():
        upstream[vertex] = {vertex}.union(*(upstream[sender] for sender in senders[vertex]))
    return upstream


@dataclass(frozen=True, slots=True)
class _Input:
    """An edge, as its receiver sees it.

    Attributes:
        is_aligned: No barrier overtakes.
    """

    edge: int
    sender: str
    is_aligned: bool
    is_forward: bool
    is_single: bool


class _Circles:
    """The circles that can close when these edges are in line.

    Args:
        upstream: Each vertex with all upstream of it, the first ones of the job first.
    """

    def __init__(self, job: JobGraph, upstream: Mapping[str, set[str]], aligned: frozenset[int]) -> None:
        self._job = job
        self._upstream = upstream
        self._inputs: dict[str, list[_Input]] = {vertex: [] for vertex in upstream}
        for position, edge in enumerate(job.edges):
            forward = edge.partitioner.partitioning is Partitioning.FORWARD
            single = forward or job.vertex(edge.source_vertex).parallelism == 1
            made = _Input(position, edge.source_vertex, position in aligned, forward, single)
            self._inputs[edge.target_vertex].append(made)
        #: By vertex: itself, and those of which some subtask has taken a checkpoint, or ended, when one of it
        #: takes it.
        self._begun: dict[str, set[str]] = {}
        #: By vertex: those of which all have.
        self._over: dict[str, set[str]] = {}
        #: By vertex: those upstream of it that a subtask of it may take a checkpoint before.
        self._ahead: dict[str, set[str]] = {}
        for vertex in upstream:
            self._order(vertex)

    def edges(self) -> set[int]:
        """The edges by which the sender of a blocked channel gets ahead of what the channel waits for."""
        edges = self._job.edges
        waiting = [i for i in range(len(edges)) if self._aligned_beside(i)]
        alone = {i: self._waits_for(i) for i in waiting}
        steps = {
            (i, j) for i, j in product(waiting, waiting) if alone[i] & self._ahead[edges[j].source_vertex]
        }
        behind: dict[tuple[int, int], set[str]] = {}
        for i, j in _circling(steps):  # few are left, and only for these it is worth to look closer
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
        """The order in which subtasks take a checkpoint, at this vertex.

        That of upstream vertices is known.
        """
        inputs = self._inputs[vertex]
        in_line = [each for each in inputs if each.is_aligned]
        # Every vertex in line has taken it, or at least one has.
        combine = set.union if in_line else set.intersection
        before = in_line or inputs
        begun = combine(*(self._begun[each.sender] for each in before)) if before else set()
        over = combine(*(self._over_by(each) for each in before)) if before else set()
        ways = (self._ahead[e.sender] if e.is_aligned else self._upstream[e.sender] for e in inputs)
        self._begun[vertex] = begun | {vertex}
        self._over[vertex] = over
        self._ahead[vertex] = set().union(*ways) - over

    def _over_by(self, channel: _Input) -> set[str]:
        """The vertices that have taken a checkpoint when a barrier comes here; when all do, if in line."""
        waits_for_all = channel.is_aligned and not channel.is_forward
        is_one = self._job.vertex(channel.sender).parallelism == 1
        return self._over[channel.sender] | ({channel.sender} if waits_for_all or is_one else set())

    def _aligned_beside(self, blocked: int) -> list[_Input]:
        """The inputs in line whose barriers may be missing when a channel of this edge is blocked."""
        inputs = self._inputs[self._job.edges[blocked].target_vertex]
        return [e for e in inputs if e.is_aligned and not (e.edge == blocked and e.is_single)]

    def _waits_for(self, blocked: int, *ahead: str) -> set[str]:
        """Vertices that may have to go on before a blocked channel of this edge is released.

        Args:
            ahead: Vertices of which a subtask has taken the checkpoint and continues, beside the edge's
                sender.
        """
        going_on = {self._job.edges[blocked].source_vertex, *ahead}
        begun = set().union(*(self._begun[vertex] for vertex in going_on))
        waited: set[str] = set()
        missing = [each.sender for each in self._aligned_beside(blocked)]
        while missing:
            vertex = missing.pop()
            if vertex not in waited:
                waited.add(vertex)
                missing += self._missing_at(vertex, begun, going_on)
        return waited

    def _missing_at(self, vertex: str, begun: set[str], going_on: set[str]) -> list[str]:
        """Senders whose barriers a subtask may still need.

        Args:
            begun: Vertices of which some subtask has taken the checkpoint, or has ended.
            going_on: Those of them of which some subtask has taken it, and has not ended.
        """
        inputs = self._inputs[vertex]
        is_told = any(each.sender in going_on for each in inputs if not each.is_aligned)
        # When a subtask of it has begun, the others have all barriers but those that are for each one alone.
        in_line = [each for each in inputs if (each.is_forward if vertex in begun else each.is_aligned)]
        if vertex in begun and not in_line:
            return []
        return [each.sender for each in inputs if each in in_line or not (each.is_aligned or is_told)]


def _circling(steps: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """The steps without those that lead nowhere, or begin where no step leads to."""
    kept = set(steps)
    while True:
        begins, ends = {i for i, _ in kept}, {j for _, j in kept}
        circling = {(i, j) for i, j in kept if i in ends and j in begins}
        if circling == kept:
            return kept
        kept = circling
