"""Steps of a job that run in Spark's Python workers: which ones, and with the same answers."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deep import DEEP
from drawn_steps import SCHEMA, batches_of, drawn_aggregates, drawn_rows, drawn_steps
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import DataStream, DiscardSink, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import ColumnAggregate, Count, First, Min, Sum, VectorizedAggregate
from penstock.bridge.arrow import with_zeros_under_nulls
from penstock.bridge.push_partition import encoded, frames
from penstock.bridge.receive_buffer_messages import BufferSettings
from penstock.bridge.spark_source import SparkSource
from penstock.runtime.errors import GraphError, OperatorError
from penstock.runtime.graph.job_graph import JobGraph, OperatorSpec
from penstock.runtime.operators import source_steps
from penstock.runtime.operators.aggregation.aggregation import Aggregation, is_partial
from penstock.runtime.operators.aggregation.keyed_aggregate import KeyedAggregateOperator
from penstock.runtime.operators.source_steps import PassesOn, SourceStep, StepsAtSource
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.testing.manual_time import ManualClock
from penstock.testing import OperatorHarness

V = pc.field("int64")


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment("job", parallelism=2)


def rows_in(env: StreamEnvironment, batch_format: Any = "arrow") -> DataStream[Any]:
    return env.from_source("rows", SparkSource(BufferSettings("transfer"), batch_format, SCHEMA))


def operators(graph: JobGraph) -> dict[str, OperatorSpec]:
    return {operator.id: operator for vertex in graph.vertices for operator in vertex.operators}


def moved(env: StreamEnvironment) -> list[str]:
    """The ids of the steps that run in Spark; others must run in the job, and only others."""
    found = operators(env.build())
    source: Any = found["rows"].source
    packed = source.buffers.part.steps
    steps: Sequence[SourceStep] = pickle.loads(packed) if packed else ()
    ids = [step.location.operator for step in steps]
    passing = [id for id, each in found.items() if each.factory and isinstance(each.factory(), PassesOn)]
    assert passing == ids
    assert [id for id, each in found.items() if each.name.endswith(", in Spark") and id != "rows"] == ids
    return ids


def test_columnar_steps_and_the_combiner_run_in_spark(env: StreamEnvironment) -> None:
    kept = (
        rows_in(env)
        .filter(V > 3, id="f")
        .with_columns(id="w", double=V * 2)
        .select("string", "double", id="s")
    )
    kept.key_by("string").aggregate("sums", s=Sum("double"), n=Count()).sink("out", DiscardSink())
    assert moved(env) == ["f", "w", "s", "sums-combine"]
    assert operators(env.build())["w"].name == "with_columns(double=multiply_checked(int64, 2)), in Spark"


def test_a_step_after_a_function_runs_in_the_job(env: StreamEnvironment) -> None:
    kept: Any = rows_in(env).filter(V > 3, id="f")
    kept.map_batches(lambda batch: batch, "arrow").filter(V > 4, id="g").sink("out", DiscardSink())
    assert moved(env) == ["f"]


class Scaled:
    """Multiplies by a factor that its constructor gets."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "int64", pc.multiply(batch["int64"], self.factor))


def test_a_pushable_function_runs_in_spark(env: StreamEnvironment) -> None:
    stream: Any = rows_in(env).filter(V > 3, id="f")
    scaled = stream.map_batches(Scaled, "arrow", pushable=True, fn_constructor_args=(10,), id="m")
    scaled.select("int64", id="s").sink("out", DiscardSink())
    assert moved(env) == ["f", "m", "s"]
    (batch,) = run(env, batches_of({"int64": [3, 4, None, 5]}))
    assert batch is not None
    assert batch.to_pydict() == {"int64": [40, 50]}


def test_a_function_over_rows_is_not_pushable(env: StreamEnvironment) -> None:
    with pytest.raises(GraphError, match=r"pushable=True is for batch_format='arrow'"):
        rows_in(env).map_batches(list, pushable=True)  # type: ignore[call-overload]


def test_a_step_that_shares_its_input_runs_in_the_job(env: StreamEnvironment) -> None:
    kept = rows_in(env).filter(V > 3, id="f")
    kept.select("int64", id="s").sink("one", DiscardSink())
    kept.select("string", id="t").sink("two", DiscardSink())
    assert moved(env) == ["f"]


@pytest.mark.parametrize(
    "options",
    [{"disable_chaining": True}, {"start_new_chain": True}, {"num_cpus": 1}, {"resources": {"x": 1}}],
)
def test_a_step_with_resources_or_a_chain_of_its_own_runs_in_the_job(
    env: StreamEnvironment, options: Any
) -> None:
    rows_in(env).filter(V > 3, id="f", **options).select("int64", id="s").sink("out", DiscardSink())
    assert moved(env) == []


