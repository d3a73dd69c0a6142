from __future__ import annotations

import pytest

from penstock.runtime.graph.job_graph import OperatorSpec
from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode, problem_with_id


def ids_of(*operators: tuple[str, str]) -> list[str]:
    """Ids of operators that are given as kind and chosen id."""
    graph = StreamGraph()
    for kind, chosen in operators:
        graph.add(StreamNode(kind, OperatorSpec(chosen, kind, None), 1))
    return graph.operator_ids()


@pytest.mark.parametrize("operator_id", ["count", "a", "count-words_2.v1", "_x", "9", "x" * 100])
def test_ordinary_names_are_ids(operator_id: str) -> None:
    assert problem_with_id(operator_id) is None


@pytest.mark.parametrize(
    ("operator_id", "problem"),
    [
        (None, "must be a string, not NoneType"),
        (7, "must be a string, not int"),
        (max, "must be a string, not builtin"),
        ("", "must not be empty"),
        ("a/b", "'a/b' must be"),
        ("..", "begin with a letter"),
        ("a b", "'a b' must be"),
        ("x" * 101, "at most 100"),
        ("count\n", "must be"),
    ],
)
def test_what_can_not_be_an_id_is_explained(operator_id: object, problem: str) -> None:
    assert problem in (problem_with_id(operator_id) or "")


def test_made_up_ids_count_each_kind() -> None:
    assert ids_of(("map", ""), ("filter", ""), ("map", "")) == ["map-1", "filter-1", "map-2"]


def test_made_up_ids_avoid_chosen_ones_wherever_they_stand() -> None:
    found = ids_of(("map", ""), ("map", ""), ("sink", "map-1"), ("map", ""))
    assert found == ["map-2", "map-3", "map-1", "map-4"]
