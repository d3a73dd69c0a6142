"""A misspelt column of records that are dicts is an error in every operator that reads columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.compute as pc
import pytest

from penstock import KeyedProcessFunction
from penstock.aggregates import Count, CountDistinct, Sum
from penstock.connected import KeyedCoProcessFunction
from penstock.operators import Operator
from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.keyed_aggregate import CombineOperator
from penstock.runtime.record.column_key import ColumnKey
from penstock.testing import OperatorHarness
from penstock.windows import EventTimeSessionWindows, TumblingEventTimeWindows

Build = Callable[[Any], Any]

ROW = {"key": "a", "value": 1}


class Twice(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        return [value, value]


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any]:
        return [value]

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any]:
        return [value]


class Keys(Operator):
    keyed = True

    def process(self, batch: Any) -> Any:
        assert self.context is not None
        list(self.context.by_key(batch))
        return ()

    def open(self, context: Any) -> None:
        self.context = context


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter(pc.field("valu") > 1),
        lambda s: s.filter((pc.field("value") > 1) & (pc.field("valu") < 5)),
        lambda s: s.select("key", "valu"),
        lambda s: s.select(double=pc.field("valu") * 2),
        lambda s: s.with_columns(double=pc.field("valu") * 2),
        lambda s: s.split({"large": pc.field("valu") > 1})["large"],
        lambda s: s.key_by("kye").reduce("r", lambda a, b: a),
        lambda s: s.key_by(["key", "valu"]).reduce("r", lambda a, b: a),
        lambda s: s.key_by("kye").process("p", Twice()),
        lambda s: s.key_by("kye").window(TumblingEventTimeWindows(1)).reduce("w", lambda a, b: a),
        lambda s: s.key_by("kye").transform("t", Keys()),
        lambda s: s.key_by("kye").aggregate("a", combine=False, n=Count()),
        lambda s: s.key_by("key").aggregate("a", combine=False, total=Sum("valu")),
        lambda s: s.key_by("key").aggregate("a", combine=False, n=Count("valu")),
        lambda s: s.key_by("key").aggregate("a", n=CountDistinct("valu")),
        lambda s: (
            s.key_by("key").window(TumblingEventTimeWindows(1)).aggregate("a", combine=False, t=Sum("valu"))
        ),
        lambda s: s.key_by("key").window(EventTimeSessionWindows(1)).aggregate("a", total=Sum("valu")),
        lambda s: s.dedup("d", "kye"),
        lambda s: s.latest_by("l", "valu", "key"),
        lambda s: s.top_n("t", "valu", 1, "key"),
    ],
)
def test_a_misspelt_column_is_refused_with_the_nearest_name(build: Build) -> None:
    with OperatorHarness.of(build) as harness, pytest.raises(OperatorError) as refused:
        harness.push([ROW], [1])
    assert "no record of a batch has a column" in str(refused.value)
    assert "did you mean" in str(refused.value)


def test_the_combiner_before_an_aggregation_refuses_it_too() -> None:
    combiner = CombineOperator(ColumnKey(("key",)), Aggregation(["key"], {"total": Sum("valu")}))
    with OperatorHarness(combiner) as harness, pytest.raises(OperatorError, match="did you mean 'value'"):
        harness.push([ROW])


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: a.key_by("key").connect(b.key_by("kye")).process("p", Both()),
        lambda a, b: a.join(b, left_on="key", right_on="kye", within=1),
    ],
)
def test_the_second_input_has_a_check_of_its_own(build: Callable[[Any, Any], Any]) -> None:
    with OperatorHarness.of(build) as harness:
        harness.push([ROW], [1])
        with pytest.raises(
            OperatorError, match=r"no record of a batch has a column 'kye'.*did you mean 'key'"
        ):
            harness.push([ROW], [1], input_index=1)


def test_an_expression_that_handles_null_takes_optional_fields() -> None:
    for expression in (pc.field("error").is_null(), pc.coalesce(pc.field("error"), pc.scalar("")) == ""):
        with OperatorHarness.of(lambda s, e=expression: s.filter(e)) as harness:
            assert harness.push([ROW]) == [ROW]


def test_a_restored_job_continues_with_a_batch_that_lacks_an_optional_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def build(stream: Any) -> Any:
        return stream.key_by("key").aggregate("a", combine=False, total=Sum("extra"))

    with OperatorHarness.of(build) as harness:
        harness.push([ROW | {"extra": 1}, ROW])
        snapshot = harness.snapshot()
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        harness.push([ROW])
    assert "no record of a batch has a column 'extra'" in caplog.text
