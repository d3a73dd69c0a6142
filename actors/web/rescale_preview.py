"""What a rescale would move, before anybody asks for it.

State of keys moves with its key group. A key group moves when another subtask has it at the new parallelism.
The bytes that move are taken to be spread evenly over key groups. All of the job restarts: a rescale takes a
checkpoint and deploys every vertex again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.state.key_groups import check_parallelism, subtask_of_key_group


def preview_of(report: JobReport, parallelism: Mapping[str, int]) -> dict[str, Any]:
    """What changes, vertex by vertex.

    Args:
        parallelism: By operator id, as for a rescale.

    Raises:
        ConfigurationError: There is no such operator, or it can't run at this parallelism.
    """
    vertices = {vertex.id: vertex for vertex in report.graph.vertices}
    sizes = {vertex.id: vertex.state_bytes for vertex in report.vertices}
    changed = []
    for operator, wanted in parallelism.items():
        vertex = vertices.get(report.vertex_of(operator))
        if vertex is None:
            msg = f"operator {operator!r} is no part of the graph, and can't be rescaled"
            raise ConfigurationError(msg)
        check_parallelism(wanted, vertex.max_parallelism)
        moved = moved_key_groups(vertex.parallelism, wanted, vertex.max_parallelism)
        size = sizes.get(vertex.id)
        changed.append(
            {
                "vertex": vertex.id,
                "from": vertex.parallelism,
                "to": wanted,
                "key_groups": vertex.max_parallelism,
                "key_groups_moved": moved,
                "bytes_moved": None if size is None else round(size * moved / vertex.max_parallelism),
            }
        )
    return {"vertices": changed, "restarts": [vertex.id for vertex in report.graph.vertices]}


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
