from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import DataStream, DiscardSink, FileSource, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Count, Sum
from penstock.connectors import OnRequest
from penstock.runtime.operators.source import NeededColumns
from penstock.runtime.record.elements import ArrowBatch
from penstock.windows import TumblingEventTimeWindows

V, W = pc.field("v"), pc.field("w")


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment("job", parallelism=2)


@pytest.fixture
def rows(env: StreamEnvironment) -> DataStream[Any]:
    return env.from_source("rows", FileSource.parquet("/data", batch_format="arrow"))


def told(env: StreamEnvironment) -> tuple[tuple[str, ...] | None, list[str], str]:
    """The source's view of a query: columns, expressions, and the filter."""
    source = next(o.source for v in env.build().vertices for o in v.operators if o.source is not None)
    assert isinstance(source, FileSource)
    needed: NeededColumns = source.form.needed
    return needed.names, [str(each) for each in needed.expressions], str(needed.wanted)


def test_filters_and_columns_are_pushed_into_the_source(env: StreamEnvironment, rows: Any) -> None:
    rows.filter(V > 3).rebalance().filter(W < 1).select("k", double=V * 2).sink("out", DiscardSink())
    expected = ["(v > 3)", "(w < 1)", "multiply_checked(v, 2)"]
    assert told(env) == (("k",), expected, "((v > 3) and (w < 1))")


@pytest.mark.parametrize("combine", [True, False])
def test_an_aggregation_needs_its_key_and_what_it_looks_at(
    env: StreamEnvironment, rows: Any, combine: bool
) -> None:
    sums = rows.with_columns(t=V * W).key_by("k").aggregate("sums", combine=combine, s=Sum("t"), n=Count())
    sums.sink("out", DiscardSink())
    names, expressions, wanted = told(env)
    assert set(names or ()) == {"k"}
    assert (expressions, wanted) == (["multiply_checked(v, w)"], "None")


