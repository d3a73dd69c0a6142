"""Redistributes operator state for a new parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.key_groups import redistribute

SUITES = ("rescaling",)
SPLIT = RedistributionMode.SPLIT_DISTRIBUTE


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    """The differences in the parts of the new subtasks.

    A case that compares `split_balanced` does not fix the subtask of each element. Each element must be
    assigned once, and the numbers of two subtasks differ by at most one.
    """
    old = old_states(case)
    new = redistribute(old, case["new_parallelism"])
    balanced: set[str] = set()
    differences = []
    if case.get("compare") == "split_balanced":
        balanced = {name for subtask in old for name, (mode, _) in subtask.items() if mode is SPLIT}
        differences = _balanced(old, [{n: s[n] for n in balanced} for s in new], balanced)
    rest = [flat({name: parts for name, parts in s.items() if name not in balanced}) for s in new]
    wanted = [expected(parts, balanced) for parts in case["expect"]["new"]]
    if rest != wanted:
        differences.append(f"the subtasks get {rest} instead of {wanted}")
    return differences


def old_states(case: dict[str, Any]) -> list[dict[str, tuple[RedistributionMode, list[Any]]]]:
    """Each partition as (state, old subtask, offset), so that its origin can be seen."""
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


def _balanced(
    old: list[dict[str, tuple[RedistributionMode, list[Any]]]],
    new: list[dict[str, Sequence[Any]]],
    names: set[str],
) -> list[str]:
    parts = [flat(subtask) for subtask in new]
    given = sorted(part for subtask in parts for part in subtask)
    all_parts = sorted(
        part for subtask in old for name in subtask.keys() & names for part in subtask[name][1]
    )
    differences = [] if given == all_parts else [f"{given} is given out of {all_parts}"]
    if max(map(len, parts)) - min(map(len, parts)) > 1:
        differences.append(f"the shares are uneven: {parts}")
    return differences
