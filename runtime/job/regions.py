"""Regions of a job: what must restart together (Flink's `RestartPipelinedRegionFailoverStrategy`).

Subtasks that channels connect restart together: a failed subtask loses elements that others have sent or wait
for. Every channel is pipelined, so a region is a connected component of the graph. All subtasks of a vertex
belong to one region, even if no channel connects them (a map between forward edges). They share the splits of
one source, their union list state, and the clean-up of one sink. So regions are independent parts of the job
graph, and restarting one touches nothing that another uses.

Flink's regions are smaller: single subtasks where all edges are pointwise. Its sources and committers have
coordinators that can restore one subtask.
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