def test_windows_need_the_column_of_the_timestamp(env: StreamEnvironment, rows: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
    timed = rows.filter(V > 3).assign_timestamps_and_watermarks(strategy).filter(W > 1)
    windows = timed.key_by("k").window(TumblingEventTimeWindows(60))
    windows.aggregate("sums", s=Sum("x")).sink("out", DiscardSink())
    names, expressions, wanted = told(env)
    assert set(names or ()) == {"ts", "k", "x"}
    assert expressions == ["(v > 3)", "(w > 1)"]
    assert wanted == "(v > 3)", "a row that is dropped behind its timestamp has moved the watermark"


def test_late_rows_have_all_columns(env: StreamEnvironment, rows: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
    timed = rows.filter(V > 3).assign_timestamps_and_watermarks(strategy)
    sums = timed.key_by("k").window(TumblingEventTimeWindows(60)).aggregate("sums", s=Sum("x"))
    sums.sink("out", DiscardSink())
    sums.side_output("late_records").sink("late", DiscardSink())
    assert told(env) == (None, [], "(v > 3)")


def test_a_source_with_several_readers_is_told_the_columns_of_all_of_them(
    env: StreamEnvironment, rows: Any
) -> None:
    rows.filter(V > 3).select("k").sink("out", DiscardSink())
    rows.filter(pc.field("at", "x") > 1).select("l", double=W * 2).sink("other", DiscardSink())
    names, expressions, wanted = told(env)
    assert set(names or ()) == {"k", "l"}
    assert set(expressions) == {"(v > 3)", "(FieldRef.Nested(FieldRef.Name(at) FieldRef.Name(x)) > 1)"} | {
        "multiply_checked(w, 2)"
    }
    assert wanted == "None", "each reader needs other rows"
    source: Any = env.build().vertices[0].operators[0].source
    assert set(source.form.needed.fields) == {("k",), ("l",), ("v",), ("w",), ("at", "x")}


def test_a_filter_by_position_needs_all_columns(env: StreamEnvironment, rows: Any) -> None:
    rows.filter(pc.field(0) > 3).select("k").sink("out", DiscardSink())
    assert told(env)[0] is None


def columns_after(env: StreamEnvironment, steps: Any, batch: pa.RecordBatch) -> list[list[str]]:
    """The names of the columns after each of the given steps."""
    by_id = {operator.id: operator for vertex in env.build().vertices for operator in vertex.operators}
    found = []
    for step in steps:
        (output,) = by_id[step].factory().process(ArrowBatch(batch))
        batch = output.batch
        found.append(batch.schema.names)
    return found


def test_columns_that_no_step_reads_are_neither_computed_nor_kept(env: StreamEnvironment, rows: Any) -> None:
    read = rows.filter(V > 3, id="f").with_columns(t=V * W, u=V / 0, id="w").select("t", "k", "v", id="s")
    read.key_by("k").aggregate("sums", s=Sum("t")).sink("out", DiscardSink())
    batch = pa.record_batch({"k": ["a"], "v": [4], "w": [2], "x": [0]})
    assert columns_after(env, ["f", "w", "s"], batch) == [["k", "v", "w"], ["k", "v", "w", "t"], ["t", "k"]]


def test_columns_stay_if_a_sink_or_a_side_output_reads_them(env: StreamEnvironment, rows: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
    chosen = rows.select("k", "v", "ts", id="s").assign_timestamps_and_watermarks(strategy)
    sums = chosen.key_by("k").window(TumblingEventTimeWindows(60)).aggregate("sums", n=Count())
    sums.sink("out", DiscardSink())
    batch = pa.record_batch({"k": ["a"], "v": [4], "ts": [2]})
    assert columns_after(env, ["s"], batch) == [["k", "ts"]]
    sums.side_output("late_records").sink("late", DiscardSink())
    assert columns_after(env, ["s"], batch) == [["k", "v", "ts"]]


def test_a_selection_of_which_nothing_is_read_keeps_the_number_of_rows(
    env: StreamEnvironment, rows: Any
) -> None:
    rows.select("k", id="s").select("v", w=pc.scalar(1), id="t").key_by("w").aggregate("n", n=Count()).sink(
        "out", DiscardSink()
    )
    assert columns_after(env, ["s"], pa.record_batch({"k": ["a"]})) == [["k"]]


def test_nothing_is_left_out_where_somebody_else_reads(env: StreamEnvironment, rows: Any) -> None:
    rows.filter(V > 3).select("k").sink("out", DiscardSink())
    rows.sink("all", DiscardSink())
    assert told(env) == (None, [], "None")


def test_a_function_needs_all_columns_of_the_rows_that_pass_the_filter(
    env: StreamEnvironment, rows: Any
) -> None:
    rows.filter(V > 3).map(str).select("k").sink("out", DiscardSink())
    assert told(env) == (None, [], "(v > 3)")


def test_a_key_by_a_function_needs_all_columns(env: StreamEnvironment, rows: Any) -> None:
    rows.filter(V > 3).key_by(len).reduce("last", max).sink("out", DiscardSink())
    assert told(env) == (None, [], "(v > 3)")


def test_a_filter_by_a_computed_column_is_not_pushed(env: StreamEnvironment, rows: Any) -> None:
    rows.with_columns(v=V + 1).filter(V > 3).select("k", "v").sink("out", DiscardSink())
    assert told(env) == (("k",), ["add_checked(v, 1)"], "None")


def test_a_source_with_a_strategy_is_told_no_filter_and_keeps_the_column_of_the_timestamp(
    env: StreamEnvironment,
) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
    source = FileSource.parquet("/data", batch_format="arrow")
    rows: Any = env.from_source("rows", source, watermarks=strategy)
    rows.filter(V > 3).key_by("k").aggregate("sums", s=Sum("x")).sink("out", DiscardSink())
    names, expressions, wanted = told(env)
    assert set(names or ()) == {"ts", "k", "x"}
    assert (expressions, wanted) == (["(v > 3)"], "None")


@pytest.mark.parametrize(
    "strategy",
    [
        WatermarkStrategy.for_punctuated(lambda row, at: at).with_timestamp_column("ts"),
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(len),
    ],
    ids=["generator", "assigner"],
)
def test_code_that_sees_whole_records_needs_all_columns(
    env: StreamEnvironment, rows: Any, strategy: Any
) -> None:
    rows.filter(V > 3).assign_timestamps_and_watermarks(strategy).select("k").sink("out", DiscardSink())
    assert told(env) == (None, [], "(v > 3)")


def test_code_of_a_source_that_sees_whole_records_needs_all_columns(env: StreamEnvironment) -> None:
    strategy = WatermarkStrategy.for_punctuated(lambda row, at: at).with_timestamp_column("ts")
    source = FileSource.parquet("/data", batch_format="arrow")
    rows: Any = env.from_source("rows", source, watermarks=strategy)
    rows.filter(V > 3).select("k").sink("out", DiscardSink())
    assert told(env) == (None, [], "None")


def test_a_source_on_request_is_told_what_the_steps_behind_it_need(env: StreamEnvironment) -> None:
    class Own(OnRequest[Any]):
        """Stays what it is."""

    source = Own(FileSource.parquet("/data", batch_format="arrow"))
    rows = env.from_source("rows", source)
    rows.filter(V > 3).select("k").sink("out", DiscardSink())
    pushed: Any = env.build().vertices[0].operators[0].source
    assert type(pushed) is Own
    assert pushed._source.form.needed.names == ("k",)
    assert str(pushed._source.form.needed.wanted) == "(v > 3)"
    assert source._source.form.needed.is_all  # type: ignore[attr-defined]
