from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow.compute as pc
import pytest

from penstock.runtime.errors import GraphError
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.keyed_stream import KeyedStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.operators.functions.process import KeyedProcessOperator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.operators.operator import Operator
from penstock.runtime.record.column_key import ColumnKey


class Seen(KeyedProcessFunction[int, int, int]):
    """Keeps what it saw in an attribute, as a careless user would."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def process(self, value: int, ctx: RuntimeContext) -> Iterable[int]:
        self.values.append(value)
        return self.values


class Empty(Operator):
    batch_format = "both"


class Passes(Operator):
    def process(self, batch: Any) -> Iterator[Any]:
        yield batch


class Takes(Passes):
    batch_format = "pandas"  # type: ignore[assignment] # as a user might


class Keyed(Passes):
    keyed = True


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment()


@pytest.fixture
def source(env: StreamEnvironment) -> DataStream[int]:
    return env.from_collection("in", [1])


@pytest.fixture
def keyed(source: DataStream[int]) -> KeyedStream[int, int]:
    return source.key_by(abs)


def test_a_stream_shows_the_operator_it_comes_from(source: DataStream[int]) -> None:
    assert repr(source) == "DataStream(in)"
    assert repr(source.map(abs).union(source)) == "DataStream(map(abs), in)"


def test_the_users_own_id_of_a_stateless_operator_is_kept(
    env: StreamEnvironment, source: DataStream[int], discard: Any
) -> None:
    source.map(abs, id="absolute").sink("out", discard)
    assert [o.id for o in env.build().vertices[0].operators] == ["in", "absolute", "out"]


def test_each_subtask_works_with_a_process_function_of_its_own(
    env: StreamEnvironment, keyed: KeyedStream[int, int], discard: Any
) -> None:
    function = Seen()
    keyed.process("seen", function).sink("out", discard)
    factory = env.build().vertex("seen").operators[0].factory
    assert factory is not None
    first, second = factory(), factory()
    assert isinstance(first, KeyedProcessOperator)
    assert isinstance(second, KeyedProcessOperator)
    functions: list[Any] = [first._user, second._user, function]
    assert len({id(own.values) for own in functions}) == 3


def test_an_operator_of_ones_own_is_stateful_and_keyed_behind_key_by(
    env: StreamEnvironment, source: DataStream[int], discard: Any
) -> None:
    plain = source.transform("plain", Passes(), parallelism=2)
    plain.key_by(abs).transform("keyed", Keyed()).sink("out", discard)
    specs = {spec.id: spec for vertex in env.build().vertices for spec in vertex.operators}
    assert (specs["plain"].name, specs["plain"].stateful, specs["plain"].keyed) == (
        "transform(Passes)",
        True,
        False,
    )
    assert (specs["keyed"].name, specs["keyed"].stateful, specs["keyed"].keyed) == (
        "transform(Keyed)",
        True,
        True,
    )


def test_a_job_graph_of_importable_functions_can_be_pickled(
    env: StreamEnvironment, source: DataStream[int], discard: Any
) -> None:
    source.map(abs).key_by(abs).reduce("max", max).sink("out", discard)
    job = pickle.loads(pickle.dumps(env.build()))
    assert [v.name for v in job.vertices] == [v.name for v in env.build().vertices]
    assert job.edges == env.build().edges


@pytest.mark.parametrize(
    ("key", "names", "shown"),
    [
        ("k", ("k",), "column 'k'"),
        (["k"], ("k",), "column 'k'"),
        (["a", "b"], ("a", "b"), "columns 'a', 'b'"),
    ],
)
def test_a_stream_keyed_by_names_shows_them_and_has_them_on_its_exchange(
    key: str | list[str], names: tuple[str, ...], shown: str, env: StreamEnvironment, discard: Any
) -> None:
    rows: DataStream[dict[str, int]] = env.from_collection("in", [{"k": 1, "a": 2, "b": 3}])
    keyed = rows.key_by(key)
    keyed.reduce("first", lambda first, _: first).sink("out", discard)
    graph = env.build()
    selectors = {edge.partitioner.key_selector for edge in graph.edges}
    assert ColumnKey(names) in selectors
    assert repr(keyed) == f"KeyedStream({shown})"
    assert f"key_group by {shown}" in env.describe()
    assert pickle.loads(pickle.dumps(ColumnKey(names))) == ColumnKey(names)


def test_a_taken_id_is_refused_with_both_lines(
    env: StreamEnvironment, source: DataStream[int], discard: Any
) -> None:
    source.key_by(abs).reduce("count", max)  # first
    with pytest.raises(GraphError) as error:
        source.sink("count", discard)  # second
    file = "tests/runtime/graph/streams/test_data_stream.py"
    first = test_a_taken_id_is_refused_with_both_lines.__code__.co_firstlineno + 3
    function = "test_a_taken_id_is_refused_with_both_lines"
    assert str(error.value) == (
        f"{file}:{first + 2} in {function}: the id 'count' of this sink is already taken by the reduce at "
        f"{file}:{first} in {function}; give each operator an id of its own"
    )


def test_a_refused_operator_leaves_no_trace_in_the_graph(
    env: StreamEnvironment, source: DataStream[int], discard: Any
) -> None:
    with pytest.raises(GraphError):
        source.sink("in", discard)
    with pytest.raises(GraphError):
        source.sink("out", discard, parallelism=0)
    source.sink("out", discard)
    assert [o.id for o in env.build().vertices[0].operators] == ["in", "out"]


HERE = r"^tests/runtime/graph/streams/test_data_stream.py:\d+ in lambda: "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, sink: s.map(3), "map needs a function, not 3"),
        (lambda s, sink: s.map(), "missing a required argument: 'function'"),
        (lambda s, sink: s.map(abs, 4), "too many positional arguments"),
        (lambda s, sink: s.map(abs, id=""), "id must not be empty"),
        (lambda s, sink: s.map(abs, paralelism=4), "did you mean 'parallelism'"),
        (lambda s, sink: s.map(abs, parallelism=0), "parallelism must be"),
        (lambda s, sink: s.map(abs, num_gpus="one"), "num_gpus must be a number"),
        (lambda s, sink: s.map(abs, resources=["tpu"]), "resources must be amounts by name, such as"),
        (lambda s, sink: s.map(abs, resources={"": 1}), "a name must not be empty"),
        (lambda s, sink: s.map(abs, resources={"tpu": -1}), r"resources\['tpu'\] must be a number of"),
        (lambda s, sink: s.map(abs, resources={"GPU": 1}), "give num_gpus=1 instead of resources"),
        (lambda s, sink: s.split({}), "split needs predicates by name"),
        (lambda s, sink: s.split(abs), "split needs predicates by name, .* not <built-in function abs>"),
        (lambda s, sink: s.split({"a": 3}), "split: 'a' needs a function, not 3"),
        (lambda s, sink: s.split({"a": Seen}), "split: 'a' needs a function, not the class Seen"),
        (lambda s, sink: s.split({7: abs}), "split: a name must be a string"),
        (
            lambda s, sink: s.split({"rest": abs}),
            "split: 'rest' is the stream of the records that match no predicate",
        ),
        (
            lambda s, sink: s.split({"\u00e9": abs, "e\u0301": abs}),
            "split: two names are the same in Unicode's normal form C",
        ),
        (
            lambda s, sink: s.split({"a": abs, "b": pc.field("b") > 3}),
            "split: give functions or expressions of columns, not both",
        ),
        (lambda s, sink: s.filter(None), "filter needs a function, not None"),
        (lambda s, sink: s.flat_map("x"), "flat_map needs a function, not 'x'"),
        (lambda s, sink: s.map_batches(1), "map_batches needs a function"),
        (lambda s, sink: s.transform("own", Operator), r"give an object, Operator\(...\), not"),
        (lambda s, sink: s.transform("own", abs), "is not an Operator; for a plain function use map"),
        (lambda s, sink: s.transform(Operator()), "the id comes first"),
        (
            lambda s, sink: s.transform("own", Takes()),
            "Takes.batch_format is 'pandas'; it is one of 'rows'",
        ),
        (lambda s, sink: s.transform("own", Empty()), r"Empty has no method process\(batch\)"),
        (lambda s, sink: s.transform("own", Keyed()), "Keyed.keyed is True, so it needs a keyed stream"),
        (lambda s, sink: s.map_batches(abs, "pandas"), "must be 'rows' or 'arrow', not 'pandas'"),
        (lambda s, sink: s.key_by(5), "key_by needs a function, not 5"),
        (lambda s, sink: s.key_by([]), r"key_by: a key needs names of columns, as in key_by\("),
        (lambda s, sink: s.key_by(["a", "a"]), "key_by: .*: it has 'a' twice"),
        (lambda s, sink: s.union(3), "argument 1 is not a DataStream but 3$"),
        (
            lambda s, sink: s.union(s, s.key_by(abs)),
            "argument 2 is not a DataStream but .*key_by after",
        ),
        (
            lambda s, sink: s.union(StreamEnvironment().from_collection("in", [1])),
            "argument 1 is a stream of another StreamEnvironment",
        ),
        (lambda s, sink: s.sink(sink), "missing a required argument: 'sink'; the id comes first"),
        (lambda s, sink: s.sink(sink, "out"), "id must be a string, not DiscardSink.*the id comes first"),
        (lambda s, sink: s.sink(None, sink), "id must be a string, not NoneType"),
        (lambda s, sink: s.sink("out", print), "has no method `writer"),
        (lambda s, sink: s.sink("out", type(sink)), r"give an object, DiscardSink\(...\)"),
        (lambda s, sink: s.side_output("late"), "has no side output 'late'; its side outputs are 'dead_le"),
        (
            lambda s, sink: s.map(abs).dead_letters(),
            r"map\(abs\) has no side output .*; it has none",
        ),
        (lambda s, sink: s.rebalance().dead_letters(), "right after the operator that emits it"),
        (lambda s, sink: s.union(s).dead_letters(), "right after the operator that emits it"),
        (lambda s, sink: s.dead_letters().dead_letters(), "right after the operator that emits it"),
        (lambda s, sink: s.reduce("sum", max), "a DataStream has no reduce: group it with key_by"),
        (lambda s, sink: s.aggregate("sum"), "a DataStream has no aggregate: group it with key_by"),
        (lambda s, sink: s.trigger(abs), r"has no trigger: group it with key_by\(function\).window\("),
        (lambda s, sink: s.key_by(abs).reduce(max), "missing a required argument: 'function'; the id comes"),
        (lambda s, sink: s.key_by(abs).reduce(max, "sum"), "id must be a string, not builtin.*the id comes"),
        (lambda s, sink: s.key_by(abs).reduce("sum", 3), "reduce needs a function, not 3"),
        (lambda s, sink: s.key_by(abs).reduce("a/b", max), "'a/b' must be at most 100 letters"),
        (lambda s, sink: s.key_by(abs).process("p", Seen), r"give an object, Seen\(...\)"),
        (
            lambda s, sink: s.key_by(abs).process("p", abs),
            "is not a KeyedProcessFunction; for a plain function",
        ),
        (lambda s, sink: s.key_by(abs).process("p", 3), "3 is not a KeyedProcessFunction$"),
        (lambda s, sink: s.key_by(abs).process(Seen()), "missing a required argument: 'function'; the id"),
        (lambda s, sink: s.key_by(abs).map(abs), "a KeyedStream has no map: call map before key_by, or"),
        (lambda s, sink: s.key_by(abs).sink("out", sink), "a KeyedStream has no sink"),
    ],
)
def test_a_wrong_call_is_refused_with_the_users_line(
    call: Callable[[Any, Any], object], message: str, source: DataStream[int], discard: Any
) -> None:
    with pytest.raises(GraphError, match=f"{HERE}.*{message}"):
        call(source, discard)


def test_other_unknown_names_are_plain_attribute_errors(source: Any, keyed: Any) -> None:
    for stream in (source, keyed):
        assert not hasattr(stream, "no_such_method")
        assert not hasattr(stream, "__len__")
    assert not hasattr(keyed, "map")