def test_a_step_after_an_exchange_runs_in_the_job(env: StreamEnvironment) -> None:
    rows_in(env).filter(V > 3, id="f").rebalance().select("int64", id="s").sink("out", DiscardSink())
    assert moved(env) == ["f"]


def test_steps_over_rows_run_in_the_job(env: StreamEnvironment) -> None:
    rows_in(env, "rows").filter(V > 3, id="f").select("int64", id="s").sink("out", DiscardSink())
    assert moved(env) == []


def test_a_source_with_timestamps_runs_no_steps(env: StreamEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("time")
    source = SparkSource(BufferSettings("transfer"), "arrow", SCHEMA)
    stream: Any = env.from_source("rows", source, watermarks=strategy)
    stream.filter(V > 3, id="f").sink("out", DiscardSink())
    assert moved(env) == []


class Squares(VectorizedAggregate):
    state: ClassVar[Any] = {"sum": "float64"}

    def update(self, state: Any, columns: Any, slots: Any) -> None:
        np.add.at(state["sum"], slots, columns["int64"] ** 2)

    def merge(self, state: Any, other: Any) -> None:
        state["sum"] += other["sum"]

    def result(self, state: Any) -> Any:
        return state["sum"]


def test_a_combiner_with_a_function_of_the_user_runs_in_the_job(env: StreamEnvironment) -> None:
    kept = rows_in(env).filter(V > 3, id="f").key_by("string")
    kept.aggregate("sums", s=Squares("int64")).sink("out", DiscardSink())
    assert "sums-combine" in operators(env.build())
    assert moved(env) == ["f"]


def test_an_error_names_the_operator_and_its_line(env: StreamEnvironment) -> None:
    rows_in(env).with_columns(id="halves", half=V / 0).sink("out", DiscardSink())
    batch = next(batches_of({"int64": [1]}))
    with pytest.raises(OperatorError, match=r"operator 'halves', defined at .*divide by zero"):
        run(env, [batch])


def steps_of(env: StreamEnvironment) -> Sequence[SourceStep]:
    source: Any = operators(env.build())["rows"].source
    packed = source.buffers.part.steps
    return pickle.loads(packed) if packed else ()  # type: ignore[no-any-return]


def run(env: StreamEnvironment, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch | None]:
    """The batches that a Spark task pushes."""
    emitted = StepsAtSource(steps_of(env), "job", 0, ManualClock()).run(batches)
    return [None if batch is None else with_zeros_under_nulls(batch) for batch in emitted]


def narrowed(env: StreamEnvironment, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Batches with the columns that Spark reads for the job."""
    source: Any = operators(env.build())["rows"].source
    places = source.buffers.part.places
    return [batch if places is None else batch.select(list(places)) for batch in batches]


def results(
    key: Sequence[str], functions: dict[str, ColumnAggregate], batches: Iterable[pa.RecordBatch]
) -> dict[Any, Any]:
    """The newest result of each key, as an aggregation in the job emits it."""
    operator = KeyedAggregateOperator(ColumnKey(tuple(key)), Aggregation(key, functions), has_combiner=True)
    newest: dict[Any, Any] = {}
    with OperatorHarness(operator) as harness:
        for batch in batches:
            if batch.num_rows:
                harness.push_batch(ArrowBatch(batch))
        for batch in harness.batches:
            assert isinstance(batch, ArrowBatch)
            for row in batch.batch.to_pylist():
                newest[tuple(repr(row.pop(name)) for name in key)] = row
    return newest


def alike(one: Any, other: Any) -> bool:
    """Equal, but for the order of additions of floats."""
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-9, atol=1e-300, equal_nan=True))
    return bool(one == other)


@settings(deadline=None, max_examples=60 * DEEP)
@given(drawn_rows(), drawn_steps(), drawn_aggregates(), st.data())
def test_moved_steps_give_the_same_results(rows: Any, steps: Any, aggregates: Any, data: Any) -> None:
    """Partitions are cut into batches differently; some are empty."""
    key, functions = aggregates
    env = StreamEnvironment("job")
    stream: Any = rows_in(env)
    for number, step in enumerate(steps):
        stream = step(stream, f"step-{number}")
    stream.key_by(list(key)).aggregate("sums", **functions).sink("out", DiscardSink())
    plain = StreamEnvironment("job")
    in_job: Any = rows_in(plain, "rows")  # nothing moves
    for number, step in enumerate(steps):
        in_job = step(in_job, f"step-{number}")
    in_job.key_by(list(key)).aggregate("sums", **functions).sink("out", DiscardSink())
    found = operators(plain.build())
    chain = [found[f"step-{number}"] for number in range(len(steps))]
    unmoved = [
        SourceStep(step.location, found[step.location.operator].factory) for step in steps_of(env)[:-1]
    ]
    assert len(unmoved) == len(chain), "all steps move"

    partitions = data.draw(st.lists(st.integers(0, len(rows)), max_size=2).map(sorted))
    edges = [0, *partitions, len(rows)]
    pushed: list[pa.RecordBatch] = []
    for first, last in itertools.pairwise(edges):
        cut = data.draw(st.integers(1, max(1, last - first)))
        batches = narrowed(env, batches_of(rows.slice(first, last - first), cut))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source_steps, "FLUSH_ROWS", data.draw(st.sampled_from([3, 1 << 20])))
            emitted = run(env, batches)
            again = run(env, batches)
        sent = [encoded(frame) for frame in frames(emitted)]
        assert sent == [encoded(frame) for frame in frames(again)], "a retried task sends the same frames"
        pushed += [batch for data in sent for batch in pa.ipc.open_stream(data)]
    expected = narrowed(env, [rows])
    expected = [each for each in StepsAtSource(unmoved, "job", 0, ManualClock()).run(expected) if each]
    assert all(map(is_partial, pushed)) or len(rows) >= 256
    one, other = results(key, functions, pushed), results(key, functions, expected)
    assert one.keys() == other.keys()
    for each, result in one.items():
        assert result.keys() == other[each].keys()
        assert all(alike(value, other[each][name]) for name, value in result.items()), (
            each,
            result,
            other[each],
        )


def test_the_combiner_sends_after_so_many_rows_and_at_the_end(
    env: StreamEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_steps, "FLUSH_ROWS", 4)
    rows_in(env).key_by("string").aggregate("sums", s=Sum("int64"), f=First("int64")).sink(
        "out", DiscardSink()
    )
    table = pa.record_batch({"string": ["a", "b"] * 5, "int64": range(10)})
    emitted = run(env, [table.slice(start, 2) for start in range(0, 10, 2)])
    sums = [None if batch is None else batch["s:sum"].to_pylist() for batch in emitted]
    assert sums == [[2, 4], None, [10, 12], None, [8, 9]]
    assert all(map(is_partial, filter(None, emitted)))


_FRAMES = """
import sys; sys.path[:0] = {paths!r}
import test_steps_in_spark as tests
print(tests.digest_of_frames())
"""


def digest_of_frames() -> str:
    """The digest of all frames of a task with computed columns, nulls and partial results."""
    env = StreamEnvironment("job")
    f, t = pc.field("float64"), pc.field("time")
    computed = rows_in(env).with_columns(
        id="w",
        sum=V + pc.field("int32"),
        root=pc.sqrt(f),
        day=pc.floor_temporal(t, unit="day"),
        up=pc.utf8_upper(pc.field("string")),
    )
    generator = np.random.default_rng(1)
    whole = pa.record_batch(
        {
            name: pa.array(generator.integers(0, 50, 1_000), pa.int64()).cast(kind)
            for name, kind in {field.name: field.type for field in SCHEMA}.items()
        }
    )
    holes = pa.array(generator.random(1_000) < 0.3)
    columns = [pc.if_else(holes, pa.scalar(None, column.type), column) for column in whole.columns]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    digest = hashlib.sha256()
    with env.temporarily():
        computed.filter(pc.field("root") > 1, id="f").sink("out", DiscardSink())
        sent = run(env, [batch])
    computed.key_by(["up", "day"]).aggregate(
        "sums", s=Sum("sum"), r=Sum("root"), n=Count("time"), least=Min("int64")
    ).sink("out", DiscardSink())
    sent += run(env, narrowed(env, [batch, batch.slice(7)]))
    for frame in frames(sent):
        digest.update(encoded(frame))
    return digest.hexdigest()


def test_frames_do_not_depend_on_what_memory_held_before() -> None:
    """Receive buffers compare frames by their bytes, so that also the bytes under nulls count."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    found = set()
    for number, fill in enumerate((0, 255)):
        environment = {
            **os.environ,
            "MALLOC_PERTURB_": str(fill),
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "PYTHONHASHSEED": str(number),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run(
            [sys.executable, "-c", _FRAMES.format(paths=paths)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize("kind", [pa.decimal32(7, 2), pa.decimal64(10, 2), pa.decimal128(20, 2)], ids=str)
def test_zeros_under_nulls_change_no_decimal_of_any_width(kind: pa.DataType) -> None:
    values = pa.array([125, None, 350, 475]).cast(pa.decimal128(20, 0)).cast(kind)
    batch = pa.record_batch({"n": values})
    assert with_zeros_under_nulls(batch).column("n").to_pylist() == values.to_pylist()
