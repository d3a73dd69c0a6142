"""Regions of a job: what must restart together (Flink's `RestartPipelinedRegionFailoverStrategy`).

Subtasks that are joined by channels share a fate: whoever fails takes elements along that others have sent
or wait for. Every channel is pipelined, so a region is what channels join. Subtasks of one vertex belong
together as well, also where no channel joins them (a map between forward edges): they share out the splits
of one source, their union list state, and the clearing up behind one sink. So regions are independent parts
of the job graph, and a restart of one of them touches nothing that another one uses.

Flink's regions are finer, per subtask where all edges are pointwise, because its sources and committers have
coordinators that take a single subtask back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.snapshot.subtask_id import SubtaskId

Region: TypeAlias = frozenset[SubtaskId]


def regions_of(graph: ExecutionGraph) -> Mapping[SubtaskId, Region]:
    """The region of every subtask."""
    leaders = {vertex.id: vertex.id for vertex in graph.job.vertices}

    def leader(vertex: str) -> str:
        while leaders[vertex] != vertex:
            vertex = leaders[vertex]
        return vertex

    for edge in graph.job.edges:
        leaders[leader(edge.target_vertex)] = leader(edge.source_vertex)
    members: dict[str, list[SubtaskId]] = {}
    for subtask in graph.subtasks:
        members.setdefault(leader(subtask.id.vertex), []).append(subtask.id)
    regions = {name: frozenset(subtasks) for name, subtasks in members.items()}
    return {subtask.id: regions[leader(subtask.id.vertex)] for subtask in graph.subtasks}
