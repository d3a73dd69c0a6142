"""The preview of a rescale, for vertices with and without keyed state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving.acting import running_report

from penstock.actors.shared.job_report import JobReport
from penstock.actors.web.answers import preview_of


def with_state(count: int | None) -> JobReport:
    """A job whose `count` has this many bytes of state in each subtask; `lines`, without keys, has 50."""
    report = running_report("/storage")
    sizes = {"lines": 50, "count": count}
    subtasks = tuple(replace(each, state_bytes=sizes[each.subtask.vertex]) for each in report.subtasks)
    return replace(report, subtasks=subtasks)


def preview(report: JobReport, **parallelism: int) -> dict[str, Any]:
    (vertex,) = preview_of(report, parallelism)["vertices"]
    return dict(vertex)


def test_keyed_state_moves_with_its_key_groups() -> None:
    found = preview(with_state(1_000), count=2)
    assert found["has_keyed_state"]
    assert found["key_groups_moved"] > 0
    assert found["bytes_moved"] == round(4_000 * found["key_groups_moved"] / 128)
    assert found["text"].endswith(f"of 128 key groups move, about {found['bytes_moved']:,} bytes")


def test_before_the_first_checkpoint_nobody_knows_how_much_it_is() -> None:
    found = preview(with_state(None), count=2)
    assert (found["has_keyed_state"], found["bytes_moved"]) == (True, None)
    assert found["text"].endswith("key groups move")


@pytest.mark.parametrize(("vertex", "size"), [("lines", 1_000), ("count", 0)], ids=["no keys", "no state"])
def test_where_no_keyed_state_is_none_moves(vertex: str, size: int, tmp_path: Path) -> None:
    found = preview(with_state(size), **{vertex: 3})
    assert (found["has_keyed_state"], found["key_groups_moved"], found["bytes_moved"]) == (False, 0, None)
    assert found["text"] == "no keyed state moves"
