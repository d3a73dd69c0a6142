"""Flink's cases on operator state for a new parallelism."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.checkpoint.snapshot import RedistributionMode
from penstock.runtime.state.redistribution import redistribute

SUITE = json.loads((Path(__file__).parent / "data" / "rescaling.json").read_text(encoding="utf-8"))
SPLIT = RedistributionMode.SPLIT_DISTRIBUTE


def old_states(case: dict[str, Any]) -> list[dict[str, tuple[RedistributionMode, list[Any]]]]:
    """Each partition as (state, old subtask, offset), so that it can be told where it came from."""
    return [
        {
            name: (RedistributionMode(state["mode"]), [(name, index, offset) for offset in state["offsets"]])
            for name, state in subtask.items()
        }
        for index, subtask in enumerate(case["old"])
    ]


def flat(subtask: dict[str, Sequence[Any]]) -> list[tuple[Any, ...]]:
    return sorted(part for parts in subtask.values() for part in parts)


def expected(parts: list[list[Any]], without: set[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(part) for part in parts if part[0] not in without)


@pytest.mark.parametrize("case", SUITE["cases"], ids=lambda case: case["name"])
def test_every_subtask_gets_its_part(case: dict[str, Any]) -> None:
    old = old_states(case)
    new = redistribute(old, case["new_parallelism"])
    balanced: set[str] = set()
    if case.get("compare") == "split_balanced":
        balanced = {name for subtask in old for name, (mode, _) in subtask.items() if mode is SPLIT}
        parts = [flat({name: subtask[name] for name in balanced}) for subtask in new]
        given = [part for subtask in parts for part in subtask]
        assert sorted(given) == sorted(
            part for subtask in old for name in subtask.keys() & balanced for part in subtask[name][1]
        )
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    rest = [{name: parts for name, parts in s.items() if name not in balanced} for s in new]
    assert [flat(s) for s in rest] == [expected(parts, balanced) for parts in case["expect"]["new"]]


def test_the_suite_is_complete() -> None:
    assert len(SUITE["cases"]) == 13
