"""Calls of `filter`, `select` and `with_columns` with expressions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest

from penstock.runtime.errors import GraphError
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.time.watermarks import WatermarkStrategy

HERE = r"^tests/runtime/graph/streams/test_column_step.py:\d+ in lambda: "
V = pc.field("v")


@pytest.fixture
def rows() -> DataStream[Any]:
    return StreamEnvironment().from_collection("in", [{"k": "a", "v": 1}])


def test_steps_show_their_expressions_and_are_in_a_graph_that_can_be_pickled(
    rows: DataStream[Any], discard: Any
) -> None:
    made = rows.filter(V > 3).select("k", total=V + 1).with_columns(w=V * 2, id="double", parallelism=1)
    moments = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    made.assign_timestamps_and_watermarks(moments).sink("out", discard)
    graph = rows.environment.build()
    names = [operator.name for vertex in graph.vertices for operator in vertex.operators]
    assert names[1:5] == [
        "filter((v > 3))",
        "select(k, total=add_checked(v, 1))",
        "with_columns(w=multiply_checked(v, 2))",
        "timestamps(column 'at')",
    ]
    assert "double" in [operator.id for vertex in graph.vertices for operator in vertex.operators]
    assert pickle.loads(pickle.dumps(graph)).vertices


def test_columns_with_names_of_options_are_given_in_a_dict(rows: DataStream[Any], discard: Any) -> None:
    rows.with_columns({"id": V}, parallelism=2).select(columns={"num cpus": V}).sink("out", discard)
    graph = rows.environment.build()
    names = [operator.name for vertex in graph.vertices for operator in vertex.operators]
    assert names[1:3] == ["with_columns(id=v)", "select(num cpus=v)"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.select(), "select needs at least one column"),
        (lambda s: s.with_columns(), "with_columns needs at least one column"),
        (lambda s: s.select(V), r"select: give the expression v a name: select\(name=...\)"),
        (lambda s: s.select(5), "select: 5 is not the name of a column"),
        (lambda s: s.select("k", "k"), "select: the column 'k' is given twice"),
        (lambda s: s.select("k", k=V), "select: the column 'k' is given twice"),
        (lambda s: s.with_columns({"a": V}, a=V), "with_columns: the column 'a' is given twice"),
        (
            lambda s: s.with_columns(a="v"),
            r"a='v' is not an expression .* for a column write pc.field\(name\)",
        ),
        (lambda s: s.with_columns(["a"]), "columns are given by name, as keywords or in a dict"),
        (lambda s: s.with_columns(id=V), "id must be a string"),
        (lambda s: s.with_columns(a=V, parallelism=0), "parallelism must be a whole number of at least 1"),
        (lambda s: s.filter("v > 3"), "filter needs a function or an expression, not the text 'v > 3'"),
    ],
)
def test_a_wrong_call_is_refused_with_the_users_line(
    call: Callable[[Any], object], message: str, rows: DataStream[Any]
) -> None:
    with pytest.raises(GraphError, match=f"{HERE}.*{message}"):
        call(rows)
