"""No unaligned checkpoint of any graph waits for itself, by a search through all moments of a checkpoint.

The search knows no vertices, only subtasks and channels. A moment is the set of subtasks that have taken the
checkpoint. At each moment it looks for subtasks that could wait for each other for ever. Each call ends
when its outputs have credits, and not before.

* A subtask continues when its receivers do. Where it has sent its barrier, and its receiver has not
  taken the checkpoint, the receiver has to take it first.
* Subtasks may have ended, with all upstream of them. No subtask waits for these.
* A subtask takes the checkpoint when it can go on, and the senders of its aligned channels have taken it. One
  without aligned channels needs a barrier of any sender.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import graph_of

from penstock.runtime.graph.aligned_edges import edges_to_align
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)


@st.composite
def graphs(draw: st.DrawFn) -> JobGraph:
    parallelism = draw(st.lists(st.integers(1, 2), min_size=2, max_size=5))
    names = [f"v{position}" for position in range(len(parallelism))]
    edges = []
    for target in range(1, len(names)):
        for source in draw(st.lists(st.integers(0, target - 1), max_size=3)):
            how = draw(st.sampled_from(Partitioning))
            if how is Partitioning.FORWARD and parallelism[source] != parallelism[target]:
                how = Partitioning.REBALANCE
            edges.append(JobEdge(names[source], names[source], None, names[target], 0, Partitioner(how)))
    vertices = [
        JobVertex(name, (OperatorSpec(name, name, None),), number)
        for name, number in zip(names, parallelism, strict=True)
    ]
    return JobGraph("j", tuple(vertices), tuple(edges))


@dataclass
class Channels:
    """The subtasks of a graph, by number, with those that they send to and that send to them."""

    receivers: list[list[int]] = field(default_factory=list)
    aligned: list[list[int]] = field(default_factory=list)
    overtaking: list[list[int]] = field(default_factory=list)

    @staticmethod
    def of(job: JobGraph, aligned: frozenset[int]) -> Channels:
        subtasks = [(vertex.id, index) for vertex in job.vertices for index in range(vertex.parallelism)]
        made = Channels(*([[] for _ in subtasks] for _ in range(3)))
        for position, edge in enumerate(job.edges):
            forward = edge.partitioner.partitioning is Partitioning.FORWARD
            for sender, (vertex, i) in enumerate(subtasks):
                for receiver, (other, j) in enumerate(subtasks):
                    if (vertex, other) != (edge.source_vertex, edge.target_vertex) or (forward and i != j):
                        continue
                    made.receivers[sender].append(receiver)
                    (made.aligned if position in aligned else made.overtaking)[receiver].append(sender)
        return made

    def without(self, ended: frozenset[int]) -> Channels:
        """The rest of the graph when these subtasks have ended."""
        left = [subtask for subtask in range(len(self.receivers)) if subtask not in ended]
        number = {subtask: position for position, subtask in enumerate(left)}
        ends = self.receivers, self.aligned, self.overtaking
        return Channels(*([[number[s] for s in of[kept] if s in number] for kept in left] for of in ends))

    def ends(self) -> Iterator[frozenset[int]]:
        """Who may have ended."""
        subtasks = range(len(self.receivers))
        for bits in range(1 << len(subtasks)):
            ended = frozenset(subtask for subtask in subtasks if bits >> subtask & 1)
            if all(ended.issuperset(self.aligned[s] + self.overtaking[s]) for s in ended):
                yield ended

    def moments(self) -> Iterator[list[bool]]:
        """Who may have taken a checkpoint together."""
        subtasks = range(len(self.receivers))
        for bits in range(1 << len(subtasks)):
            taken = [bool(bits >> subtask & 1) for subtask in subtasks]
            if all(self._may_have_taken(subtask, taken) for subtask in subtasks if taken[subtask]):
                yield taken

    def _may_have_taken(self, subtask: int, taken: list[bool]) -> bool:
        aligned, overtaking = self.aligned[subtask], self.overtaking[subtask]
        if aligned:
            return all(taken[sender] for sender in aligned)
        return not overtaking or any(taken[sender] for sender in overtaking)

    def stuck(self, taken: list[bool]) -> set[int]:
        """Subtasks that may wait for each other for ever."""
        waits = set(range(len(taken)))
        untaken = {subtask for subtask in waits if not taken[subtask]}
        while True:
            still = {s for s in waits if self._may_not_go_on(s, taken, waits, untaken)}
            left = {s for s in untaken if self._may_not_take(s, taken, still, untaken)}
            if (still, left) == (waits, untaken):
                return waits | untaken
            waits, untaken = still, left

    def _may_not_go_on(self, subtask: int, taken: list[bool], waits: set[int], untaken: set[int]) -> bool:
        return any(
            receiver in (untaken if taken[subtask] and not taken[receiver] else waits)
            for receiver in self.receivers[subtask]
        )

    def _may_not_take(self, subtask: int, taken: list[bool], waits: set[int], untaken: set[int]) -> bool:
        aligned, overtaking = self.aligned[subtask], self.overtaking[subtask]
        if subtask in waits or not untaken.isdisjoint(aligned):
            return True
        is_told = aligned or not overtaking or any(taken[sender] for sender in overtaking)
        return not is_told and untaken.issuperset(overtaking)


def waits_for_itself(job: JobGraph, aligned: frozenset[int]) -> bool:
    channels = Channels.of(job, aligned)
    left = (channels.without(ended) for ended in channels.ends())
    return any(each.stuck(taken) for each in left for taken in each.moments())


@settings(max_examples=100 * DEEP, deadline=None)
@given(graphs())
def test_no_checkpoint_waits_for_itself(job: JobGraph) -> None:
    assert not waits_for_itself(job, edges_to_align(job))


@settings(max_examples=30 * DEEP, deadline=None)
@given(graphs())
def test_an_aligned_checkpoint_never_does(job: JobGraph) -> None:
    assert not waits_for_itself(job, frozenset(range(len(job.edges))))


def test_the_search_finds_a_diamond_whose_barriers_overtake() -> None:
    job = graph_of("numbers ~> count", "split ~> count", "split -> join", "count %> join")
    assert waits_for_itself(job, frozenset({2}))
    assert not waits_for_itself(job, frozenset({1, 2}))


def test_the_search_finds_a_subtask_that_nobody_tells_because_its_sender_has_ended() -> None:
    job = graph_of("others -> map", "numbers -> split", "split %> map", "map => out")
    assert waits_for_itself(job, frozenset({0, 1, 3}))
    assert edges_to_align(job) == {0, 1, 2, 3}
