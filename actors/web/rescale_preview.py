"""What a rescale would move, before anybody asks for it.

State of keys moves with its key group. A key group moves when another subtask has it at the new parallelism.
The bytes that move are taken to be spread evenly over key groups. A vertex that gets no records by key has no
keyed state, and neither has one whose state has no bytes: nothing moves there. All of the job restarts: a
rescale takes a checkpoint and deploys every vertex again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.graph_info import VertexInfo
from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.state.key_groups import check_parallelism, subtask_of_key_group


def preview_of(report: JobReport, parallelism: Mapping[str, int]) -> dict[str, Any]:
    """What changes, vertex by vertex.

    Args:
        parallelism: By operator id, as for a rescale.

    Raises:
        ConfigurationError: There is no such operator, or it can't run at this parallelism.
    """
    vertices = {vertex.id: vertex for vertex in report.graph.vertices}
    changed = []
    for operator, wanted in parallelism.items():
        vertex = vertices.get(report.vertex_of(operator))
        if vertex is None:
            msg = f"operator {operator!r} is no part of the graph, and can't be rescaled"
            raise ConfigurationError(msg)
        check_parallelism(wanted, vertex.max_parallelism)
        changed.append(_change(report, vertex, wanted))
    return {"vertices": changed, "restarts": [vertex.id for vertex in report.graph.vertices]}


def _change(report: JobReport, vertex: VertexInfo, wanted: int) -> dict[str, Any]:
    groups = vertex.max_parallelism
    size = {each.id: each.state_bytes for each in report.vertices}.get(vertex.id)
    is_keyed = size != 0 and any(
        edge.target == vertex.id and edge.partitioning == Partitioning.KEY_GROUP.value
        for edge in report.graph.edges
    )
    moved = moved_key_groups(vertex.parallelism, wanted, groups) if is_keyed else 0
    moved_bytes = None if size is None or not is_keyed else round(size * moved / groups)
    return {
        "vertex": vertex.id,
        "from": vertex.parallelism,
        "to": wanted,
        "key_groups": groups,
        "key_groups_moved": moved,
        "bytes_moved": moved_bytes,
        "has_keyed_state": is_keyed,
        "text": _text(moved, groups, moved_bytes) if is_keyed else "no keyed state moves",
    }


def _text(moved: int, groups: int, moved_bytes: int | None) -> str:
    text = f"{moved} of {groups} key groups move"
    return text if moved_bytes is None else f"{text}, about {moved_bytes:,} bytes"


def moved_key_groups(before: int, after: int, max_parallelism: int) -> int:
    """Number of key groups that another subtask has afterwards.

    Example:
        >>> moved_key_groups(2, 4, 128), moved_key_groups(2, 2, 128)
        (96, 0)
    """
    return sum(
        subtask_of_key_group(group, before, max_parallelism)
        != subtask_of_key_group(group, after, max_parallelism)
        for group in range(max_parallelism)
    )
